//! Recall@K as metric learning uses the word: a query is a hit or a miss.

use super::rank_metric::{Cutoff, RankMetric};
use super::relevant_ranks::RelevantRanks;

/// 1 when a relevant item is among the first `k`, else 0.
///
/// Its mean over the queries is the share of queries that succeed (Jégou et al., Product
/// Quantization for Nearest Neighbor Search, 2011; Oh Song et al., 2016). It is not the share of
/// relevant items found.
///
/// ```
/// use gallerist_retrieval::eval::{RelevantRanks, recall_at_k};
/// let ranks = RelevantRanks::new(&[3, 4]);
/// assert_eq!(recall_at_k(&ranks, 2), 0.0);
/// assert_eq!(recall_at_k(&ranks, 3), 1.0);
/// ```
pub fn recall_at_k(ranks: &RelevantRanks, k: usize) -> f64 {
    f64::from(ranks.first().is_some_and(|first| first as usize <= k))
}

/// `recall@K`: [`recall_at_k`].
#[derive(Clone, Copy, Debug)]
pub struct Recall;

impl RankMetric for Recall {
    fn name(&self) -> &'static str {
        "recall"
    }

    fn cutoff(&self) -> Cutoff {
        Cutoff::Always
    }

    fn value(&self, ranks: &RelevantRanks, k: Option<usize>) -> f64 {
        recall_at_k(ranks, k.unwrap_or(0))
    }

    fn counts_queries_without_match(&self) -> bool {
        true
    }

    fn depth(&self, k: Option<usize>, _largest_class: usize) -> Option<usize> {
        k
    }
}
