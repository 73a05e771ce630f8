//! The hardest pairs of each query: its farthest positive and its nearest negative.
//!
//! Hermans, Beyer, Leibe, "In Defense of the Triplet Loss for Person Re-Identification", 2017 (Eq. 5,
//! "batch hard"):
//!
//! ```text
//! p* = argmax over positives of d_ap,   n* = argmin over negatives of d_an
//! ```
//!
//! Among equals the one with the lower index. A query without a positive or without a negative has no
//! selected pair.

use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use super::rule::{Candidates, Choice, Miner, largest};

/// The miner `hard`; it has no parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HardConfig {}

impl Named for HardConfig {
    const NAME: &'static str = "hard";
}

impl Miner for HardConfig {
    fn gives_triplets(&self) -> bool {
        true
    }

    fn choose(&self, candidates: &Candidates<'_>) -> Choice {
        let farthest = largest(candidates.positives, |j| candidates.values[j]);
        let nearest = largest(candidates.negatives, |j| -candidates.values[j]);
        Choice::Triplets(farthest.zip(nearest).into_iter().collect())
    }
}
