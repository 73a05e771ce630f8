//! The list of miners.

use super::all::AllConfig;
use super::distance_weighted::DistanceWeightedConfig;
use super::hard::HardConfig;
use super::multi_similarity::MultiSimilarityMinerConfig;
use super::rule::Miner;
use super::semi_hard::SemiHardConfig;
use crate::Result;

gallerist_util::kind! {
    /// `[loss.miner]` of a run file: any configuration that implements [`Miner`].
    pub struct MinerConfig(dyn Miner), tag = "name", default = AllConfig;
    AllConfig,
    SemiHardConfig,
    HardConfig,
    DistanceWeightedConfig,
    MultiSimilarityMinerConfig,
}

impl MinerConfig {
    /// The parameters as `key = value`, the name left out.
    pub fn parameters(&self) -> Vec<String> {
        crate::parameters::parameters(self)
    }
}

/// Checks the miner of a loss, if it has one.
pub(crate) fn validate(miner: Option<&MinerConfig>) -> Result<()> {
    miner.map_or(Ok(()), |miner| miner.validate())
}
