//! Average precision over the whole ranking, in its two forms.

use super::rank_metric::RankMetric;
use super::relevant_ranks::RelevantRanks;

/// The precision at each relevant item, averaged over the relevant items: the form `sum`.
///
/// ```
/// use gallerist_retrieval::eval::{RelevantRanks, average_precision};
/// let value = average_precision(&RelevantRanks::new(&[1, 3, 9]));
/// assert!((value - (1.0 / 1.0 + 2.0 / 3.0 + 3.0 / 9.0) / 3.0).abs() < 1e-15);
/// ```
pub fn average_precision(ranks: &RelevantRanks) -> f64 {
    if ranks.relevant() == 0 {
        return 0.0;
    }
    ranks.precisions().sum::<f64>() / ranks.relevant() as f64
}

/// The area under the precision-recall curve by trapezoids: each recall step of 1/R times the
/// mean of the precision before and after the item. The precision before the first item is 1.
///
/// Source: `compute_AP.m` of the Market-1501 evaluation script. It differs from
/// [`average_precision`]: an only relevant item at rank 2 gives 1/4 here and 1/2 there.
///
/// ```
/// use gallerist_retrieval::eval::{RelevantRanks, average_precision_trapezoid};
/// // Before rank 2: precision 0 of 1; after it: 1 of 2.
/// assert_eq!(average_precision_trapezoid(&RelevantRanks::new(&[2])), 0.25);
/// // Rank 1: (1 + 1) / 2. Rank 3: (1/2 + 2/3) / 2.
/// let value = average_precision_trapezoid(&RelevantRanks::new(&[1, 3]));
/// assert!((value - (1.0 + 7.0 / 12.0) / 2.0).abs() < 1e-15);
/// ```
pub fn average_precision_trapezoid(ranks: &RelevantRanks) -> f64 {
    if ranks.relevant() == 0 {
        return 0.0;
    }
    let step = |(rank, hit): (u32, u32)| {
        let before = if rank == 1 { 1.0 } else { f64::from(hit - 1) / f64::from(rank - 1) };
        (before + f64::from(hit) / f64::from(rank)) / 2.0
    };
    ranks.iter().zip(1..).map(step).sum::<f64>() / ranks.relevant() as f64
}

/// `map`: [`average_precision`], the form called `sum`.
#[derive(Clone, Copy, Debug)]
pub struct AveragePrecision;

impl RankMetric for AveragePrecision {
    fn name(&self) -> &'static str {
        "map"
    }

    fn value(&self, ranks: &RelevantRanks, _k: Option<usize>) -> f64 {
        average_precision(ranks)
    }
}

/// `map_trapezoid`: [`average_precision_trapezoid`], that of the Market-1501 script.
#[derive(Clone, Copy, Debug)]
pub struct TrapezoidPrecision;

impl RankMetric for TrapezoidPrecision {
    fn name(&self) -> &'static str {
        "map_trapezoid"
    }

    fn value(&self, ranks: &RelevantRanks, _k: Option<usize>) -> f64 {
        average_precision_trapezoid(ranks)
    }
}
