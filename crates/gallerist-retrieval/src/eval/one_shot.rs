//! N-way one-shot classification on given trials.

use serde::{Deserialize, Serialize};

use crate::search::{Metric, SearchOptions, search};
use crate::{Error, Matrix, Result};

/// One trial: one image of each of N classes, and images of which each shows one of them.
#[derive(Clone, Debug, PartialEq)]
pub struct Trial {
    /// The trial's name, such as `run01`.
    pub name: String,
    /// One row per class.
    pub classes: Matrix,
    /// The images to be named.
    pub tests: Matrix,
    /// For each of `tests` the row of `classes` that is right.
    pub answers: Vec<usize>,
}

/// How often the nearest class was the right one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OneShot {
    /// The mean of the runs' accuracies, from 0 to 1.
    pub accuracy: f64,
    /// Name and accuracy of each run.
    pub runs: Vec<(String, f64)>,
    /// Classes in a trial, where all have as many.
    pub ways: Option<usize>,
    /// Images named in all.
    pub tests: usize,
    /// Tests for which a wrong class was exactly as close as the right one; the lower row decides.
    pub ties: usize,
}

/// Names each test by the nearest class (Lake, Salakhutdinov, Tenenbaum: Human-level concept
/// learning through probabilistic program induction, 2015, for the runs of Omniglot).
///
/// ```
/// use gallerist_retrieval::{Matrix, eval::{Trial, one_shot}, search::Metric};
/// let trial = Trial {
///     name: "run01".into(),
///     classes: Matrix::new(2, 1, vec![0.0, 10.0])?,
///     tests: Matrix::new(2, 1, vec![1.0, 4.0])?,
///     answers: vec![0, 1],
/// };
/// assert_eq!(one_shot(&[trial], Metric::Euclidean)?.accuracy, 0.5);
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
///
/// # Errors
/// As [`search`](crate::search::search()); [`Error::Count`] when there is not one answer per test,
/// [`Error::Option`] for an answer that is no class, and [`Error::Empty`] without trials or tests.
pub fn one_shot(trials: &[Trial], metric: Metric) -> Result<OneShot> {
    if trials.is_empty() || trials.iter().any(|trial| trial.tests.rows() == 0) {
        return Err(Error::Empty { what: "the one-shot test" });
    }
    let (mut runs, mut ties, mut tests) = (Vec::new(), 0, 0);
    for trial in trials {
        let (wanted, found) = (trial.tests.rows(), trial.answers.len());
        if wanted != found {
            return Err(Error::Count { what: "answers", rows: "tests", wanted, found });
        }
        if let Some(answer) = trial.answers.iter().find(|&&answer| answer >= trial.classes.rows()) {
            return Err(Error::Option {
                option: "an answer",
                wanted: "the row of one of the classes",
                found: answer.to_string(),
            });
        }
        let options = SearchOptions { metric, ..SearchOptions::new(trial.classes.rows()) };
        let lists = search(&trial.tests, &trial.classes, &options)?;
        let mut right = 0;
        for ((indices, scores), &answer) in lists.iter().zip(&trial.answers) {
            right += usize::from(indices[0] as usize == answer);
            let at = indices.iter().position(|&row| row as usize == answer).expect("all classes are listed");
            let others = scores.iter().enumerate().filter(|&(other, _)| other != at);
            ties += usize::from(others.into_iter().any(|(_, &score)| score == scores[at]));
        }
        tests += wanted;
        runs.push((trial.name.clone(), right as f64 / wanted as f64));
    }
    let ways = trials[0].classes.rows();
    Ok(OneShot {
        accuracy: runs.iter().map(|(_, accuracy)| accuracy).sum::<f64>() / runs.len() as f64,
        runs,
        ways: trials.iter().all(|trial| trial.classes.rows() == ways).then_some(ways),
        tests,
        ties,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_count_alike_and_ties_go_to_the_lower_row() {
        let trial = |name: &str, tests: Vec<f32>, answers: Vec<usize>| Trial {
            name: name.into(),
            classes: Matrix::new(3, 1, vec![0.0, 2.0, 4.0]).unwrap(),
            tests: Matrix::new(tests.len(), 1, tests).unwrap(),
            answers,
        };
        // 1.0 lies between the first two classes: the first has it.
        let trials = [trial("a", vec![1.0, 3.9, 2.1, 0.0], vec![1, 2, 1, 2]), trial("b", vec![0.1], vec![0])];
        let found = one_shot(&trials, Metric::Euclidean).unwrap();
        assert_eq!(found.runs, [("a".to_owned(), 0.5), ("b".to_owned(), 1.0)]);
        assert_eq!((found.accuracy, found.ways, found.tests, found.ties), (0.75, Some(3), 5, 1));
        for bad in [trial("c", vec![1.0], vec![3]), trial("d", vec![1.0], vec![]), trial("e", vec![], vec![])]
        {
            assert!(one_shot(&[bad], Metric::Euclidean).is_err());
        }
        assert!(one_shot(&[], Metric::Cosine).is_err());
    }
}
