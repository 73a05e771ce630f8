//! R-precision.

use super::rank_metric::RankMetric;
use super::relevant_ranks::RelevantRanks;

/// The share of the first R items that is relevant, R being the number of relevant items.
///
/// ```
/// use gallerist_retrieval::eval::{RelevantRanks, r_precision};
/// // R = 3, and two of the relevant items are among the first three.
/// assert_eq!(r_precision(&RelevantRanks::new(&[1, 3, 9])), 2.0 / 3.0);
/// ```
pub fn r_precision(ranks: &RelevantRanks) -> f64 {
    match ranks.relevant() {
        0 => 0.0,
        relevant => ranks.hits_within(relevant) as f64 / relevant as f64,
    }
}

/// `r_precision`: [`r_precision`].
#[derive(Clone, Copy, Debug)]
pub struct RPrecision;

impl RankMetric for RPrecision {
    fn name(&self) -> &'static str {
        "r_precision"
    }

    fn value(&self, ranks: &RelevantRanks, _k: Option<usize>) -> f64 {
        r_precision(ranks)
    }

    fn depth(&self, _k: Option<usize>, largest_class: usize) -> Option<usize> {
        Some(largest_class)
    }
}
