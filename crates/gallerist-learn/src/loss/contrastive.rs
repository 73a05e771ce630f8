//! Contrastive loss: pull the pairs of one class together, push the pairs of different classes a margin
//! apart.
//!
//! Hadsell, Chopra, LeCun, "Dimensionality Reduction by Learning an Invariant Mapping", CVPR 2006.
//!
//! ```text
//! L = mean over unordered pairs of  d_ij^2               (same class)
//!                                   [margin - d_ij]_+^2  (different classes)
//! ```
//!
//! **Held constant**: nothing. A query's own loss is the mean over its `n - 1` pairs, so that the loss is
//! the mean over the queries.
//!
//! # Corner cases
//!
//! - Coincident rows of two classes cost `margin^2` and have no direction: gradient 0.
//! - A batch of one sample has the value 0.
//!
//! The embeddings are L2-normalised by default. Memory and time: `O(n^2)` and `O(n^2 d)`.

use burn::module::Module;
use burn::tensor::Tensor;
use serde::{Deserialize, Serialize};

use super::pairs::{Pairs, column, counts, hinge, indicator};
use super::rows::{self, ContrastiveRows};
use super::{Labels, LossOutput, Progress, Queries, RankingLoss, in_range};
use crate::Result;
use crate::pairwise::distances;

/// Parameters of [`Contrastive`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ContrastiveConfig {
    /// Distance beyond which a negative costs nothing. 1.
    pub margin: f64,
}

impl Default for ContrastiveConfig {
    fn default() -> Self {
        ContrastiveConfig { margin: 1.0 }
    }
}

impl ContrastiveConfig {
    /// The loss.
    pub fn init(&self) -> Contrastive {
        Contrastive { config: self.clone() }
    }

    /// Checks the ranges.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Value`] where a parameter is not finite or out of its range.
    pub fn validate(&self) -> Result<()> {
        in_range("margin", self.margin, self.margin > 0.0, "above 0")
    }
}

/// Contrastive loss; see [`ContrastiveConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct Contrastive {
    #[module(skip)]
    config: ContrastiveConfig,
}

impl RankingLoss for Contrastive {
    fn forward(&self, embeddings: Tensor<2>, labels: Labels<'_>, _progress: Progress) -> LossOutput {
        let rows = ContrastiveRows { margin: self.config.margin };
        if let Some(output) = rows::forward(&rows, &embeddings, labels) {
            return output;
        }
        let [n, _] = embeddings.dims();
        let pairs = Pairs::new(labels, &embeddings);
        let distance = distances(&embeddings, &embeddings);
        let pull = distance.clone().square() * pairs.positives.clone();
        let push = hinge(distance.neg().add_scalar(self.config.margin)).square() * pairs.negatives.clone();
        let used = |cost: &Tensor<2>| counts(&indicator(cost.clone().greater_scalar(0.0), cost));
        let (mined_positives, mined_negatives) = (used(&pull), used(&push));
        let others = n.saturating_sub(1).max(1) as f64;
        let per_query = (pull + push).sum_dim(1).mul_scalar(1.0 / others);
        let queries =
            Queries { loss: column(&per_query), mined_positives, mined_negatives, ..pairs.queries() };
        LossOutput { value: per_query.sum().mul_scalar(1.0 / n.max(1) as f64), queries }
    }
}
