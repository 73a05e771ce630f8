//! Precision@K.

use super::RelevantRanks;

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
