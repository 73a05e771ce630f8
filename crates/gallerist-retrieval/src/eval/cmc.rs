//! The cumulative matching characteristic.

use super::rank_metric::{Cutoff, RankMetric};
use super::recall::recall_at_k;
use super::relevant_ranks::RelevantRanks;

/// 1 when the first good match is among the first `k`, else 0.
///
/// The value is that of [`recall_at_k`]; the mean is not, because the
/// re-identification protocols leave queries without a good match out of it, as the common
/// scripts do.
pub fn cmc_at_k(ranks: &RelevantRanks, k: usize) -> f64 {
    recall_at_k(ranks, k)
}

/// `cmc@K`: [`cmc_at_k`].
#[derive(Clone, Copy, Debug)]
pub struct Cmc;

impl RankMetric for Cmc {
    fn name(&self) -> &'static str {
        "cmc"
    }

    fn cutoff(&self) -> Cutoff {
        Cutoff::Always
    }

    fn value(&self, ranks: &RelevantRanks, k: Option<usize>) -> f64 {
        cmc_at_k(ranks, k.unwrap_or(0))
    }

    fn depth(&self, k: Option<usize>, _largest_class: usize) -> Option<usize> {
        k
    }
}
