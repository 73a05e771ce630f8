//! Miners: which pairs of a batch a pair loss looks at. One file each, chosen by name in the run
//! file's `[loss.miner]`.
//!
//! A miner reads the distances and the labels of a batch and says which positives and which
//! negatives of every query are in force ([`Mined`]); the loss is computed on those alone. No
//! gradient flows through the choice.
//!
//! | name | in force | source |
//! | --- | --- | --- |
//! | `all` | every pair | |
//! | `semi_hard` | every positive, with its nearest negative farther than itself and within a margin | Schroff et al. 2015, Eq. 4 |
//! | `hard` | the farthest positive and the nearest negative of a query | Hermans et al. 2017, Eq. 5 |
//! | `distance_weighted` | every positive, with a negative drawn so that all distances are met equally often | Wu et al. 2017, section 4.1 |
//! | `multi_similarity` | the pairs that violate their query's order, or nearly do | Wang et al. 2019, Eq. 10 and 11 |
//!
//! How a loss counts what was mined:
//!
//! - Means (`contrastive`, `margin`) are taken over the pairs in force; a negative that was mined
//!   for several positives of a query counts as often.
//! - `triplet_all` is the mean over the mined triplets: where the miner gives each positive a
//!   negative of its own, those; else each mined positive of a query with each of its mined negatives.
//! - Sums of exponentials (`multi_similarity`, `lifted`, `circle`, `angular`, `sup_con`) run over the
//!   pairs in force, each once.
//!
//! [`Queries`](crate::Queries) counts, as ever, the pairs that contribute to the gradient; with
//! a miner these are among those in force.
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
//! let hard = MinerConfig::Hard(HardConfig {});
//! let mined = hard.mine(&x, labels, Progress::default());
//! assert_eq!(mined.negatives.sum_dim(1).into_data().try_into_vec::<f32>().unwrap(), [1.0; 4]);
//!
//! let loss = ContrastiveConfig { miner: Some(hard), ..ContrastiveConfig::default() }.init();
//! let output = loss.forward(x, labels, Progress::default());
//! assert_eq!(output.queries.mined_negatives, [0, 1, 1, 0]);
//! ```

mod all;
mod distance_weighted;
mod hard;
mod multi_similarity;
mod semi_hard;

use burn::tensor::{Int, Tensor, TensorData};
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

pub use all::AllConfig;
pub use distance_weighted::DistanceWeightedConfig;
pub use hard::HardConfig;
pub use multi_similarity::MultiSimilarityMinerConfig;
pub use semi_hard::SemiHardConfig;

use crate::Result;
use crate::{Labels, Lists, Pairs, Progress};
use gallerist_tensor::pairwise::{distances, host};

/// What a miner knows of a query.
pub(crate) struct Candidates<'a> {
    /// Its row.
    query: usize,
    /// Distances (or similarities, see [`Miner::SIMILARITIES`]) to the whole gallery.
    values: &'a [f64],
    /// Its positives, ascending.
    positives: &'a [usize],
    /// Its negatives, ascending.
    negatives: &'a [usize],
    /// Number of dimensions of an embedding.
    dimensions: usize,
    /// Steps done.
    step: usize,
}

impl Candidates<'_> {
    fn has_both(&self) -> bool {
        !self.positives.is_empty() && !self.negatives.is_empty()
    }
}

/// What a miner keeps of a query's row.
pub(crate) enum Choice {
    /// Each of the positives with each of the negatives.
    Product { positives: Vec<usize>, negatives: Vec<usize> },
    /// Positives, each with a negative of its own.
    Triplets(Vec<(usize, usize)>),
}

impl Choice {
    fn nothing() -> Self {
        Choice::Triplets(Vec::new())
    }
}

/// A rule that says which pairs of a query are in force.
pub(crate) trait Miner: Sync {
    /// Whether the rule reads inner products instead of Euclidean distances.
    const SIMILARITIES: bool = false;

    /// Whether [`Miner::choose`] gives each positive a negative of its own.
    const TRIPLETS: bool;

    /// What stays of a query's row.
    fn choose(&self, candidates: &Candidates<'_>) -> Choice;
}

/// What a miner left in force.
#[derive(Clone, Debug)]
pub struct Mined {
    /// `[n, m]`: how often each pair of a query and one of its positives is in force; 0 or 1.
    pub positives: Tensor<2>,
    /// `[n, m]`: how often each pair of a query and one of its negatives is in force.
    pub negatives: Tensor<2>,
    /// `[n, m]`: at a positive in force the negative that makes a triplet with it, 0 elsewhere. Absent:
    /// each positive of a query makes one with each negative.
    pub partners: Option<Tensor<2, Int>>,
}

impl Mined {
    /// The pairs in force, each once.
    pub(crate) fn pairs(&self) -> Pairs {
        Pairs { positives: self.positives.clone(), negatives: self.negatives.clone().clamp_max(1.0) }
    }
}

/// The pairs that a loss looks at: those of its miner, or all.
pub(crate) fn in_force(
    miner: Option<&MinerConfig>,
    pairs: &Pairs,
    lists: &Lists<'_>,
    progress: Progress,
) -> Mined {
    match miner {
        None | Some(MinerConfig::All(_)) => {
            Mined { positives: pairs.positives.clone(), negatives: pairs.negatives.clone(), partners: None }
        }
        Some(MinerConfig::SemiHard(miner)) => run(miner, pairs, lists, progress),
        Some(MinerConfig::Hard(miner)) => run(miner, pairs, lists, progress),
        Some(MinerConfig::DistanceWeighted(miner)) => run(miner, pairs, lists, progress),
        Some(MinerConfig::MultiSimilarity(miner)) => run(miner, pairs, lists, progress),
    }
}

fn run<M: Miner>(miner: &M, pairs: &Pairs, lists: &Lists<'_>, progress: Progress) -> Mined {
    let [n, m] = lists.dims();
    let [_, dimensions] = lists.embeddings().dims();
    let (queries, gallery) = (lists.embeddings().clone().detach(), lists.gallery().detach());
    let values = match M::SIMILARITIES {
        true => queries.matmul(gallery.transpose()),
        false => distances(&queries, &gallery),
    };
    let values = host(&values);
    let (positives, negatives) = (host(&pairs.positives), host(&pairs.negatives));
    let choose = |query: usize| {
        let row = query * m..(query + 1) * m;
        let among = |mask: &[f64]| -> Vec<usize> { (0..m).filter(|&j| mask[row.start + j] != 0.0).collect() };
        miner.choose(&Candidates {
            query,
            values: &values[row.clone()],
            positives: &among(&positives),
            negatives: &among(&negatives),
            dimensions,
            step: progress.step,
        })
    };
    let choices: Vec<Choice> = (0..n).into_par_iter().map(choose).collect();

    let mut positives = vec![0f32; n * m];
    let mut negatives = vec![0f32; n * m];
    let mut partners = vec![0i64; if M::TRIPLETS { n * m } else { 0 }];
    for (query, choice) in choices.into_iter().enumerate() {
        let at = |j: usize| query * m + j;
        match choice {
            Choice::Product { positives: p, negatives: n } => {
                p.into_iter().for_each(|p| positives[at(p)] = 1.0);
                n.into_iter().for_each(|n| negatives[at(n)] = 1.0);
            }
            Choice::Triplets(triplets) => {
                for (p, n) in triplets {
                    positives[at(p)] = 1.0;
                    negatives[at(n)] += 1.0;
                    partners[at(p)] = n as i64;
                }
            }
        }
    }
    let (device, dtype) = (pairs.positives.device(), pairs.positives.dtype());
    let tensor = |weights: Vec<f32>| Tensor::from_data(TensorData::new(weights, [n, m]), (&device, dtype));
    Mined {
        positives: tensor(positives),
        negatives: tensor(negatives),
        partners: M::TRIPLETS.then(|| Tensor::from_data(TensorData::new(partners, [n, m]), &device)),
    }
}

/// Declares every miner once: what it is, and its name in run files.
macro_rules! miners {
    ($($(#[$doc:meta])* $variant:ident($config:ty), $name:literal;)*) => {
        /// `[loss.miner]` of a run file.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "name")]
        pub enum MinerConfig {
            $($(#[$doc])* #[serde(rename = $name)] $variant($config),)*
        }

        impl MinerConfig {
            /// Every miner by its name in the run file.
            pub const NAMES: &[&str] = &[$($name),*];

            /// The name in the run file.
            pub fn name(&self) -> &'static str {
                match self {
                    $(MinerConfig::$variant(_) => $name,)*
                }
            }

            /// The parameters as `key = value`, the name left out.
            pub fn parameters(&self) -> Vec<String> {
                crate::parameters(self)
            }

            /// Checks the ranges of the parameters.
            ///
            /// # Errors
            ///
            /// [`crate::Error::Value`] where a parameter is not finite or out of its range.
            pub fn validate(&self) -> Result<()> {
                match self {
                    $(MinerConfig::$variant(config) => config.validate(),)*
                }
            }
        }
    };
}

miners! {
    /// Every pair.
    All(AllConfig), "all";
    /// Semi-hard negatives.
    SemiHard(SemiHardConfig), "semi_hard";
    /// The hardest positive and negative of each query.
    Hard(HardConfig), "hard";
    /// Negatives drawn by the inverse density of their distance.
    DistanceWeighted(DistanceWeightedConfig), "distance_weighted";
    /// Pairs that violate their query's order.
    MultiSimilarity(MultiSimilarityMinerConfig), "multi_similarity";
}

impl MinerConfig {
    /// The pairs of a batch that are in force.
    ///
    /// # Shapes
    ///
    /// `embeddings` `[n, d]`, `labels` of `n` samples; the result is `[n, n]`, on the device and of the
    /// type of `embeddings`. Memory and time: `O(n^2)` and `O(n^2 d)`.
    ///
    /// # Panics
    ///
    /// If `embeddings` and `labels` disagree about `n`.
    pub fn mine(&self, embeddings: &Tensor<2>, labels: Labels<'_>, progress: Progress) -> Mined {
        let lists = Lists::new(embeddings.clone(), labels, None);
        in_force(Some(self), &Pairs::new(&lists), &lists, progress)
    }
}

/// Checks the miner of a loss, if it has one.
pub(crate) fn validate(miner: Option<&MinerConfig>) -> Result<()> {
    miner.map_or(Ok(()), MinerConfig::validate)
}

/// Refuses a parameter of `[loss.miner]` that is not finite or does not fit.
fn in_range(key: &str, value: f64, fits: bool, wanted: &str) -> Result<()> {
    crate::Error::require(format!("loss.miner.{key}"), value, fits, wanted)
}

/// The entry of `among` whose value is the largest; the first among equals.
fn largest(among: &[usize], values: impl Fn(usize) -> f64) -> Option<usize> {
    among.iter().copied().reduce(|best, j| if values(j) > values(best) { j } else { best })
}
