//! How far a mean could be from where another draw of queries or classes would have put it.

use gallerist_util::interrupt;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::metrics::Metrics;
use super::query_values::QueryValues;
use crate::random::{below, generator};
use crate::{Error, Result};

gallerist_util::named_values! {
    /// The unit of resampling.
    #[derive(Default)]
    pub enum Over {
        /// Single queries: the uncertainty of the mean for these classes.
        #[default]
        Queries = "queries", "Single queries";
        /// Classes with all their queries (the cluster bootstrap): the uncertainty for classes like these. Queries of
        /// one class are similar, so these intervals are wider. Use them to compare two methods.
        Classes = "classes", "Classes with all their queries";
    }
}

/// Percentile bootstrap intervals (Efron, Tibshirani: An Introduction to the Bootstrap, 1993, 13.3).
///
/// Queries, or classes, are drawn with replacement as often as there are; the mean of each such
/// resample is one value, and the interval contains the middle 95 % of them. The gallery is not resampled.
/// A resample in which no query counts for a measure gives no value for it. Percentiles between two
/// values are interpolated linearly.
///
/// ```
/// use gallerist_retrieval::{Matrix, eval::{Bootstrap, EvalOptions, Side, Task}};
///
/// let rows = Matrix::new(4, 1, vec![1.0, 1.5, 3.0, -2.0])?;
/// let classes = [0, 0, 0, 1];
/// let measured = Task::every_row(Side::classes(&rows, &classes)).measure(&EvalOptions::default())?;
/// let intervals = Bootstrap { resamples: 200, ..Bootstrap::default() }.run(&measured.queries, &classes)?;
/// let recall = intervals.metrics.get("recall@1").unwrap();
/// assert!(recall.low < 0.75 && recall.high == 1.0);
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Bootstrap {
    /// Resamples; 1000 by default.
    pub resamples: usize,
    /// What is drawn.
    pub over: Over,
    /// Seed of the resamples.
    pub seed: u64,
}

impl Default for Bootstrap {
    fn default() -> Self {
        Self { resamples: 1000, over: Over::Queries, seed: 0 }
    }
}

/// The middle 95 % of a metric's resampled values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The 2.5th percentile.
    pub low: f64,
    /// The 97.5th percentile.
    pub high: f64,
}

/// An [`Interval`] for each metric, and how it was found.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Intervals {
    /// The share of resamples inside: 0.95.
    pub level: f64,
    /// The bootstrap that was run.
    #[serde(flatten)]
    pub bootstrap: Bootstrap,
    /// What was drawn from: queries or classes.
    pub units: usize,
    /// The interval of each metric.
    pub metrics: Metrics<Interval>,
}

/// The largest number of resamples.
const MAX_RESAMPLES: usize = 1_000_000;

impl Bootstrap {
    /// Intervals for the means of `values`; `classes` has the class of each query. The same for any
    /// number of threads.
    ///
    /// # Errors
    /// [`Error::Option`] for no resamples or more than a million, [`Error::Count`] when there is not one class per query.
    pub fn run(&self, values: &QueryValues, classes: &[u32]) -> Result<Intervals> {
        if self.resamples == 0 {
            let found = "0".to_owned();
            return Err(Error::Option { option: "the number of resamples", wanted: "at least 1", found });
        }
        if self.resamples > MAX_RESAMPLES {
            let (option, found) = ("the number of resamples", self.resamples.to_string());
            return Err(Error::Option { option, wanted: "at most 1000000", found });
        }
        if classes.len() != values.len() {
            let (wanted, found) = (values.len(), classes.len());
            return Err(Error::Count { what: "classes", rows: "queries", wanted, found });
        }
        let measures = values.measures().len();
        let units = self.units(values, classes);
        let resampled: Vec<Vec<Option<f64>>> = (0..self.resamples)
            .into_par_iter()
            .map(|resample| {
                interrupt::point();
                let mut random = generator(self.seed, resample as u64);
                let mut sums = vec![(0.0, 0u64); measures];
                for _ in 0..units.len() {
                    let drawn = &units[below(units.len(), &mut random)];
                    for ((sum, count), (more, counted)) in sums.iter_mut().zip(drawn) {
                        *sum += more;
                        *count += counted;
                    }
                }
                sums.into_iter().map(|(sum, count)| (count > 0).then(|| sum / count as f64)).collect()
            })
            .collect();
        let interval = |at: usize| {
            let mut of: Vec<f64> = resampled.iter().filter_map(|values| values[at]).collect();
            of.sort_by(f64::total_cmp);
            Interval { low: percentile(&of, 0.025), high: percentile(&of, 0.975) }
        };
        let names = values.measures().iter().map(ToString::to_string);
        let mut metrics = Metrics::default();
        names.enumerate().for_each(|(at, name)| metrics.push(name, interval(at)));
        Ok(Intervals { level: 0.95, bootstrap: *self, units: units.len(), metrics })
    }

    /// For each query or class, the sum and number of the values that it adds to each measure.
    fn units(&self, values: &QueryValues, classes: &[u32]) -> Vec<Vec<(f64, u64)>> {
        let mut order: Vec<usize> = (0..values.len()).collect();
        if self.over == Over::Classes {
            order.sort_by_key(|&query| classes[query]);
        }
        let together = |&a: &usize, &b: &usize| self.over == Over::Classes && classes[a] == classes[b];
        let sums = |queries: &[usize]| {
            (0..values.measures().len())
                .map(|at| {
                    let counted = queries.iter().filter_map(|&query| values.counted(query, at));
                    counted.fold((0.0, 0), |(sum, count), value| (sum + value, count + 1))
                })
                .collect()
        };
        order.chunk_by(together).map(sums).collect()
    }
}

/// The quantile `share` of the sorted `values`, interpolated; 0 if there are none.
fn percentile(values: &[f64], share: f64) -> f64 {
    let Some(last) = values.len().checked_sub(1) else { return 0.0 };
    let place = share * last as f64;
    let (below, above) = (values[place.floor() as usize], values[place.ceil() as usize]);
    below + (above - below) * place.fract()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::{MapAtR, Measure, Recall};

    /// Recall@1 and MAP@R of some queries; a query of value NaN has no match.
    fn values(of: &[f64]) -> QueryValues {
        QueryValues {
            measures: vec![Measure::at(&Recall, 1), Measure::of_all(&MapAtR)],
            values: of.iter().flat_map(|&value| [if value.is_nan() { 0.0 } else { value }; 2]).collect(),
            has_match: of.iter().map(|value| !value.is_nan()).collect(),
        }
    }

    #[test]
    fn percentiles_are_interpolated_between_the_sorted_values() {
        assert_eq!(percentile(&[], 0.5), 0.0);
        assert_eq!(percentile(&[3.0], 0.975), 3.0);
        assert_eq!(percentile(&[0.0, 10.0], 0.025), 0.25);
        assert_eq!(percentile(&[1.0, 2.0, 3.0, 4.0, 5.0], 0.5), 3.0);
    }

    #[test]
    fn intervals_over_queries_are_those_of_the_normal_distribution_where_it_holds() {
        // 2,000 queries, 70 % hits: a standard error of sqrt(.21 / 2000) = .01025.
        let hits: Vec<f64> = (0..2000).map(|i| f64::from(i % 10 < 7)).collect();
        let classes: Vec<u32> = (0..2000).collect();
        let found =
            Bootstrap { resamples: 4000, ..Bootstrap::default() }.run(&values(&hits), &classes).unwrap();
        let interval = found.metrics.get("recall@1").unwrap();
        assert!((interval.low - (0.7 - 1.96 * 0.01025)).abs() < 0.0015, "{interval:?}");
        assert!((interval.high - (0.7 + 1.96 * 0.01025)).abs() < 0.0015, "{interval:?}");
        assert_eq!(found.units, 2000);
    }

    #[test]
    fn queries_of_a_class_that_are_all_alike_make_wide_intervals_over_classes() {
        // 50 classes of 40 queries, every class right or wrong as a whole: 50 draws, not 2,000.
        let hits: Vec<f64> = (0..2000).map(|i| f64::from(i / 40 % 2 == 0)).collect();
        let classes: Vec<u32> = (0..2000).map(|i| i / 40).collect();
        let width = |over| {
            let bootstrap = Bootstrap { resamples: 2000, over, seed: 3 };
            let interval = bootstrap.run(&values(&hits), &classes).unwrap().metrics.get("map@r").unwrap();
            interval.high - interval.low
        };
        let ratio = width(Over::Classes) / width(Over::Queries);
        // The square root of 40 is 6.3.
        assert!((5.5..7.2).contains(&ratio), "{ratio}");
    }

    #[test]
    fn queries_without_a_match_count_in_recall_alone() {
        let found = Bootstrap::default().run(&values(&[1.0, 1.0, f64::NAN]), &[0, 0, 1]).unwrap();
        assert_eq!(found.metrics.get("map@r").unwrap(), Interval { low: 1.0, high: 1.0 });
        assert!(found.metrics.get("recall@1").unwrap().low < 1.0);
        let none = Bootstrap::default().run(&values(&[f64::NAN]), &[0]).unwrap();
        assert_eq!(none.metrics.get("map@r").unwrap(), Interval { low: 0.0, high: 0.0 });
    }

    #[test]
    fn a_seed_gives_the_same_intervals_for_any_number_of_threads_and_they_survive_json() {
        let of: Vec<f64> = (0..500).map(|i| f64::from(i * 7919 % 101) / 101.0).collect();
        let classes: Vec<u32> = (0..500).map(|i| i % 37).collect();
        let run = |threads, seed| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let bootstrap = Bootstrap { resamples: 300, over: Over::Classes, seed };
            pool.install(|| bootstrap.run(&values(&of), &classes).unwrap())
        };
        let one = run(1, 5);
        assert_eq!(one, run(4, 5));
        assert_ne!(one, run(1, 6));
        assert_eq!(one.units, 37);
        let json = serde_json::to_string(&one).unwrap();
        assert!(json.contains("\"metrics\":{\"recall@1\":{\"low\":"), "{json}");
        let read = serde_json::from_str::<Intervals>(&json).unwrap();
        assert_eq!((read.bootstrap, read.units), (one.bootstrap, 37));
        assert!((read.metrics["map@r"].low - one.metrics["map@r"].low).abs() < 1e-12);
        assert!(Bootstrap { resamples: 0, ..Bootstrap::default() }.run(&values(&of), &classes).is_err());
        assert!(Bootstrap::default().run(&values(&of), &[0]).is_err());
    }
}
