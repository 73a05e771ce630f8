//! Normalised discounted cumulative gain.

use super::rank_metric::{Cutoff, RankMetric};
use super::relevant_ranks::RelevantRanks;

/// What an item of grade g is worth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Gain {
    /// g itself (Järvelin, Kekäläinen, 2002).
    Linear,
    /// `2^g - 1` (Burges et al., Learning to Rank using Gradient Descent, 2005). Grades above 512
    /// count as 512, whose gain f64 still holds.
    Exponential,
}

impl Gain {
    fn of(self, grade: u32) -> f64 {
        match self {
            Self::Linear => f64::from(grade),
            Self::Exponential => f64::from(grade.min(512)).exp2() - 1.0,
        }
    }
}

/// `DCG / ideal DCG` over the whole ranking, with `DCG = sum over the relevant items of
/// grade / log2(1 + rank)`; the ideal ranking has the relevant items first, the highest grades
/// before the others.
///
/// Where relevance has no grades each is 1. Source: Järvelin, Kekäläinen: Cumulated Gain-Based
/// Evaluation of IR Techniques, 2002, with the discount that is common today.
///
/// ```
/// use gallerist_retrieval::eval::{RelevantRanks, ndcg};
/// assert_eq!(ndcg(&RelevantRanks::new(&[1, 2])), 1.0);
/// // One relevant item at rank 3: 1 / log2(4).
/// assert_eq!(ndcg(&RelevantRanks::new(&[3])), 0.5);
/// // Grade 1 before grade 3: (1 + 3 / log2 3) / (3 + 1 / log2 3).
/// let d = 1.0 / 3f64.log2();
/// let value = ndcg(&RelevantRanks::graded(&[1, 2], &[1, 3]));
/// assert!((value - (1.0 + 3.0 * d) / (3.0 + d)).abs() < 1e-15);
/// ```
pub fn ndcg(ranks: &RelevantRanks) -> f64 {
    ndcg_at(ranks, Gain::Linear, None)
}

/// [`ndcg`] with another gain, or cut off after rank `k`: both the ranking and the ideal one.
///
/// ```
/// use gallerist_retrieval::eval::{Gain, RelevantRanks, ndcg_at};
/// let ranks = RelevantRanks::graded(&[2, 5], &[2, 3]);
/// // Gains 3 and 7; within 2 places grade 2 at rank 2, ideally grades 3 and 2.
/// let d = 1.0 / 3f64.log2();
/// let value = ndcg_at(&ranks, Gain::Exponential, Some(2));
/// assert!((value - 3.0 * d / (7.0 + 3.0 * d)).abs() < 1e-15);
/// ```
pub fn ndcg_at(ranks: &RelevantRanks, gain: Gain, k: Option<usize>) -> f64 {
    let k = k.unwrap_or(usize::MAX);
    if ranks.relevant() == 0 || k == 0 {
        return 0.0;
    }
    let discounted = |rank: u32, grade: u32| gain.of(grade) / (1.0 + f64::from(rank)).log2();
    let mut grades: Vec<u32> = ranks.grades().collect();
    grades.sort_unstable_by(|a, b| b.cmp(a));
    let ideal: f64 = (1..).zip(grades).take(k).map(|(rank, grade)| discounted(rank, grade)).sum();
    let found = ranks.iter().zip(ranks.grades()).take(ranks.hits_within(k));
    found.map(|(rank, grade)| discounted(rank, grade)).sum::<f64>() / ideal
}

/// `ndcg` and `ndcg_exp`, each also with `@K`: [`ndcg_at`] with this gain.
#[derive(Clone, Copy, Debug)]
pub struct Ndcg(pub Gain);

impl RankMetric for Ndcg {
    fn name(&self) -> &'static str {
        match self.0 {
            Gain::Linear => "ndcg",
            Gain::Exponential => "ndcg_exp",
        }
    }

    fn cutoff(&self) -> Cutoff {
        Cutoff::Optional
    }

    fn value(&self, ranks: &RelevantRanks, k: Option<usize>) -> f64 {
        ndcg_at(ranks, self.0, k)
    }

    fn depth(&self, k: Option<usize>, _largest_class: usize) -> Option<usize> {
        k
    }
}
