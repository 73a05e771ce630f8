//! What the order of items exactly as close can change.
//!
//! Items with equal scores have the order of their indices, which says nothing about the embedding. Another
//! order permutes the items of one score among the same ranks, and nothing else. Every measure takes its
//! highest value where, of items of one score, the relevant ones come first (the higher grades before the
//! lower), and its lowest where they come last (the lower grades first). So two more evaluations of a tied
//! query give the bounds, exactly:
//!
//! - Recall@K, CMC@K and the reciprocal rank depend on the first relevant rank and fall with it.
//!   Precision@K and R-precision count ranks up to a limit. All ranks are lowest in the one order and highest
//!   in the other, for every place i of the i-th relevant item at once.
//! - Average precision (`map`, `map@r`, `map_trapezoid`) sums a term for the i-th relevant item that falls
//!   with its rank: i / rank; the same, and 0 beyond R; the mean of (i - 1) / (rank - 1) and i / rank, the
//!   first of which is 1 at rank 1. Precision at a recall is the largest of the terms i / rank from some i on.
//! - NDCG sums gain times a discount that does not rise with the rank (0 beyond K); the ideal sum is the same
//!   for every order. Within the ranks of one score the sum is largest where the gains fall and smallest
//!   where they rise (the rearrangement inequality), an irrelevant item having the gain 0.
//!
//! A mean over queries is lowest where each of them is. Rounding keeps the order of the terms, so the bounds
//! hold for the computed values, too.

use serde::{Deserialize, Serialize};

use super::measure::Measure;
use super::metrics::Metrics;
use super::query_values::{QueryValues, check_value};
use super::relevant_ranks::RelevantRanks;
use crate::Result;

/// The lowest and the highest value of a metric over all orders of items exactly as close.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TieBounds {
    /// Of items exactly as close the relevant ones come last.
    pub low: f64,
    /// They come first.
    pub high: f64,
}

impl TieBounds {
    /// The largest difference that is not worth a note: five units of the last digit that tables show.
    pub const NEGLIGIBLE: f64 = 0.0005;

    /// Whether the evaluation has a note about them: the bounds differ by more than [`NEGLIGIBLE`](Self::NEGLIGIBLE).
    pub fn matter(self) -> bool {
        self.high - self.low > Self::NEGLIGIBLE
    }
}

/// The values of one query at the two extreme orders of its ties.
#[derive(Clone, Debug)]
pub(super) struct Extremes {
    query: usize,
    low: Vec<f64>,
    high: Vec<f64>,
}

impl Extremes {
    /// Refuses a value that is NaN or infinite.
    pub(super) fn check_finite(&self, measures: &[Measure]) -> Result<()> {
        let values = self.low.iter().chain(&self.high);
        measures.iter().cycle().zip(values).try_for_each(|(of, &value)| check_value(of, self.query, value))
    }

    /// `values` are those of the order of the indices, `best` and `worst` the ranks at the extreme ones. Nothing
    /// where no value depends on the order.
    pub(super) fn of(
        query: usize,
        values: &[f64],
        (best, worst): (RelevantRanks, RelevantRanks),
        measure: impl Fn(&RelevantRanks, &mut [f64]),
    ) -> Option<Self> {
        let (mut low, mut high) = (vec![0.0; values.len()], vec![0.0; values.len()]);
        measure(&worst, &mut low);
        measure(&best, &mut high);
        // NDCG sums the gains of another order of grades: its last digit may differ.
        low.iter_mut().zip(values).for_each(|(low, &value)| *low = low.min(value));
        high.iter_mut().zip(values).for_each(|(high, &value)| *high = high.max(value));
        (low != high).then_some(Self { query, low, high })
    }
}

/// The bounds of the metrics that depend on the order of ties.
pub(super) fn bounds(values: &QueryValues, extremes: &[Extremes]) -> Metrics<TieBounds> {
    let mut bounds = Metrics::default();
    if extremes.is_empty() {
        return bounds;
    }
    let width = values.measures.len();
    let replaced = |of: fn(&Extremes) -> &[f64]| {
        let mut all = values.values.clone();
        extremes.iter().for_each(|one| all[one.query * width..][..width].copy_from_slice(of(one)));
        QueryValues { values: all, ..values.clone() }
    };
    let (lowest, highest) = (replaced(|one| &one.low), replaced(|one| &one.high));
    for (at, measure) in values.measures.iter().enumerate() {
        let (low, high) = (lowest.mean(at), highest.mean(at));
        if low != high {
            bounds.push(measure.to_string(), TieBounds { low, high });
        }
    }
    bounds
}

/// The note about ties: the metrics with bounds that matter.
pub(super) fn note(bounds: &Metrics<TieBounds>, ties: usize, queries: usize) -> Option<String> {
    let mut of: Vec<String> = Vec::new();
    for (name, range) in bounds.iter().filter(|(_, range)| range.matter()) {
        let is = if of.is_empty() { " is" } else { "" };
        of.push(format!("{name}{is} between {:.4} and {:.4}", range.low, range.high));
    }
    let last = of.pop()?;
    let all = if of.is_empty() { last } else { format!("{} and {last}", of.join(", ")) };
    Some(format!(
        "{all} by the order of images exactly as close ({ties} of {queries} queries have an irrelevant one \
         exactly as close as a relevant one)"
    ))
}
