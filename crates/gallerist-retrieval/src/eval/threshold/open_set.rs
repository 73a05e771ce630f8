//! Open-set identification: how many known identities are found while few unknown ones raise a false alarm?

use serde::{Deserialize, Serialize};

use super::score_at;
use super::searches::{Expected, Searched, search};
use crate::eval::allowed;
use crate::eval::classes::RowClasses;
use crate::eval::task::Task;
use crate::search::Metric;
use crate::{Error, Result};

/// The false alarm rates at which the detection and identification rate is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct OpenSetOptions {
    /// From 0 to 1 each; 0.1, 0.01 and 0.001 by default.
    pub fars: Vec<f64>,
    /// Decides which identities are taken out of the gallery where no query is of an unknown one.
    pub seed: u64,
}

impl Default for OpenSetOptions {
    fn default() -> Self {
        Self { fars: vec![1e-1, 1e-2, 1e-3], seed: 0 }
    }
}

impl OpenSetOptions {
    fn check(&self) -> Result<()> {
        match self.fars.iter().find(|far| !(0.0..=1.0).contains(*far)) {
            None => Ok(()),
            Some(far) => Err(Error::Option {
                option: "a false alarm rate",
                wanted: "from 0 to 1",
                found: far.to_string(),
            }),
        }
    }

    /// Whether there are searches for known and for unknown identities, before the images are embedded. Cameras are not
    /// regarded: images that are skipped because of their camera count as found.
    ///
    /// # Errors
    /// As [`open_set`].
    pub fn check_rows(&self, rows: &RowClasses) -> Result<()> {
        self.check()?;
        let expected = Expected::new(rows, self.seed);
        check_searches(expected.known, expected.unknown)
    }
}

fn check_searches(known: usize, unknown: usize) -> Result<()> {
    if known > 0 && unknown > 0 {
        return Ok(());
    }
    Err(Error::Protocol {
        what: "open-set identification".to_owned(),
        problem: format!(
            "needs searches for identities in the gallery and for others; there are {known} and {unknown}"
        ),
        hint: Some("give several images of at least two identities".to_owned()),
    })
}

/// Detection and identification rates, and the searches they come from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct OpenSet {
    /// The rate at each requested false alarm rate.
    pub dir_at_far: Vec<Identification>,
    /// False alarm rate and detection and identification rate, rising: at most 200 points.
    pub curve: Vec<(f64, f64)>,
    /// Searches for identities in the gallery.
    pub known: usize,
    /// Searches for identities that are not in it.
    pub unknown: usize,
    /// Images of the gallery.
    pub gallery: usize,
    /// Identities that were taken out of the gallery to be unknown.
    pub taken_out: usize,
}

/// A point of the curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Identification {
    /// The requested false alarm rate: at most this share of the searches for unknown identities returns a match.
    pub far: f64,
    /// The share of the searches for known identities whose nearest item is of the identity and a match.
    pub dir: f64,
    /// A match has this similarity or a larger one, this distance or a smaller one. `None` where no search identifies its
    /// query; earlier files have `null` only where every result is a match.
    pub threshold: Option<f32>,
}

/// Points of the curve.
const POINTS: usize = 200;

/// Measures open-set identification: the detection and identification rate at rank 1 (DIR) against the false alarm rate
/// (FAR).
///
/// ```text
/// DIR(t) = share of the searches for known identities whose nearest item is of the identity and within t
/// FAR(t) = share of the searches for unknown identities that have an item within t
/// ```
///
/// (Phillips, Grother, Micheals: Evaluation methods in face recognition, in: Handbook of Face Recognition, 2nd edition,
/// 2011, chapter 21.) FAR is the false positive identification rate of ISO/IEC 19795-1, DIR is 1 - FNIR at rank 1. An item
/// of another identity that is exactly as close as the nearest one of the query's makes the search a miss.
///
/// Unknown are the queries without an item of their label in the gallery. Where there are none, half of the identities are
/// taken out of the gallery. A query whose identity has no other item that counts takes no part. Here each search has the
/// same weight; [`calibrate`](super::calibrate) weighs identities.
///
/// ```
/// use gallerist_retrieval::eval::{OpenSetOptions, Side, Task, open_set};
/// use gallerist_retrieval::{Matrix, search::Metric};
///
/// // Items 0 and 10; of the known queries one is at 1, one at 3; of the unknown ones one is at distance 2, one at 4.
/// let (gallery, queries) =
///     (Matrix::new(2, 1, vec![0.0, 10.0])?, Matrix::new(4, 1, vec![1.0, 13.0, 2.0, 6.0])?);
/// let task = Task::split(Side::classes(&queries, &[0, 1, 2, 3]), Side::classes(&gallery, &[0, 1]));
/// let options = OpenSetOptions { fars: vec![0.0, 0.5], seed: 0 };
/// let found = open_set(&task, Metric::Euclidean, &options)?;
/// assert_eq!(found.dir_at_far.iter().map(|point| point.dir).collect::<Vec<_>>(), [0.5, 1.0]);
/// assert_eq!((found.known, found.unknown), (2, 2));
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
///
/// # Errors
/// As [`Task::measure`]; [`Error::Option`] for a rate outside 0 to 1, [`Error::Protocol`] for label sets and when there are
/// no searches for known or none for unknown identities.
pub fn open_set(task: &Task, metric: Metric, options: &OpenSetOptions) -> Result<OpenSet> {
    options.check()?;
    task.check(&crate::eval::EvalOptions { metric, measures: Vec::new() })?;
    let Some(problem) = task.classed(task.is_one_set())? else {
        return Err(Error::Protocol {
            what: "open-set identification".to_owned(),
            problem: "needs one class per row, and some rows have several labels (`a|b`)".to_owned(),
            hint: Some("leave it out, or give labels without `|`".to_owned()),
        });
    };
    let searches = search(&problem, metric, options.seed)?;
    let of = |known: bool| searches.queries.iter().filter(move |search| search.known == known);
    // The best keys of the unknown, and the keys up to which the known are identified, falling.
    let mut alarms: Vec<u32> = of(false).map(|search| search.other.unwrap_or(0)).collect();
    let mut hits: Vec<u32> = of(true).filter_map(Searched::identified_to).collect();
    let (known, unknown) = (of(true).count(), alarms.len());
    check_searches(known, unknown)?;
    alarms.sort_unstable_by(|a, b| b.cmp(a));
    hits.sort_unstable_by(|a, b| b.cmp(a));
    // With so many alarms allowed, keys above the next one are matches. Where they identify no query, there is no threshold: the
    // next key may be above that of a distance of 0.
    let identified = |count: usize| match alarms.get(count) {
        None => (hits.len(), hits.last().copied()),
        Some(&refused) => {
            let found = hits.partition_point(|&key| key > refused);
            (found, (found > 0).then(|| refused + 1))
        }
    };
    let dir = |hits: usize| hits as f64 / known as f64;
    let point = |&far: &f64| {
        let (hits, key) = identified(allowed(far, unknown as f64) as usize);
        Identification { far, dir: dir(hits), threshold: key.map(|key| score_at(metric, key)) }
    };
    let mut steps: Vec<usize> = (0..POINTS)
        .map(|at| (unknown as f64).powf(at as f64 / (POINTS - 1) as f64).round() as usize)
        .collect();
    steps.dedup();
    Ok(OpenSet {
        dir_at_far: options.fars.iter().map(point).collect(),
        curve: steps
            .into_iter()
            .map(|count| (count as f64 / unknown as f64, dir(identified(count).0)))
            .collect(),
        known,
        unknown,
        gallery: searches.gallery,
        taken_out: searches.taken_out,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Matrix;
    use crate::eval::Side;
    use crate::random::{below, generator, unit};

    #[test]
    fn rates_are_those_of_loops_over_all_thresholds() {
        let mut random = generator(6, 0);
        let mut draw = |rows: usize, classes: usize| {
            let labels: Vec<u32> = (0..rows).map(|_| below(classes, &mut random) as u32).collect();
            // Few values: many ties.
            let values =
                labels.iter().map(|&label| label as f32 + (unit(&mut random) * 16.0).floor() as f32 / 4.0);
            (Matrix::new(rows, 1, values.collect()).unwrap(), labels)
        };
        let ((queries, query_labels), (gallery, labels)) = (draw(300, 30), draw(120, 20));
        let task = Task::split(Side::classes(&queries, &query_labels), Side::classes(&gallery, &labels));
        let fars = vec![0.0, 0.05, 0.2, 0.7, 1.0];
        let found =
            open_set(&task, Metric::Euclidean, &OpenSetOptions { fars: fars.clone(), seed: 0 }).unwrap();
        let distance = |query: usize, item: usize| (queries.row(query)[0] - gallery.row(item)[0]).abs();
        let nearest = |query: usize, own: bool| {
            (0..labels.len())
                .filter(|&item| (labels[item] == query_labels[query]) == own)
                .map(|item| distance(query, item))
                .fold(f32::INFINITY, f32::min)
        };
        let known: Vec<usize> = (0..300).filter(|&query| labels.contains(&query_labels[query])).collect();
        let unknown: Vec<usize> = (0..300).filter(|query| !known.contains(query)).collect();
        assert_eq!((found.known, found.unknown, found.taken_out), (known.len(), unknown.len(), 0));
        let rates = |threshold: f32| {
            let alarms = unknown.iter().filter(|&&query| nearest(query, false) < threshold).count();
            let hits = known.iter().filter(|&&query| {
                nearest(query, true) < threshold && nearest(query, true) < nearest(query, false)
            });
            (alarms as f64 / unknown.len() as f64, hits.count() as f64 / known.len() as f64)
        };
        for (far, point) in fars.iter().zip(&found.dir_at_far) {
            let thresholds = (0..400).map(|step| step as f32 / 4.0);
            let best = thresholds.map(rates).filter(|(alarms, _)| alarms <= far).map(|(_, dir)| dir);
            assert_eq!(point.dir, best.fold(0.0, f64::max), "{far}");
        }
        assert!(found.curve.is_sorted() && found.curve.last().unwrap().0 == 1.0);
    }

    #[test]
    fn a_rate_allows_all_of_its_alarms_also_where_its_product_is_rounded_down() {
        // 0.29 * 100 is 28.999999999999996; the known query is closer than the thirtieth unknown one.
        let distances: Vec<f32> = (1..=100u8).map(f32::from).chain([29.5]).collect();
        let labels: Vec<u32> = (1..=100).chain([0]).collect();
        let queries = Matrix::new(101, 1, distances).unwrap();
        let gallery = Matrix::new(1, 1, vec![0.0]).unwrap();
        let task = Task::split(Side::classes(&queries, &labels), Side::classes(&gallery, &[0]));
        let options = OpenSetOptions { fars: vec![0.28, 0.29], seed: 0 };
        let found = open_set(&task, Metric::Euclidean, &options).unwrap();
        assert_eq!((found.known, found.unknown), (1, 100));
        assert_eq!(found.dir_at_far.iter().map(|point| point.dir).collect::<Vec<_>>(), [0.0, 1.0]);
    }

    #[test]
    fn a_threshold_that_nothing_reaches_is_none_and_one_that_allows_every_alarm_has_the_last_hit() {
        // The unknown query is an item of the gallery; the known ones are 1 and 3 from theirs.
        let queries = Matrix::new(3, 1, vec![0.0, 1.0, 13.0]).unwrap();
        let gallery = Matrix::new(2, 1, vec![0.0, 10.0]).unwrap();
        let task = Task::split(Side::classes(&queries, &[2, 0, 1]), Side::classes(&gallery, &[0, 1]));
        let options = OpenSetOptions { fars: vec![0.0, 1.0], seed: 0 };
        let found = open_set(&task, Metric::Euclidean, &options).unwrap();
        let points: Vec<_> = found.dir_at_far.iter().map(|point| (point.dir, point.threshold)).collect();
        assert_eq!(points, [(0.0, None), (1.0, Some(3.0))]);
    }

    #[test]
    fn too_few_identities_are_refused() {
        let rows = Matrix::new(2, 1, vec![0.0, 1.0]).unwrap();
        let task = Task::every_row(Side::classes(&rows, &[0, 0]));
        let error = open_set(&task, Metric::Euclidean, &OpenSetOptions::default()).unwrap_err();
        assert!(error.to_string().contains("there are 2 and 0"), "{error}");
    }
}
