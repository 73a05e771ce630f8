//! Computations end when they are interrupted, and run again afterwards. One test, because the flag holds for the process.

use gallerist_retrieval::Matrix;
use gallerist_retrieval::cluster::{KMeans, kmeans};
use gallerist_retrieval::eval::{EvalOptions, evaluate};
use gallerist_retrieval::search::{SearchOptions, search, self_search};
use gallerist_util::interrupt::{self, Interrupted};

#[test]
fn what_is_interrupted_ends_and_runs_again_with_the_same_result() {
    let (rows, cols) = (600, 8);
    let values = (0..rows * cols).map(|i| ((i * 7919) % 1013) as f32 / 1013.0 - 0.5).collect();
    let matrix = Matrix::new(rows, cols, values).unwrap();
    let labels: Vec<u32> = (0..rows as u32).map(|row| row % 50).collect();
    let options = SearchOptions::new(5);
    let works: [(&str, &dyn Fn() -> String); 4] = [
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
}
