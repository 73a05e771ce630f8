//! Angular loss: bound the angle at the negative of every triangle of an anchor, its positive and a negative.
//!
//! Wang, Zhou, Wen, Liu, Lin, "Deep Metric Learning with Angular Loss", ICCV 2017.
//!
//! With `t = tan(angle)^2` and embeddings of length 1, the constants of `d_ap^2 - 4 t |x_n - (x_a +
//! x_p)/2|^2` dropped:
//!
//! ```text
//! f_apn = 4 t (x_a + x_p).x_n - 2 (1 + t) x_a.x_p
//! L     = mean over all (a, p) of log(1 + sum over negatives n of exp(f_apn))
//! ```
//!
//! where `n` runs over the samples that are negatives of both `a` and `p`. With two images a class this is
//! the paper's mean over the batch. **Held constant**: nothing. The paper's combination with N-pair is a
//! weighted sum of two losses. A query's own loss is the mean over its positives.
//!
//! # Corner cases
//!
//! - The largest exponent (at least 0) is subtracted before `exp`.
//! - A pair without a negative contributes 0; a batch without a positive pair has the value 0.
//!
//! Time `O(n^3)` with `O(n^2)` memory: triangles are summed block by block, with their derivatives.

use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::pairs::{Pairs, column, counts, indicator, row_blocks, total, with_gradient};
use super::{Labels, LossOutput, Progress, Queries, RankingLoss, in_range};
use crate::Result;

/// Parameters of [`Angular`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AngularConfig {
    /// Bound on the angle, in degrees. 45; the paper has 36 to 60.
    pub angle: f64,
}

impl Default for AngularConfig {
    fn default() -> Self {
        AngularConfig { angle: 45.0 }
    }
}

impl AngularConfig {
    /// The loss.
    pub fn init(&self) -> Angular {
        Angular { config: self.clone() }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Value`] where a parameter is not finite or out of its range.
    pub fn validate(&self) -> Result<()> {
        in_range(
            "angle",
            self.angle,
            self.angle > 0.0 && self.angle <= 89.0,
            "above 0 and at most 89 degrees",
        )
    }
}

/// Angular loss; see [`AngularConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct Angular {
    #[module(skip)]
    config: AngularConfig,
}

impl RankingLoss for Angular {
    fn forward(&self, embeddings: Tensor<2>, labels: Labels<'_>, _progress: Progress) -> LossOutput {
        let [n, _] = embeddings.dims();
        let t = self.config.angle.to_radians().tan().powi(2);
        let pairs = Pairs::new(labels, &embeddings);
        let similarity = embeddings.clone().matmul(embeddings.transpose());
        let held = similarity.clone().detach();
        let number = pairs.positives.clone().sum_dim(1);
        let count = total(&pairs.positives).max(1.0);

        // shares[a, p, n] = exp(f) / (1 + sum exp(f)) is the derivative of a pair's cost with respect to f.
        let (mut cost, mut by_anchor, mut by_pair) = (Vec::new(), Vec::new(), Vec::new());
        let mut by_positive = held.zeros_like();
        for rows in row_blocks(n, n * n) {
            let b = rows.len();
            let block = |x: &Tensor<2>| x.clone().slice([rows.clone(), 0..n]);
            let across = |x: Tensor<2>| x.reshape([b, 1, n]);
            let everywhere = |x: &Tensor<2>| x.clone().reshape([1, n, n]);
            let triangle = (across(block(&held)) + everywhere(&held)).mul_scalar(4.0 * t)
                - block(&held).reshape([b, n, 1]).mul_scalar(2.0 * (1.0 + t));
            let taken = across(block(&pairs.negatives))
                * everywhere(&pairs.negatives)
                * block(&pairs.positives).reshape([b, n, 1]);
            let exponent = triangle.mask_fill(taken.equal_scalar(0.0), f32::NEG_INFINITY);
            let largest = exponent.clone().max_dim(2).clamp_min(0.0);
            let terms = (exponent - largest.clone()).exp();
            let sum = terms.clone().sum_dim(2);
            let rest = largest.clone().neg().exp();
            let shares = terms / (sum.clone() + rest.clone());
            cost.push(((sum + rest.sub_scalar(1.0)).log1p() + largest).reshape([b, n]));
            by_anchor.push(shares.clone().sum_dim(1).reshape([b, n]));
            by_pair.push(shares.clone().sum_dim(2).reshape([b, n]));
            by_positive = by_positive + shares.sum_dim(0).reshape([n, n]);
        }
        let (cost, by_anchor, by_pair) =
            (Tensor::cat(cost, 0), Tensor::cat(by_anchor, 0), Tensor::cat(by_pair, 0));
        let gradient = (by_anchor.clone() + by_positive).mul_scalar(4.0 * t)
            - by_pair.clone().mul_scalar(2.0 * (1.0 + t));
        let per_query = cost.sum_dim(1);
        let value = with_gradient(
            per_query.clone().sum().mul_scalar(1.0 / count),
            &similarity,
            gradient.mul_scalar(1.0 / count),
        );

        let used = |shares: Tensor<2>| counts(&indicator(shares.greater_scalar(0.0), &held));
        let queries = Queries {
            loss: column(&(per_query / number.clamp_min(1.0))),
            mined_positives: used(by_pair),
            mined_negatives: used(by_anchor),
            ..pairs.queries()
        };
        LossOutput { value, queries }
    }
}
