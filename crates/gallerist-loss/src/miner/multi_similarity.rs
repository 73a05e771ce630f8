//! Multi-similarity mining: the pairs that violate their query's order, or come within a slack of it.
//!
//! Wang, Han, Huang, Dong, Scott, "Multi-Similarity Loss with General Pair Weighting for Deep Metric
//! Learning", CVPR 2019 (Eq. 10 and 11). With the similarity `S_ij = x_i.x_j`:
//!
//! ```text
//! selected negatives: S_an > min over positives of S_ap - epsilon
//! selected positives: S_ap < max over negatives of S_an + epsilon
//! ```
//!
//! A query without a positive or without a negative has no selected pair. Made for embeddings of length 1.

use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use super::rule::{Candidates, Choice, Miner, in_range, largest};
use crate::Result;

/// Parameters of the miner `multi_similarity`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MultiSimilarityMinerConfig {
    /// Slack: the larger, the more pairs are kept. 0.1 in the paper.
    pub epsilon: f64,
}

impl Default for MultiSimilarityMinerConfig {
    fn default() -> Self {
        MultiSimilarityMinerConfig { epsilon: 0.1 }
    }
}

impl Named for MultiSimilarityMinerConfig {
    const NAME: &'static str = "multi_similarity";
}

impl Miner for MultiSimilarityMinerConfig {
    fn reads_similarities(&self) -> bool {
        true
    }
    fn choose(&self, candidates: &Candidates<'_>) -> Choice {
        let similarity = |j: usize| candidates.values[j];
        let hardest_positive = largest(candidates.positives, |j| -similarity(j));
        let hardest_negative = largest(candidates.negatives, similarity);
        let (Some(p), Some(n)) = (hardest_positive, hardest_negative) else {
            return Choice::nothing();
        };
        let (least, most) = (similarity(p) - self.epsilon, similarity(n) + self.epsilon);
        let keep = |among: &[usize], fits: &dyn Fn(f64) -> bool| -> Vec<usize> {
            among.iter().copied().filter(|&j| fits(similarity(j))).collect()
        };
        Choice::Product {
            positives: keep(candidates.positives, &|s| s < most),
            negatives: keep(candidates.negatives, &|s| s > least),
        }
    }

    fn validate(&self) -> Result<()> {
        in_range("epsilon", self.epsilon, true, "a finite number")
    }
}
