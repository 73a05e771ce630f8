//! Selects every pair: no mining.

use super::rule::{Candidates, Choice, Miner};
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

/// The miner `all`; it has no parameters.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AllConfig {}

impl Named for AllConfig {
    const NAME: &'static str = "all";
}

impl Miner for AllConfig {
    fn keeps_all(&self) -> bool {
        true
    }

    fn choose(&self, candidates: &Candidates<'_>) -> Choice {
        Choice::Product { positives: candidates.positives.to_vec(), negatives: candidates.negatives.to_vec() }
    }
}
