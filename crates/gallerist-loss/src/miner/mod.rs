//! Miners: which pairs of a batch a pair loss looks at. One file each, chosen by name in the run
//! file's `[loss.miner]`.
//!
//! A miner reads the distances and the labels of a batch and selects positives and negatives
//! of every query ([`Mined`]); the loss is computed on those alone. No
//! gradient flows through the choice.
//!
//! | name | selects | source |
//! | --- | --- | --- |
//! | `all` | every pair | |
//! | `semi_hard` | every positive, with its nearest negative farther than itself and within a margin | Schroff et al. 2015, Eq. 4 |
//! | `hard` | the farthest positive and the nearest negative of a query | Hermans et al. 2017, Eq. 5 |
//! | `distance_weighted` | every positive, with a negative drawn so that all distances are met equally often | Wu et al. 2017, section 4.1 |
//! | `multi_similarity` | the pairs that violate their query's order, or nearly do | Wang et al. 2019, Eq. 10 and 11 |
//!
//! How a loss counts what was mined:
//!
//! - Means (`contrastive`, `margin`) are taken over the selected pairs; a negative that was mined
//!   for several positives of a query counts as often.
//! - `triplet_all` is the mean over the mined triplets: where the miner gives each positive a
//!   negative of its own, those; else each mined positive of a query with each of its mined negatives.
//! - Sums of exponentials (`multi_similarity`, `lifted`, `circle`, `angular`, `sup_con`) run over the
//!   selected pairs, each once.
//!
//! [`Queries`](crate::Queries) counts the pairs that contribute to the gradient; with
//! a miner these are among the selected pairs.
//!
//! # Example
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use gallerist_loss::{ContrastiveConfig, Labels, Progress, RankingLoss};
//! use gallerist_loss::miner::{HardConfig, MinerConfig};
//!
//! let x = Tensor::<2>::from_floats([[0.0], [1.0], [1.5], [4.0]], &Device::flex().autodiff());
//! let labels = Labels::Classes(&[0, 0, 1, 1]);
//!
//! let hard = MinerConfig::from(HardConfig {});
//! let mined = hard.mine(&x, labels, Progress::default());
//! assert_eq!(mined.negatives.sum_dim(1).into_data().try_into_vec::<f32>().unwrap(), [1.0; 4]);
//!
//! let loss = ContrastiveConfig { miner: Some(hard), ..ContrastiveConfig::default() }.init();
//! let output = loss.forward(x, labels, Progress::default());
//! assert_eq!(output.queries.mined_negatives, [0, 1, 1, 0]);
//! ```

mod all;
mod config;
mod distance_weighted;
mod hard;
mod mined;
mod multi_similarity;
mod rule;
mod semi_hard;

pub use all::AllConfig;
pub use config::MinerConfig;
pub(crate) use config::validate;
pub use distance_weighted::DistanceWeightedConfig;
pub use hard::HardConfig;
pub use mined::Mined;
pub(crate) use mined::in_force;
pub use multi_similarity::MultiSimilarityMinerConfig;
pub(crate) use rule::checked;
pub use rule::{Candidates, Choice, Miner};
pub use semi_hard::SemiHardConfig;
