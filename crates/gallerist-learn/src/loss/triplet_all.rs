//! Triplet loss over all triplets of a batch.
//!
//! Weinberger, Saul, "Distance Metric Learning for Large Margin Nearest Neighbor Classification", 2009;
//! the batch-all form as in Hermans, Beyer, Leibe, "In Defense of the Triplet Loss", 2017, there with
//! distances, here with their squares.
//!
//! ```text
//! L = mean over all triplets (a, p, n) of [d_ap^2 + margin - d_an^2]_+
//! ```
//!
//! **Held constant**: nothing. A query's own loss is the mean over the triplets it is the anchor of; the
//! batch's value is the mean over all triplets.
//!
//! # Corner cases
//!
//! - The hinge has slope 0 at the kink.
//! - Coincident rows cost what the equation says and have no direction: in a collapsed batch the value is
//!   `margin` and the gradient 0.
//! - A batch without a triplet has the value 0.
//!
//! The embeddings are L2-normalised by default. Time `O(n^3)` with `O(n^2)` memory: triplets are counted
//! block by block; the derivative with respect to `d_ap^2` is the number of active triplets of the pair.

use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::pairs::{Pairs, column, counts, hinge, indicator, row_blocks, with_gradient};
use super::rows::{self, AllTripletsRows};
use super::{Labels, LossOutput, Progress, Queries, RankingLoss, in_range};
use crate::Result;
use crate::pairwise::{distances, host};

/// Parameters of [`TripletAll`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TripletAllConfig {
    /// Squared distance by which a negative must be farther than a positive. 0.2.
    pub margin: f64,
}

impl Default for TripletAllConfig {
    fn default() -> Self {
        TripletAllConfig { margin: 0.2 }
    }
}

impl TripletAllConfig {
    /// The loss.
    pub fn init(&self) -> TripletAll {
        TripletAll { config: self.clone() }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Value`] where a parameter is not finite or out of its range.
    pub fn validate(&self) -> Result<()> {
        in_range("margin", self.margin, self.margin >= 0.0, "0 or more")
    }
}

/// Triplet loss over all triplets; see [`TripletAllConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct TripletAll {
    #[module(skip)]
    config: TripletAllConfig,
}

impl RankingLoss for TripletAll {
    fn forward(&self, embeddings: Tensor<2>, labels: Labels<'_>, _progress: Progress) -> LossOutput {
        let rows = AllTripletsRows { margin: self.config.margin };
        if let Some(output) = rows::forward(&rows, &embeddings, labels) {
            return output;
        }
        let [n, _] = embeddings.dims();
        let pairs = Pairs::new(labels, &embeddings);
        let squared = distances(&embeddings, &embeddings).square();
        let held = squared.clone().detach();

        let (mut cost, mut active_p, mut active_n) = (Vec::new(), Vec::new(), Vec::new());
        for rows in row_blocks(n, n * n) {
            let b = rows.len();
            let block = |x: &Tensor<2>| x.clone().slice([rows.clone(), 0..n]);
            let gap = block(&held).reshape([b, n, 1]) - block(&held).reshape([b, 1, n]);
            let triplets =
                block(&pairs.positives).reshape([b, n, 1]) * block(&pairs.negatives).reshape([b, 1, n]);
            let excess = hinge(gap.add_scalar(self.config.margin)) * triplets;
            let active = excess.clone().greater_scalar(0.0).float().cast(held.dtype());
            cost.push(excess.sum_dim(2).reshape([b, n]).sum_dim(1));
            active_p.push(active.clone().sum_dim(2).reshape([b, n]));
            active_n.push(active.sum_dim(1).reshape([b, n]));
        }
        let (cost, active_p, active_n) =
            (Tensor::cat(cost, 0), Tensor::cat(active_p, 0), Tensor::cat(active_n, 0));

        let number = pairs.positives.clone().sum_dim(1) * pairs.negatives.clone().sum_dim(1);
        let triplets = host(&number).iter().sum::<f64>().max(1.0);
        let value = cost.clone().sum().mul_scalar(1.0 / triplets);
        let value =
            with_gradient(value, &squared, (active_p.clone() - active_n.clone()).mul_scalar(1.0 / triplets));
        let used = |active: &Tensor<2>| counts(&indicator(active.clone().greater_scalar(0.0), active));
        let queries = Queries {
            loss: column(&(cost / number.clamp_min(1.0))),
            mined_positives: used(&active_p),
            mined_negatives: used(&active_n),
            ..pairs.queries()
        };
        LossOutput { value, queries }
    }
}
