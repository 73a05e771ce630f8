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
//! **Held constant**: which pairs are kept.
//!
//! # Corner cases
//!
//! - With mining, an anchor without a positive or without a negative has nothing to be compared with and
//!   contributes 0. Without mining (`mining = false`) each side counts by itself.
//! - The largest exponent is subtracted before `exp`; a sum far below 1 keeps its relative precision.
//!
//! Memory and time: `O(n^2)` and `O(n^2 d)`.

use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::pairs::{Pairs, column, counts, indicator, log_one_plus_sum_exp, row_max, row_min};
use super::rows::{self, MultiSimilarityRows};
use super::{Labels, LossOutput, Progress, Queries, RankingLoss, in_range};
use crate::Result;

/// Parameters of [`MultiSimilarity`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MultiSimilarityConfig {
    /// Sharpness of the positives' weights. 2.
    pub alpha: f64,
    /// Sharpness of the negatives' weights. 50.
    pub beta: f64,
    /// Similarity `lambda` around which pairs are weighed. 0.5, as in the authors' released code.
    pub base: f64,
    /// Whether pairs are mined.
    pub mining: bool,
    /// Slack of the mining: the larger, the more pairs are kept. 0.1.
    pub epsilon: f64,
}

impl Default for MultiSimilarityConfig {
    fn default() -> Self {
        MultiSimilarityConfig { alpha: 2.0, beta: 50.0, base: 0.5, mining: true, epsilon: 0.1 }
    }
}

impl MultiSimilarityConfig {
    /// The loss.
    pub fn init(&self) -> MultiSimilarity {
        MultiSimilarity { config: self.clone() }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Value`] where a parameter is not finite or out of its range.
    pub fn validate(&self) -> Result<()> {
        in_range("alpha", self.alpha, self.alpha > 0.0, "above 0")?;
        in_range("beta", self.beta, self.beta > 0.0, "above 0")?;
        in_range("base", self.base, true, "a finite number")?;
        in_range("epsilon", self.epsilon, true, "a finite number")
    }
}

/// Multi-Similarity loss; see [`MultiSimilarityConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct MultiSimilarity {
    #[module(skip)]
    config: MultiSimilarityConfig,
}

impl RankingLoss for MultiSimilarity {
    fn forward(&self, embeddings: Tensor<2>, labels: Labels<'_>, _progress: Progress) -> LossOutput {
        let config = &self.config;
        let rows = MultiSimilarityRows {
            alpha: config.alpha,
            beta: config.beta,
            base: config.base,
            epsilon: config.mining.then_some(config.epsilon),
        };
        if let Some(output) = rows::forward(&rows, &embeddings, labels) {
            return output;
        }
        let [n, _] = embeddings.dims();
        let pairs = Pairs::new(labels, &embeddings);
        let similarity = embeddings.clone().matmul(embeddings.transpose());
        let kept = if config.mining {
            mine(&similarity.clone().detach(), &pairs, config.epsilon)
        } else {
            pairs.clone()
        };
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

/// The pairs that violate their anchor's order, or come within `epsilon` of it.
fn mine(similarity: &Tensor<2>, pairs: &Pairs, epsilon: f64) -> Pairs {
    let both = pairs.both();
    let hardest_positive = row_min(similarity, &pairs.positives);
    let hardest_negative = row_max(similarity, &pairs.negatives);
    let near_p = similarity.clone().lower(hardest_negative.add_scalar(epsilon));
    let near_n = similarity.clone().greater(hardest_positive.sub_scalar(epsilon));
    Pairs {
        positives: pairs.positives.clone() * indicator(near_p, similarity) * both.clone(),
        negatives: pairs.negatives.clone() * indicator(near_n, similarity) * both,
    }
}
