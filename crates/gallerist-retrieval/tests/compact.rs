//! Galleries in bf16 and int8, from the outside.

use gallerist_retrieval::file::MappedCompact;
use gallerist_retrieval::search::{CompactGallery, Metric, RankedLists, SearchOptions, search};
use gallerist_retrieval::{Code, CompactMatrix, EmbeddingSet, Error, Matrix};

const CODES: [Code; 2] = [Code::Bf16, Code::Int8];

fn normal(rows: usize, cols: usize, seed: u64) -> Matrix {
    let mut state = seed;
    let mut uniform = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 24) as f32 - 0.5
    };
    let data = (0..rows * cols).map(|_| uniform() + uniform() + uniform()).collect();
    Matrix::new(rows, cols, data).unwrap()
}

#[test]
fn lists_have_the_same_bits_for_any_number_of_threads() {
    let (gallery, queries) = (normal(3000, 48, 1), normal(5, 48, 2));
    for code in CODES {
        let options = SearchOptions::new(20);
        let compact = CompactMatrix::encode(&gallery, code).unwrap();
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| {
                let rescored = CompactGallery::rescored(&gallery, code, Metric::Cosine).unwrap();
                let alone = CompactGallery::new(compact.view(), Metric::Cosine).unwrap();
                (rescored.search(&queries, &options).unwrap(), alone.search(&queries, &options).unwrap())
            })
        };
        let one = run(1);
        assert_eq!(one.0, search(&queries, &gallery, &options).unwrap());
        for threads in [2, 3, 8] {
            assert_eq!(run(threads), one);
        }
    }
}

#[test]
fn a_gallery_smaller_than_k_gives_all_of_it() {
    let gallery = normal(5, 8, 3);
    for code in CODES {
        let compact = CompactGallery::rescored(&gallery, code, Metric::Euclidean).unwrap();
        let options = SearchOptions { metric: Metric::Euclidean, ..SearchOptions::new(9) };
        assert_eq!(compact.search(&gallery, &options).unwrap().indices(0).len(), 5);
    }
}

#[test]
fn what_cannot_be_searched_is_refused_by_name() {
    let two = Matrix::new(1, 2, vec![1.0, 2.0]).unwrap();
    let three = Matrix::new(2, 3, vec![1.0, 0.0, 2.0, 0.0, f32::NAN, 2.0]).unwrap();
    let none = Matrix::new(0, 2, vec![]).unwrap();
    let long = Matrix::new(1, 2, vec![1e19, 0.0]).unwrap();
    let message = |result: Result<RankedLists, Error>| result.unwrap_err().to_string();
    let refusal = |result: Result<CompactGallery, Error>| result.err().unwrap().to_string();
    for code in CODES {
        let gallery = CompactGallery::rescored(&two, code, Metric::InnerProduct).unwrap();
        let options = SearchOptions { metric: Metric::InnerProduct, ..SearchOptions::new(1) };
        assert_eq!(message(gallery.search(&three, &options)), "queries have 3 dimensions, the gallery has 2");
        let nan = Matrix::new(1, 2, vec![f32::NAN, 0.0]).unwrap();
        assert_eq!(
            message(gallery.search(&nan, &options)),
            "queries: row 0, column 0 is NaN; every value must be finite"
        );
        assert_eq!(
            message(gallery.search(&two, &SearchOptions { k: 0, ..options })),
            "k must be at least 1, 0 given"
        );
        assert!(gallery.search(&two, &SearchOptions::new(1)).is_err(), "another metric");
        assert_eq!(gallery.search(&none, &options).unwrap().len(), 0);
        assert_eq!(
            refusal(CompactGallery::rescored(&three, code, Metric::Cosine)),
            "gallery: row 1, column 1 is NaN; every value must be finite"
        );
        assert_eq!(refusal(CompactGallery::rescored(&none, code, Metric::Cosine)), "the gallery has no rows");
        let compact = CompactMatrix::encode(&long, code).unwrap();
        assert!(
            refusal(CompactGallery::new(compact, Metric::Euclidean))
                .starts_with("gallery: the squared length of row 0 is 1.0e38")
        );
    }
}

#[test]
fn a_mapped_file_gives_out_the_rows_named_with_what_it_says_about_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("gallery.safetensors");
    let rows = Matrix::new(3, 2, vec![1.0, 0.5, -2.0, 0.0, 0.25, 4.0]).unwrap();
    let names = |of: &str| Some((0..3).map(|row| format!("{of} {row}")).collect::<Vec<_>>());
    let set = EmbeddingSet {
        labels: names("class"),
        paths: names("photo"),
        model: Some("sha256:one".to_owned()),
        ..rows.into()
    };
    for code in [Code::Bf16, Code::Int8] {
        set.save_compact(&path, code).unwrap();
        let mapped = MappedCompact::open(&path).unwrap();
        let whole = EmbeddingSet::load(&path).unwrap();
        let some = mapped.select(&[2, 0, 2]).unwrap();
        assert_eq!(some.embeddings, whole.embeddings.select(&[2, 0, 2]));
        assert_eq!(some.labels.unwrap(), ["class 2", "class 0", "class 2"]);
        assert_eq!(some.paths.unwrap()[1], "photo 0");
        assert_eq!((some.cameras, some.model), (None, whole.model));
        assert_eq!(mapped.select(&[]).unwrap().embeddings.rows(), 0);
    }
}
