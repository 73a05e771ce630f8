//! Normalised discounted cumulative gain.

use super::RelevantRanks;

/// `DCG / ideal DCG` over the whole ranking, with `DCG = sum over the relevant items of
/// 1 / log2(1 + rank)`; the ideal ranking has them at 1..R.
///
/// Source: Järvelin, Kekäläinen: Cumulated Gain-Based Evaluation of IR Techniques, 2002, with the
/// discount that is common today.
///
/// ```
/// use gallerist_retrieval::eval::{RelevantRanks, ndcg};
/// assert_eq!(ndcg(&RelevantRanks::new(&[1, 2])), 1.0);
/// // One relevant item at rank 3: 1 / log2(4).
/// assert_eq!(ndcg(&RelevantRanks::new(&[3])), 0.5);
/// ```
pub fn ndcg(ranks: &RelevantRanks) -> f64 {
    if ranks.relevant() == 0 {
        return 0.0;
    }
    let gain = |rank: u32| (1.0 + f64::from(rank)).log2().recip();
    let ideal: f64 = (1..).take(ranks.relevant()).map(gain).sum();
    ranks.iter().map(gain).sum::<f64>() / ideal
}
