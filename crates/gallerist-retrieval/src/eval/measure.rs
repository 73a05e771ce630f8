//! The metrics by name. A new one is a file and a line in [`BUILT_IN`].

use std::any::Any;
use std::fmt;
use std::str::FromStr;
use std::sync::{PoisonError, RwLock};

use gallerist_util::registry::Taken;

use super::average_precision::{AveragePrecision, TrapezoidPrecision};
use super::cmc::Cmc;
use super::map_at_r::MapAtR;
use super::ndcg::{Gain, Ndcg};
use super::precision::Precision;
use super::precision_at_recall::PrecisionAtRecall;
use super::r_precision::RPrecision;
use super::rank_metric::{Cutoff, RankMetric};
use super::recall::Recall;
use super::reciprocal_rank::ReciprocalRank;
use super::relevant_ranks::RelevantRanks;
use crate::{Error, Result};

/// The metrics of this crate, in the order in which messages name them.
static BUILT_IN: &[&dyn RankMetric] = &[
    &Recall,
    &Precision,
    &MapAtR,
    &RPrecision,
    &AveragePrecision,
    &TrapezoidPrecision,
    &ReciprocalRank,
    &Ndcg(Gain::Linear),
    &Ndcg(Gain::Exponential),
    &Cmc,
    &PrecisionAtRecall,
];

/// The metrics that programs added.
static ADDED: RwLock<Vec<&'static dyn RankMetric>> = RwLock::new(Vec::new());

fn all() -> Vec<&'static dyn RankMetric> {
    let added = ADDED.read().unwrap_or_else(PoisonError::into_inner);
    BUILT_IN.iter().chain(added.iter()).copied().collect()
}

/// Whether two metrics are one value. Values without fields are equal.
fn is_same(a: &'static dyn RankMetric, b: &'static dyn RankMetric) -> bool {
    Any::type_id(a) == Any::type_id(b) && (size_of_val(a) == 0 || std::ptr::addr_eq(a, b))
}

/// A metric that is measured: a [`RankMetric`], with its K where it has one.
///
/// The text form is the name in reports: `recall@1`, `precision@1`, `map@r`, `r_precision`,
/// `map`, `map_trapezoid`, `mrr`, `ndcg`, `ndcg@10`, `ndcg_exp`, `ndcg_exp@10`, `cmc@1`, `precision_at_recall@50`.
///
/// ```
/// use gallerist_retrieval::eval::{Measure, Recall, RelevantRanks};
/// let measure: Measure = "recall@10".parse()?;
/// assert_eq!(measure, Measure::at(&Recall, 10));
/// assert_eq!(measure.of(&RelevantRanks::new(&[10])), 1.0);
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct Measure {
    metric: &'static dyn RankMetric,
    k: Option<usize>,
}

impl Measure {
    /// A metric at `k`, such as `recall@k`.
    pub const fn at(metric: &'static dyn RankMetric, k: usize) -> Self {
        Self { metric, k: Some(k) }
    }

    /// A metric of the whole list, such as `map`.
    pub const fn of_all(metric: &'static dyn RankMetric) -> Self {
        Self { metric, k: None }
    }

    /// Adds a metric, for the whole process. To add it twice has no effect.
    ///
    /// # Errors
    /// [`Taken`] when another metric has its name: one of another type, or another value of a type with fields. Metrics of one
    /// type with different fields need different names.
    pub fn register(metric: &'static dyn RankMetric) -> std::result::Result<(), Taken> {
        let mut added = ADDED.write().unwrap_or_else(PoisonError::into_inner);
        let mut all = BUILT_IN.iter().chain(added.iter());
        match all.find(|known| known.name() == metric.name()) {
            None => {
                added.push(metric);
                Ok(())
            }
            Some(known) if is_same(*known, metric) => Ok(()),
            Some(_) => Err(Taken { name: metric.name(), kind: "metric" }),
        }
    }

    /// The names of all metrics, with `K` for a number: those of this crate first.
    ///
    /// ```
    /// # use gallerist_retrieval::eval::Measure;
    /// assert_eq!(Measure::names()[..3], ["recall@K", "precision@K", "map@r"]);
    /// ```
    pub fn names() -> Vec<String> {
        let names = |metric: &'static dyn RankMetric| {
            let (plain, at_k) = (metric.name().to_owned(), format!("{}@K", metric.name()));
            match metric.cutoff() {
                Cutoff::Never => vec![plain],
                Cutoff::Optional => vec![plain, at_k],
                Cutoff::Always => vec![at_k],
            }
        };
        all().into_iter().flat_map(names).collect()
    }

    /// The value for one query; 0 where nothing is relevant.
    pub fn of(self, ranks: &RelevantRanks) -> f64 {
        self.metric.value(ranks, self.k)
    }

    /// Whether a query without any relevant item counts as 0 in the mean, or is left out of it.
    pub fn counts_queries_without_match(self) -> bool {
        self.metric.counts_queries_without_match()
    }

    /// How many places of a list determine the value, where not all of them do.
    pub(super) fn depth(self, largest_class: usize) -> Option<usize> {
        self.metric.depth(self.k, largest_class)
    }

    pub(super) fn check(self) -> Result<()> {
        let range = self.metric.range();
        match (self.metric.cutoff(), self.k) {
            (Cutoff::Optional | Cutoff::Always, Some(k)) if !range.values.contains(&k) => {
                Err(Error::Option { option: range.option, wanted: range.wanted, found: self.to_string() })
            }
            (Cutoff::Never, Some(_)) | (Cutoff::Always, None) => Err(Self::unknown(&self.to_string())),
            _ => Ok(()),
        }
    }

    fn unknown(name: &str) -> Error {
        Error::UnknownMetric { known: Self::names().join(", "), found: name.to_owned() }
    }
}

impl PartialEq for Measure {
    fn eq(&self, other: &Self) -> bool {
        (self.metric.name(), self.k) == (other.metric.name(), other.k)
    }
}

impl Eq for Measure {}

impl std::hash::Hash for Measure {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.metric.name(), self.k).hash(state);
    }
}

impl fmt::Debug for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Measure({self})")
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.metric.name())?;
        self.k.map_or(Ok(()), |k| write!(f, "@{k}"))
    }
}

impl FromStr for Measure {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        // A name may have an `@` of its own, as `map@r` has.
        let plain =
            |metric: &&'static dyn RankMetric| metric.name() == text && metric.cutoff() != Cutoff::Always;
        let at = |metric: &'static dyn RankMetric| {
            let k = text.strip_prefix(metric.name())?.strip_prefix('@')?.parse().ok()?;
            (metric.cutoff() != Cutoff::Never).then_some(Self::at(metric, k))
        };
        let metrics = all();
        let measure = metrics.iter().copied().find(plain).map(Self::of_all);
        let measure = measure.or_else(|| metrics.into_iter().find_map(at));
        let measure = measure.ok_or_else(|| Self::unknown(text))?;
        measure.check()?;
        Ok(measure)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_reads_back_as_its_measure() {
        for measure in [
            Measure::at(&Recall, 1000),
            Measure::at(&Precision, 1),
            Measure::of_all(&MapAtR),
            Measure::of_all(&RPrecision),
            Measure::of_all(&AveragePrecision),
            Measure::of_all(&TrapezoidPrecision),
            Measure::of_all(&ReciprocalRank),
            Measure::of_all(&Ndcg(Gain::Linear)),
            Measure::at(&Ndcg(Gain::Linear), 10),
            Measure::of_all(&Ndcg(Gain::Exponential)),
            Measure::at(&Ndcg(Gain::Exponential), 3),
            Measure::at(&Cmc, 5),
            Measure::at(&PrecisionAtRecall, 50),
        ] {
            assert_eq!(measure.to_string().parse::<Measure>().unwrap(), measure);
        }
        for name in Measure::names() {
            assert!(name.replace('K', "7").parse::<Measure>().is_ok(), "{name}");
        }
        for name in [
            "recall",
            "ndcg@0",
            "recall@",
            "recall@0",
            "recall@x",
            "cmc@-1",
            "MAP@R",
            "precision_at_recall@101",
            "",
        ] {
            assert!(name.parse::<Measure>().is_err(), "{name}");
        }
    }

    #[test]
    fn two_values_of_one_type_need_two_names() {
        struct Within(u32);

        impl RankMetric for Within {
            fn name(&self) -> &'static str {
                "within"
            }

            fn value(&self, ranks: &RelevantRanks, _: Option<usize>) -> f64 {
                f64::from(u8::from(ranks.iter().any(|rank| rank <= self.0)))
            }
        }

        static FIVE: Within = Within(5);
        static TEN: Within = Within(10);
        Measure::register(&FIVE).unwrap();
        Measure::register(&FIVE).unwrap();
        assert_eq!(Measure::register(&TEN), Err(Taken { name: "within", kind: "metric" }));
    }

    #[test]
    fn a_query_without_a_relevant_item_measures_zero() {
        let none = RelevantRanks::new(&[]);
        for name in [
            "recall@3",
            "precision@3",
            "map@r",
            "r_precision",
            "map",
            "map_trapezoid",
            "mrr",
            "ndcg",
            "ndcg_exp@3",
            "cmc@3",
            "precision_at_recall@3",
        ] {
            assert_eq!(name.parse::<Measure>().unwrap().of(&none), 0.0, "{name}");
        }
    }
}
