//! Precision at a level of recall.

use super::rank_metric::{Cutoff, Range, RankMetric};
use super::relevant_ranks::RelevantRanks;

/// The interpolated precision at a recall of `percent` per cent: the highest precision at any rank by
/// which at least that share of the relevant items has been found. Its means over the queries at
/// ascending levels are the precision-recall curve.
///
/// Source: Manning, Raghavan and Schütze, Introduction to Information Retrieval, section 8.4.
///
/// ```
/// use gallerist_retrieval::eval::{RelevantRanks, precision_at_recall};
/// // Precision 1/2, 2/3 and 3/9 at the three items.
/// let ranks = RelevantRanks::new(&[2, 3, 9]);
/// assert_eq!(precision_at_recall(&ranks, 10), 2.0 / 3.0);
/// assert_eq!(precision_at_recall(&ranks, 66), 2.0 / 3.0);
/// assert_eq!(precision_at_recall(&ranks, 67), 3.0 / 9.0);
/// ```
pub fn precision_at_recall(ranks: &RelevantRanks, percent: usize) -> f64 {
    let wanted = (ranks.relevant() * percent).div_ceil(100).max(1);
    ranks.precisions().skip(wanted - 1).fold(0.0, f64::max)
}

/// `precision_at_recall@K`: [`precision_at_recall`] at a recall of K per cent.
#[derive(Clone, Copy, Debug)]
pub struct PrecisionAtRecall;

impl RankMetric for PrecisionAtRecall {
    fn name(&self) -> &'static str {
        "precision_at_recall"
    }

    fn cutoff(&self) -> Cutoff {
        Cutoff::Always
    }

    fn value(&self, ranks: &RelevantRanks, k: Option<usize>) -> f64 {
        precision_at_recall(ranks, k.unwrap_or(0))
    }

    fn range(&self) -> Range {
        Range { option: "the recall of a metric, in per cent,", wanted: "from 1 to 100", values: 1..=100 }
    }
}
