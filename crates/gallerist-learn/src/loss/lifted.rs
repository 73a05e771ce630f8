//! Lifted structured loss: each positive pair against all negatives of both its samples.
//!
//! Oh Song, Xiang, Jegelka, Savarese, "Deep Metric Learning via Lifted Structured Feature Embedding", CVPR
//! 2016 (Eq. 4).
//!
//! With `P` the unordered positive pairs and `N_i` the negatives of `i`:
//!
//! ```text
//! J_ij = log(sum over k in N_i of exp(alpha - d_ik) + sum over l in N_j of exp(alpha - d_jl)) + d_ij
//! L    = 1 / (2 |P|) sum over P of [J_ij]_+^2      (squared)
//!      = 1 / (2 |P|) sum over P of [J_ij]_+        (the form printed in the ranked list loss papers)
//! ```
//!
//! **Held constant**: nothing. A query's own loss is half the mean of `[J_ij]_+^2` (or `[J_ij]_+`) over its
//! positives.
//!
//! # Corner cases
//!
//! - A pair without any negative contributes 0; it is counted in `|P|`.
//! - The largest exponent is subtracted before `exp`.
//! - Coincident rows have no direction; a collapsed batch has a value and the gradient 0.
//! - A batch without a positive pair has the value 0.
//!
//! The embeddings are as the network gives them; the paper does not normalise. Memory and time: `O(n^2)` and
//! `O(n^2 d)`.

use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::pairs::{Pairs, column, counts, hinge, indicator, scaled_sum_exp, total};
use super::{Labels, LossOutput, Progress, Queries, RankingLoss, in_range};
use crate::Result;
use crate::pairwise::distances;

/// Parameters of [`Lifted`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LiftedConfig {
    /// Distance by which negatives must be farther than positives, in the smooth sense. 1.
    pub alpha: f64,
    /// Whether the hinge is squared (the paper) or not (as printed in the ranked list loss papers).
    pub squared: bool,
}

impl Default for LiftedConfig {
    fn default() -> Self {
        LiftedConfig { alpha: 1.0, squared: true }
    }
}

impl LiftedConfig {
    /// The loss.
    pub fn init(&self) -> Lifted {
        Lifted { config: self.clone() }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Value`] where a parameter is not finite or out of its range.
    pub fn validate(&self) -> Result<()> {
        in_range("alpha", self.alpha, true, "a finite number")
    }
}

/// Lifted structured loss; see [`LiftedConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct Lifted {
    #[module(skip)]
    config: LiftedConfig,
}

impl RankingLoss for Lifted {
    fn forward(&self, embeddings: Tensor<2>, labels: Labels<'_>, _progress: Progress) -> LossOutput {
        let pairs = Pairs::new(labels, &embeddings);
        let distance = distances(&embeddings, &embeddings);
        let exponent = distance.clone().neg().add_scalar(self.config.alpha);
        let (largest, sum) = scaled_sum_exp(&exponent, &pairs.negatives);

        // The two rows' sums, brought to the larger of their largest exponents. A row without negatives has
        // none.
        let empty = pairs.negatives.clone().max_dim(1).equal_scalar(0.0);
        let largest = largest.mask_fill(empty, f32::NEG_INFINITY);
        let pair_largest = largest.clone().max_pair(largest.clone().transpose());
        let nothing = pair_largest.clone().equal_scalar(f32::NEG_INFINITY);
        let pair_largest = pair_largest.mask_fill(nothing.clone(), 0.0);
        let own = sum * (largest - pair_largest.clone()).exp();
        let both = (own.clone() + own.transpose()).mask_fill(nothing.clone(), 1.0);
        let excess =
            hinge(both.log() + pair_largest + distance).mask_fill(nothing, 0.0) * pairs.positives.clone();

        let active = indicator(excess.clone().greater_scalar(0.0), &excess);
        let cost = if self.config.squared { excess.square() } else { excess };
        let halves = cost.clone().sum_dim(1).mul_scalar(0.5);
        let mined_positives = counts(&active);
        let counts = pairs.queries();
        let mined_negatives =
            (0..mined_positives.len()).map(|i| if mined_positives[i] > 0 { counts.negatives[i] } else { 0 });
        let queries = Queries {
            loss: column(&(halves.clone() / pairs.positives.clone().sum_dim(1).clamp_min(1.0))),
            mined_negatives: mined_negatives.collect(),
            mined_positives,
            ..counts
        };
        LossOutput { value: halves.sum().mul_scalar(1.0 / total(&pairs.positives).max(1.0)), queries }
    }
}
