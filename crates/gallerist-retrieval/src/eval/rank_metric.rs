//! What a retrieval metric is.

use std::any::Any;
use std::ops::RangeInclusive;

use super::relevant_ranks::RelevantRanks;

/// A retrieval metric: one number per query, computed from the ranks of its relevant items. The
/// reported value is the mean over the queries.
///
/// The built-in metrics implement it, one in each file of this module. A program adds a metric of its
/// own with [`Measure::register`](super::Measure::register); its name then works wherever a metric is
/// named: in `[evaluation] metrics` of a run file, after `--metrics`, in `str::parse`.
///
/// ```
/// use gallerist_retrieval::{Matrix, eval::{EvalOptions, Measure, RankMetric, RelevantRanks, evaluate}};
///
/// /// The best possible rank of the last relevant item, divided by its rank.
/// struct LastRank;
///
/// impl RankMetric for LastRank {
///     fn name(&self) -> &'static str {
///         "last_rank"
///     }
///
///     fn value(&self, ranks: &RelevantRanks, _k: Option<usize>) -> f64 {
///         ranks.iter().last().map_or(0.0, |rank| ranks.relevant() as f64 / f64::from(rank))
///     }
/// }
///
/// Measure::register(&LastRank)?;
/// let rows = Matrix::new(3, 1, vec![0.0, 0.1, 1.0])?;
/// let options = EvalOptions { measures: vec!["last_rank".parse()?], ..EvalOptions::default() };
/// let found = evaluate(&rows, &[0, 1, 0], &options)?;
/// assert_eq!(found.metrics["last_rank"], 0.5);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait RankMetric: Any + Send + Sync {
    /// The name, without `@K`: lower case, no two metrics have the same.
    fn name(&self) -> &'static str;

    /// Whether the name is followed by `@` and a number K. By default it is not.
    fn cutoff(&self) -> Cutoff {
        Cutoff::Never
    }

    /// The value for one query, larger is better; 0 where nothing is relevant. `k` is the number after
    /// `@`, where there is one; [`range`](Self::range) has it.
    fn value(&self, ranks: &RelevantRanks, k: Option<usize>) -> f64;

    /// Whether a query without any relevant item counts with its [value](Self::value) in the mean; by
    /// default it is left out.
    fn counts_queries_without_match(&self) -> bool {
        false
    }

    /// How many places of a list determine the value; `None`, the default, for all. No query has more
    /// than `largest_class` relevant items. Lists of an index are requested up to this length.
    fn depth(&self, k: Option<usize>, largest_class: usize) -> Option<usize> {
        let _ = (k, largest_class);
        None
    }

    /// The values that K can have: by default 1 and more.
    fn range(&self) -> Range {
        Range { option: "the K of a metric", wanted: "at least 1", values: 1..=usize::MAX }
    }
}

/// Whether the name of a metric is followed by `@` and a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cutoff {
    /// As in `map`.
    Never,
    /// As in `ndcg` and `ndcg@10`.
    Optional,
    /// As in `recall@10`.
    Always,
}

/// The values that the number after `@` can have, with the words of an error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// What the number is, such as `the K of a metric`.
    pub option: &'static str,
    /// The values, such as `at least 1`.
    pub wanted: &'static str,
    /// The values.
    pub values: RangeInclusive<usize>,
}
