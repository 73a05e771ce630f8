//! What callers may rely on.

use gallerist_map::{EmbeddingMap, MapError, MapMethod, Tsne, layout};
use gallerist_retrieval::Matrix;
use proptest::prelude::*;

fn lay(rows: &Matrix, method: &MapMethod) -> Result<EmbeddingMap, MapError> {
    layout(rows, method, &mut |_, _| ())
}

fn tsne(perplexity: f32, steps: usize) -> MapMethod {
    MapMethod::Tsne(Tsne { perplexity, steps })
}

/// Rows of a fixed pattern without repetition.
fn rows(count: usize, cols: usize) -> Matrix {
    let values = (0..count * cols).map(|i| ((i * 7919) % 4093) as f32 / 4093.0).collect();
    Matrix::new(count, cols, values).unwrap()
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let rows = rows(3000, 6);
    for method in [tsne(20.0, 60), MapMethod::Pca] {
        let maps: Vec<EmbeddingMap> = [1, 2, 5]
            .into_iter()
            .map(|threads| {
                let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                pool.install(|| lay(&rows, &method).unwrap())
            })
            .collect();
        assert_eq!(maps[0], maps[1]);
        assert_eq!(maps[0], maps[2]);
    }
}

#[test]
fn rows_of_two_columns_are_returned_as_they_are() {
    let rows = rows(3, 2);
    for method in [tsne(30.0, 10), MapMethod::Pca] {
        let map = lay(&rows, &method).unwrap();
        assert_eq!(map.points.as_flattened(), rows.as_slice());
        assert_eq!(map.method, "the embeddings themselves, 2-dimensional");
    }
    let line = lay(&Matrix::new(2, 1, vec![3.0, 4.0]).unwrap(), &MapMethod::Pca).unwrap();
    assert_eq!(line.points, [[3.0, 0.0], [4.0, 0.0]]);
}

#[test]
fn a_perplexity_beyond_the_rows_is_reduced_with_a_note() {
    let map = lay(&rows(10, 4), &tsne(30.0, 20)).unwrap();
    assert_eq!(map.method, "t-SNE, perplexity 3");
    assert_eq!(map.notes, ["perplexity 3 instead of 30: 10 rows have no more neighbours"]);
    assert!(lay(&rows(91, 4), &tsne(30.0, 20)).unwrap().notes.is_empty());
}

#[test]
fn bad_input_is_refused_with_words() {
    let words = |rows: &Matrix, method| lay(rows, &method).unwrap_err().to_string();
    assert_eq!(words(&rows(3, 4), tsne(1.0, 10)), "t-SNE needs at least 4 rows, found 3");
    assert_eq!(words(&rows(9, 4), tsne(0.5, 10)), "perplexity must be a number of at least 1, found 0.5");
    assert_eq!(
        words(&rows(9, 4), tsne(f32::NAN, 10)),
        "perplexity must be a number of at least 1, found NaN"
    );
    assert_eq!(words(&rows(9, 4), tsne(2.0, 0)), "steps must be at least 1, found 0");
    let mut values = rows(5, 3).into_vec();
    values[7] = f32::NAN;
    let broken = Matrix::new(5, 3, values).unwrap();
    for method in [tsne(1.0, 10), MapMethod::Pca] {
        assert!(words(&broken, method).starts_with("embeddings: row 2, column 1 is NaN"));
    }
}

#[test]
fn progress_begins_at_nothing_and_ends_at_the_whole() {
    for (method, total) in [(tsne(2.0, 30), 30), (MapMethod::Pca, 100)] {
        let mut seen = Vec::new();
        layout(&rows(12, 4), &method, &mut |done, total| seen.push((done, total))).unwrap();
        assert_eq!(seen.first(), Some(&(0, total)));
        assert_eq!(seen.last(), Some(&(total, total)));
        assert!(seen.is_sorted());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    /// Also of rows that coincide, all or some, and of any scale.
    #[test]
    fn every_point_is_finite(
        values in prop::collection::vec(prop::sample::select(vec![0.0f32, 1.0, -1.0, 0.5]), 4 * 3..40 * 3),
        scale in prop::sample::select(vec![1e-18f32, 1e-6, 1.0, 1e6, 1e15]),
        perplexity in 1.0f32..12.0,
    ) {
        let count = values.len() / 3;
        let values = values[..count * 3].iter().map(|v| v * scale).collect();
        let rows = Matrix::new(count, 3, values).unwrap();
        for method in [tsne(perplexity, 300), MapMethod::Pca] {
            let map = lay(&rows, &method).unwrap();
            prop_assert!(map.points.as_flattened().iter().all(|v| v.is_finite()), "{:?}", map.points);
        }
    }
}
