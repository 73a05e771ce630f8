//! Mean average precision at R.

use super::rank_metric::RankMetric;
use super::relevant_ranks::RelevantRanks;

/// `(1/R) * sum over i = 1..R of P(i) rel(i)`: P(i) is the precision among the first i items,
/// rel(i) is 1 when item i is relevant, R is the number of relevant items.
///
/// Source: Musgrave, Belongie, Lim: A Metric Learning Reality Check, 2020, equation 3.
///
/// ```
/// use gallerist_retrieval::eval::{RelevantRanks, map_at_r};
/// // R = 3: hits at 1 and 3, so (1/1 + 2/3) / 3. The hit at 9 lies beyond R.
/// let value = map_at_r(&RelevantRanks::new(&[1, 3, 9]));
/// assert!((value - 5.0 / 9.0).abs() < 1e-15);
/// ```
pub fn map_at_r(ranks: &RelevantRanks) -> f64 {
    let relevant = ranks.relevant();
    if relevant == 0 {
        return 0.0;
    }
    ranks.precisions().take(ranks.hits_within(relevant)).sum::<f64>() / relevant as f64
}

/// `map@r`: [`map_at_r`].
#[derive(Clone, Copy, Debug)]
pub struct MapAtR;

impl RankMetric for MapAtR {
    fn name(&self) -> &'static str {
        "map@r"
    }

    fn value(&self, ranks: &RelevantRanks, _k: Option<usize>) -> f64 {
        map_at_r(ranks)
    }

    fn depth(&self, _k: Option<usize>, largest_class: usize) -> Option<usize> {
        Some(largest_class)
    }
}
