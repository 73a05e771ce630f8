//! Precision@K.

use super::rank_metric::{Cutoff, RankMetric};
use super::relevant_ranks::RelevantRanks;

/// The share of the first `k` items that is relevant. A list shorter than `k` is not excused:
/// the share is always of `k`.
///
/// ```
/// use gallerist_retrieval::eval::{RelevantRanks, precision_at_k};
/// let ranks = RelevantRanks::new(&[1, 4]);
/// assert_eq!(precision_at_k(&ranks, 4), 0.5);
/// ```
pub fn precision_at_k(ranks: &RelevantRanks, k: usize) -> f64 {
    if k == 0 { 0.0 } else { ranks.hits_within(k) as f64 / k as f64 }
}

/// `precision@K`: [`precision_at_k`].
#[derive(Clone, Copy, Debug)]
pub struct Precision;

impl RankMetric for Precision {
    fn name(&self) -> &'static str {
        "precision"
    }

    fn cutoff(&self) -> Cutoff {
        Cutoff::Always
    }

    fn value(&self, ranks: &RelevantRanks, k: Option<usize>) -> f64 {
        precision_at_k(ranks, k.unwrap_or(0))
    }

    fn counts_queries_without_match(&self) -> bool {
        true
    }

    fn depth(&self, k: Option<usize>, _largest_class: usize) -> Option<usize> {
        k
    }
}
