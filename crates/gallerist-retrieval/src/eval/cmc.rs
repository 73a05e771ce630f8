//! The cumulative matching characteristic.

use super::RelevantRanks;

/// 1 when the first good match is among the first `k`, else 0.
///
/// The value is that of [`recall_at_k`](super::recall_at_k); the mean is not, because the
/// re-identification protocols leave queries without a good match out of it, as the common
/// scripts do.
pub fn cmc_at_k(ranks: &RelevantRanks, k: usize) -> f64 {
    super::recall_at_k(ranks, k)
}
