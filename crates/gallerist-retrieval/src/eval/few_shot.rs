//! Few-shot retrieval: many small galleries drawn from the test classes.

use gallerist_util::interrupt;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::average_precision::AveragePrecision;
use super::classes::RowClasses;
use super::evaluate_split;
use super::measure::Measure;
use super::options::EvalOptions;
use super::precision::Precision;
use crate::random::{different, generator};
use crate::search::Metric;
use crate::{Error, Matrix, Result};

/// The episodes to draw.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FewShotOptions {
    /// Classes in an episode: N of N-way.
    pub ways: usize,
    /// Gallery images per class: K of K-shot.
    pub shots: usize,
    /// Query images per class.
    pub queries: usize,
    /// Episodes.
    pub episodes: usize,
    /// Seed of the episodes.
    pub seed: u64,
}

impl Default for FewShotOptions {
    /// 5-way 1-shot, 15 queries per class, 600 episodes.
    fn default() -> Self {
        Self { ways: 5, shots: 1, queries: 15, episodes: 600, seed: 0 }
    }
}

impl FewShotOptions {
    /// Refuses numbers of 0.
    fn check(&self) -> Result<()> {
        let Self { ways, shots, queries, episodes, .. } = *self;
        for (option, value) in
            [("ways", ways), ("shots", shots), ("queries per class", queries), ("episodes", episodes)]
        {
            if value == 0 {
                return Err(Error::Option { option, wanted: "at least 1", found: "0".to_owned() });
            }
        }
        Ok(())
    }

    /// Whether the classes of these rows have enough images, before they are embedded.
    ///
    /// # Errors
    /// As [`few_shot`].
    pub fn check_rows(&self, rows: &RowClasses) -> Result<()> {
        self.check()?;
        let mut sorted = rows.queries.to_vec();
        sorted.sort_unstable();
        self.drawn_from(sorted.chunk_by(|a, b| a == b).collect()).map(drop)
    }

    /// The classes with enough images, of classes that are given with their images.
    fn drawn_from<'a, T>(&self, classes: Vec<&'a [T]>) -> Result<Vec<&'a [T]>> {
        let Self { ways, shots, queries, .. } = *self;
        let needed = shots.saturating_add(queries);
        let all = classes.len();
        let large: Vec<&[T]> = classes.into_iter().filter(|images| images.len() >= needed).collect();
        if large.len() >= ways {
            return Ok(large);
        }
        Err(Error::Protocol {
            what: format!("few-shot retrieval of {ways} ways, {shots} shots and {queries} queries per class"),
            problem: format!(
                "needs {ways} classes with at least {needed} images; {} of {all} classes have so many",
                large.len()
            ),
            hint: Some("give more images, or draw fewer ways, shots or queries per class".to_owned()),
        })
    }
}

/// What the episodes gave.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FewShot {
    /// The share of queries whose nearest gallery image is of their class.
    pub accuracy: f64,
    /// Half the width of its 95 % interval: 1.96 standard errors over the episodes.
    pub accuracy_margin: f64,
    /// The mean average precision of the queries' rankings, form `sum`.
    pub map: f64,
    /// Half the width of its 95 % interval.
    pub map_margin: f64,
    /// Classes with enough images to be drawn.
    pub classes: usize,
    /// The episodes that were drawn.
    #[serde(flatten)]
    pub options: FewShotOptions,
}

/// Draws episodes and measures retrieval in each: a gallery of `shots` images of each of `ways`
/// classes, and `queries` other images of each class as queries.
///
/// The protocol of few-shot learning, with mean average precision as Triantafillou, Zemel and Urtasun
/// (Few-Shot Learning Through an Information Retrieval Lens, 2017) report it next to the accuracy of the
/// nearest neighbour. Classes with fewer than `shots + queries` images are not drawn. The same seed gives
/// the same episodes for any number of threads.
///
/// ```
/// use gallerist_retrieval::{Matrix, eval::{FewShotOptions, few_shot}, search::Metric};
/// let rows = Matrix::new(6, 1, vec![0.0, 0.1, 0.2, 9.0, 9.1, 9.2])?;
/// let options = FewShotOptions { ways: 2, queries: 2, episodes: 10, ..FewShotOptions::default() };
/// let found = few_shot(&rows, &[0, 0, 0, 1, 1, 1], Metric::Euclidean, &options)?;
/// assert_eq!((found.accuracy, found.map), (1.0, 1.0));
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
///
/// # Errors
/// [`Error::Count`] when there is not one label per row, [`Error::Option`] for a number of 0, [`Error::Protocol`] for more
/// ways than there are classes with enough images, [`Error::NonFinite`] and [`Error::TooLong`].
pub fn few_shot(
    embeddings: &Matrix,
    labels: &[u32],
    metric: Metric,
    options: &FewShotOptions,
) -> Result<FewShot> {
    let (wanted, found) = (embeddings.rows(), labels.len());
    if wanted != found {
        return Err(Error::Count { what: "labels", rows: "embeddings", wanted, found });
    }
    options.check()?;
    let FewShotOptions { ways, shots, queries, episodes, seed } = *options;
    embeddings.check_finite("embeddings")?;
    let mut order: Vec<usize> = (0..labels.len()).collect();
    order.sort_by_key(|&row| labels[row]);
    let classes: Vec<&[usize]> = order.chunk_by(|&a, &b| labels[a] == labels[b]).collect();
    let classes = options.drawn_from(classes)?;
    let needed = shots + queries;
    let measures = vec![Measure::at(&Precision, 1), Measure::of_all(&AveragePrecision)];
    let options_of_episode = EvalOptions { metric, measures };
    let values = (0..episodes)
        .into_par_iter()
        .map(|episode| {
            interrupt::point();
            let mut random = generator(seed, episode as u64);
            let (mut gallery, mut tests) = (Vec::new(), Vec::new());
            for class in different(classes.len(), ways, &mut random) {
                let rows = classes[class];
                let drawn = different(rows.len(), needed, &mut random);
                gallery.extend(drawn[..shots].iter().map(|&at| rows[at]));
                tests.extend(drawn[shots..].iter().map(|&at| rows[at]));
            }
            let labels_of = |rows: &[usize]| rows.iter().map(|&row| labels[row]).collect::<Vec<_>>();
            let found = evaluate_split(
                &embeddings.select(&tests),
                &labels_of(&tests),
                &embeddings.select(&gallery),
                &labels_of(&gallery),
                &options_of_episode,
            )?;
            Ok([found.metrics["precision@1"], found.metrics["map"]])
        })
        .collect::<Result<Vec<_>>>()?;
    let [(accuracy, accuracy_margin), (map, map_margin)] =
        [0, 1].map(|at| mean_and_margin(&values.iter().map(|of| of[at]).collect::<Vec<_>>()));
    Ok(FewShot { accuracy, accuracy_margin, map, map_margin, classes: classes.len(), options: *options })
}

/// The mean, and 1.96 standard errors of it; 0 for a single value.
fn mean_and_margin(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
    (mean, if values.len() < 2 { 0.0 } else { 1.96 * (squares / (n - 1.0) / n).sqrt() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_embedding_without_meaning_gets_chance_and_a_margin_that_holds_it() {
        let mut random = generator(1, 0);
        let values = (0..2000).map(|_| crate::random::unit(&mut random) as f32 - 0.5).collect();
        let rows = Matrix::new(1000, 2, values).unwrap();
        let labels: Vec<u32> = (0..1000).map(|row| row % 50).collect();
        let found = few_shot(&rows, &labels, Metric::Euclidean, &FewShotOptions::default()).unwrap();
        assert!((found.accuracy - 0.2).abs() < 2.0 * found.accuracy_margin, "{found:?}");
        // One relevant item of five at a rank from 1 to 5: the mean of 1/rank.
        assert!((found.map - (1.0 + 0.5 + 1.0 / 3.0 + 0.25 + 0.2) / 5.0).abs() < 2.0 * found.map_margin);
        assert!(found.accuracy_margin < 0.02);
    }

    #[test]
    fn a_seed_gives_the_same_episodes_for_any_number_of_threads() {
        let rows = Matrix::new(60, 1, (0..60).map(|i| (i * 37 % 61) as f32).collect()).unwrap();
        let labels: Vec<u32> = (0..60).map(|row| row / 10).collect();
        let run = |threads, seed| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let options = FewShotOptions { shots: 3, queries: 5, episodes: 40, seed, ..Default::default() };
            pool.install(|| few_shot(&rows, &labels, Metric::Euclidean, &options).unwrap())
        };
        assert_eq!(run(1, 2), run(3, 2));
        assert_ne!(run(1, 2).accuracy, run(1, 3).accuracy);
    }

    #[test]
    fn small_classes_are_not_drawn_and_too_few_are_refused() {
        let rows = Matrix::new(5, 1, vec![0.0, 0.1, 5.0, 5.1, 9.0]).unwrap();
        let labels = [0, 0, 1, 1, 2];
        let options = FewShotOptions { ways: 2, queries: 1, episodes: 5, ..Default::default() };
        assert_eq!(few_shot(&rows, &labels, Metric::Euclidean, &options).unwrap().classes, 2);
        let error = few_shot(&rows, &labels, Metric::Euclidean, &FewShotOptions { ways: 3, ..options });
        assert_eq!(
            error.unwrap_err().to_string(),
            "few-shot retrieval of 3 ways, 1 shots and 1 queries per class needs 3 classes with at least 2 images; 2 of 3 \
             classes have so many"
        );
        let rows_of = |ways| {
            let classes = RowClasses { queries: &labels, gallery: None, junk: None };
            FewShotOptions { ways, ..options }.check_rows(&classes)
        };
        assert!(rows_of(2).is_ok() && rows_of(3).is_err() && rows_of(0).is_err());
        assert!(
            few_shot(&rows, &labels, Metric::Euclidean, &FewShotOptions { shots: 0, ..options }).is_err()
        );
        assert!(few_shot(&rows, &labels[..4], Metric::Euclidean, &options).is_err());
    }

    #[test]
    fn the_margin_is_that_of_the_standard_error() {
        let (mean, margin) = mean_and_margin(&[1.0, 2.0, 3.0, 6.0]);
        // Squared differences 4 + 1 + 0 + 9 = 14; 14 / 3 / 4.
        assert_eq!(mean, 3.0);
        assert!((margin - 1.96 * (14.0f64 / 12.0).sqrt()).abs() < 1e-15);
        assert_eq!(mean_and_margin(&[0.4]), (0.4, 0.0));
    }
}
