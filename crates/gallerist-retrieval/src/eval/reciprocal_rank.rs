//! The reciprocal rank, whose mean is the MRR.

use super::rank_metric::RankMetric;
use super::relevant_ranks::RelevantRanks;

/// 1 / rank of the first relevant item, or 0 where there is none.
///
/// ```
/// use gallerist_retrieval::eval::{RelevantRanks, reciprocal_rank};
/// assert_eq!(reciprocal_rank(&RelevantRanks::new(&[4, 5])), 0.25);
/// ```
pub fn reciprocal_rank(ranks: &RelevantRanks) -> f64 {
    ranks.first().map_or(0.0, |first| 1.0 / f64::from(first))
}

/// `mrr`: [`reciprocal_rank`].
#[derive(Clone, Copy, Debug)]
pub struct ReciprocalRank;

impl RankMetric for ReciprocalRank {
    fn name(&self) -> &'static str {
        "mrr"
    }

    fn value(&self, ranks: &RelevantRanks, _k: Option<usize>) -> f64 {
        reciprocal_rank(ranks)
    }

    fn counts_queries_without_match(&self) -> bool {
        true
    }
}
