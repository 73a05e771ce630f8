//! Semi-hard negatives: farther than the positive, but not by the margin.
//!
//! Schroff, Kalenichenko, Philbin, "FaceNet: A Unified Embedding for Face Recognition and Clustering",
//! CVPR 2015 (section 3.2, Eq. 4 and the sentence after it). For a query `a` and each of its positives `p`:
//!
//! ```text
//! n* = argmin of d_an  over the negatives with  d_ap^2 < d_an^2 < d_ap^2 + margin
//! ```
//!
//! The paper allows any negative of that shell; here it is the hardest of them, the lower index among
//! equals, so that a batch always gives the same triplets. A positive without a negative in the shell is not
//! selected.

use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use super::rule::{Candidates, Choice, Miner, in_range, largest};
use crate::Result;

/// Parameters of the miner `semi_hard`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SemiHardConfig {
    /// Squared distance by which a negative may be farther than the positive. 0.2 in the paper.
    pub margin: f64,
}

impl Default for SemiHardConfig {
    fn default() -> Self {
        SemiHardConfig { margin: 0.2 }
    }
}

impl Named for SemiHardConfig {
    const NAME: &'static str = "semi_hard";
}

impl Miner for SemiHardConfig {
    fn gives_triplets(&self) -> bool {
        true
    }

    fn choose(&self, candidates: &Candidates<'_>) -> Choice {
        let squared = |j: usize| candidates.values[j] * candidates.values[j];
        let nearest_in_shell = |p: usize| {
            let inner = squared(p);
            let shell = |&n: &usize| squared(n) > inner && squared(n) < inner + self.margin;
            let semi_hard: Vec<usize> = candidates.negatives.iter().copied().filter(shell).collect();
            largest(&semi_hard, |n| -candidates.values[n]).map(|n| (p, n))
        };
        Choice::Triplets(candidates.positives.iter().copied().filter_map(nearest_in_shell).collect())
    }

    fn validate(&self) -> Result<()> {
        in_range("margin", self.margin, self.margin > 0.0, "above 0")
    }
}
