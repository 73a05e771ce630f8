//! Computations end when they are interrupted, and run again afterwards. One test, because the flag holds for the process.

use gallerist_retrieval::cluster::{KMeans, kmeans};
use gallerist_retrieval::eval::{EvalOptions, evaluate};
use gallerist_retrieval::index::{HnswIndex, HnswOptions, Index, ItemFilter, Items, open_index};
use gallerist_retrieval::search::{Metric, SearchOptions, search, self_search};
use gallerist_retrieval::{EmbeddingSet, Matrix};
use gallerist_util::interrupt::{self, Interrupted};

#[test]
fn what_is_interrupted_ends_and_runs_again_with_the_same_result() {
    let (rows, cols) = (600, 8);
    let values = (0..rows * cols).map(|i| ((i * 7919) % 1013) as f32 / 1013.0 - 0.5).collect();
    let matrix = Matrix::new(rows, cols, values).unwrap();
    let labels: Vec<u32> = (0..rows as u32).map(|row| row % 50).collect();
    let options = SearchOptions::new(5);
    // So few candidates that the graph is walked instead of all rows compared.
    let mut index =
        HnswIndex::new(cols, Metric::Euclidean, HnswOptions { ef: 1, ..HnswOptions::default() }).unwrap();
    index.upsert(&Items::numbered(matrix.clone().into(), 0).unwrap()).unwrap();
    let works: [(&str, &dyn Fn() -> String); 5] = [
        ("walk", &|| format!("{:?}", index.search(matrix.view(), 1, &ItemFilter::default()))),
        ("search", &|| format!("{:?}", search(matrix.view(), matrix.view(), &options))),
        ("self_search", &|| format!("{:?}", self_search(matrix.view(), &options))),
        ("evaluate", &|| format!("{:?}", evaluate(&matrix, &labels, &EvalOptions::default()))),
        ("kmeans", &|| format!("{:?}", kmeans(&matrix, &KMeans::faiss20(7, 1)))),
    ];
    for (name, work) in works {
        let before = interrupt::catch(work).unwrap();
        interrupt::raise();
        assert_eq!(interrupt::catch(work), Err(Interrupted), "{name}");
        interrupt::clear();
        assert_eq!(interrupt::catch(work), Ok(before), "{name}");
    }
    an_interrupted_addition_leaves_a_whole_index(&matrix);
}

fn an_interrupted_addition_leaves_a_whole_index(matrix: &Matrix) {
    let items = |from: usize, to: usize, model: &str| {
        let rows: Vec<usize> = (from..to).collect();
        let set = EmbeddingSet { model: Some(model.to_owned()), ..matrix.select(&rows).into() };
        Items::numbered(set, from as u64).unwrap()
    };
    for before in [0, 100] {
        let mut index = HnswIndex::new(matrix.cols(), Metric::Euclidean, HnswOptions::default()).unwrap();
        index.upsert(&items(0, before, "m")).unwrap();
        // The first 20 of them are moved: other rows for the same ids.
        let moved: Vec<f32> = matrix.as_slice().iter().map(|value| -value).collect();
        let moved = Matrix::new(matrix.rows(), matrix.cols(), moved).unwrap();
        let mut all = matrix.as_slice().to_vec();
        all[..20 * matrix.cols()].copy_from_slice(&moved.as_slice()[..20 * matrix.cols()]);
        let new = Matrix::new(600, matrix.cols(), all).unwrap();
        let new = Items::numbered(EmbeddingSet { model: Some("m".into()), ..new.into() }, 0).unwrap();

        let mut linked = 0;
        let added = interrupt::catch(|| {
            index.upsert_with(&new, &mut |done, _| {
                linked = done;
                if done >= 200 {
                    interrupt::raise();
                }
            })
        });
        assert_eq!(added.map(|_| ()), Err(Interrupted));
        interrupt::clear();
        assert!((200..500).contains(&linked), "{linked}");
        let count = index.info().unwrap().count;
        assert!(count >= before.max(linked) && count < 600, "{count} of {linked} and {before}");
        // Every item of the index is found by its own row, which is the old one or the new one.
        let ids = index.ids(&ItemFilter::default()).unwrap();
        assert_eq!(ids.len(), count);
        for (id, item) in ids.iter().zip(index.get(&ids).unwrap()) {
            let row = item.unwrap().embedding;
            let old = &matrix.as_slice()[*id as usize * matrix.cols()..][..matrix.cols()];
            assert!(row == old || row == new.set().embeddings.row(*id as usize));
            let query = Matrix::new(1, matrix.cols(), row).unwrap();
            assert_eq!(index.search(query.view(), 1, &ItemFilter::default()).unwrap().scores(0), [0.0]);
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("index");
        index.save(&path).unwrap();
        let mut index = open_index(&path, false).unwrap();
        assert_eq!(index.info().unwrap().count, count);
        index.upsert(&new).unwrap();
        assert_eq!(index.info().unwrap().count, 600);
        let lists = index.search(new.set().embeddings.view(), 1, &ItemFilter::default()).unwrap();
        assert!((0..600).all(|row| lists.scores(row) == [0.0]));
    }
}
