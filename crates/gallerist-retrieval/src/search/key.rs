//! The order of ranked lists as integers.

use super::best::{rank_key, unrank_key};
use super::metric::Metric;

/// A gallery row and its score as one integer, in the order of ranked lists: the greater key comes first. Keys of
/// equal scores differ by the row; the lower row comes first.
///
/// ```
/// use gallerist_retrieval::search::{Metric, RankKey};
///
/// let [near, far] = [(0.5, 7), (2.0, 3)].map(|(distance, row)| RankKey::new(distance, row, Metric::Euclidean));
/// assert!(near > far && near > RankKey::new(0.5, 8, Metric::Euclidean));
/// assert_eq!((near.score(Metric::Euclidean), near.row()), (0.5, 7));
/// assert_eq!(RankKey::from_bits(near.to_bits()), near);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RankKey(pub(crate) u64);

impl RankKey {
    /// The key of a row with a similarity, or a distance, as ranked lists show it.
    pub fn new(score: f32, row: u32, metric: Metric) -> Self {
        // A distance is 0 minus its score, and a score 0 minus its distance.
        Self(rank_key(metric.present(score), row))
    }

    /// The similarity or distance.
    pub fn score(self, metric: Metric) -> f32 {
        metric.present(unrank_key(self.0).0)
    }

    /// The gallery row.
    pub fn row(self) -> u32 {
        unrank_key(self.0).1
    }

    /// The key as an integer of the same order.
    pub fn to_bits(self) -> u64 {
        self.0
    }

    /// The key of [`to_bits`](Self::to_bits).
    pub fn from_bits(bits: u64) -> Self {
        Self(bits)
    }
}
