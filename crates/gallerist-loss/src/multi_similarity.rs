//! Multi-Similarity loss: mine the pairs that violate their anchor's order, then weight them by their own and
//! by their relative similarity.
//!
//! Wang, Han, Huang, Dong, Scott, "Multi-Similarity Loss with General Pair Weighting for Deep Metric
//! Learning", CVPR 2019.
//!
//! With the similarity `S_ij = x_i.x_j` of embeddings of length 1:
//!
//! ```text
//! kept negatives N*: S_in > min over positives of S_ip - epsilon
//! kept positives P*: S_ip < max over negatives of S_in + epsilon
//! L_i = 1/alpha log(1 + sum_P* exp(-alpha (S_ip - base))) + 1/beta log(1 + sum_N* exp(beta (S_in - base)))
//! L   = mean of L_i over all n
//! ```
//!
//! **Held constant**: which pairs are kept. Another miner than the paper's can choose them
//! (see [`crate::miner`]).
//!
//! # Corner cases
//!
//! - With mining, an anchor without a positive or without a negative has nothing to be compared with and
//!   contributes 0. Without mining (`miner = { name = "all" }`) each side counts by itself.
//! - The largest exponent is subtracted before `exp`; a sum far below 1 keeps its relative precision.
//!
//! Memory and time: `O(n^2)` and `O(n^2 d)`.

use burn::module::Module;
use burn::tensor::Device;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use super::pairs::{Pairs, column, counts, log_one_plus_sum_exp};
use super::rows::{self, MultiSimilarityRows};
use crate::Result;
use crate::lists::Lists;
use crate::miner::{self, MinerConfig, MultiSimilarityMinerConfig};
use crate::ranking::{AnyLoss, LossOutput, PairLoss, Progress, Queries, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};

/// Parameters of [`MultiSimilarity`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, MultiSimilarityConfig, Progress, RankingLoss};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let loss = MultiSimilarityConfig { base: 0.7, ..Default::default() }.init();
/// let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MultiSimilarityConfig {
    /// Sharpness of the positives' weights. 2.
    pub alpha: f64,
    /// Sharpness of the negatives' weights. 50.
    pub beta: f64,
    /// Similarity `lambda` around which pairs are weighed. 0.5, as in the authors' released code.
    pub base: f64,
    /// Which pairs take part. The paper's own mining, `multi_similarity` with `epsilon` 0.1.
    pub miner: MinerConfig,
}

impl Default for MultiSimilarityConfig {
    fn default() -> Self {
        let miner: MinerConfig = MultiSimilarityMinerConfig::default().into();
        MultiSimilarityConfig { alpha: 2.0, beta: 50.0, base: 0.5, miner }
    }
}

impl MultiSimilarityConfig {
    /// The loss.
    pub fn init(&self) -> MultiSimilarity {
        MultiSimilarity { config: self.clone() }
    }
}

impl Named for MultiSimilarityConfig {
    const NAME: &'static str = "multi_similarity";
}

impl LossSpec for MultiSimilarityConfig {
    fn build(&self, _: LossShape, _: u64, _: &Device) -> AnyLoss {
        self.init().boxed()
    }

    fn takes_memory(&self) -> bool {
        true
    }

    fn takes_miner(&self) -> bool {
        true
    }

    fn scale_parameter(&self) -> Option<&'static str> {
        Some("beta")
    }

    fn validate(&self) -> Result<()> {
        in_range("alpha", self.alpha, self.alpha > 0.0, "above 0")?;
        in_range("beta", self.beta, self.beta > 0.0, "above 0")?;
        in_range("base", self.base, true, "a finite number")?;
        self.miner.validate()
    }
}

/// Multi-Similarity loss; see [`MultiSimilarityConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct MultiSimilarity {
    #[module(skip)]
    config: MultiSimilarityConfig,
}

impl PairLoss for MultiSimilarity {
    fn forward_lists(&self, lists: &Lists<'_>, progress: Progress) -> LossOutput {
        let config = &self.config;
        let rows = |epsilon| MultiSimilarityRows {
            alpha: config.alpha,
            beta: config.beta,
            base: config.base,
            epsilon,
        };
        let output = match config.miner.downcast_ref::<MultiSimilarityMinerConfig>() {
            Some(miner) => rows::forward(&rows(Some(miner.epsilon)), lists),
            None if config.miner.keeps_all() => rows::forward(&rows(None), lists),
            None => None,
        };
        if let Some(output) = output {
            return output;
        }
        let [n, _] = lists.dims();
        let pairs = Pairs::new(lists);
        let kept = miner::in_force(Some(&config.miner), &pairs, lists, progress).pairs();
        let similarity = lists.similarities();
        let offset = similarity.sub_scalar(config.base);
        let positive = log_one_plus_sum_exp(&offset.clone().mul_scalar(-config.alpha), &kept.positives);
        let negative = log_one_plus_sum_exp(&offset.mul_scalar(config.beta), &kept.negatives);
        let per_query = positive.mul_scalar(1.0 / config.alpha) + negative.mul_scalar(1.0 / config.beta);
        let queries = Queries {
            loss: column(&per_query),
            mined_positives: counts(&kept.positives),
            mined_negatives: counts(&kept.negatives),
            ..pairs.queries()
        };
        LossOutput { value: per_query.sum().mul_scalar(1.0 / n.max(1) as f64), queries }
    }
}
