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
//! the mean over the queries. With a memory of `m` it has `n - 1 + m`. With a miner (see [`crate::miner`]) both
//! means are over the pairs in force.
//!
//! # Corner cases
//!
//! - Coincident rows of two classes cost `margin^2` and have no direction: gradient 0.
//! - A batch of one sample has the value 0.
//!
//! The embeddings are L2-normalised by default. Memory and time: `O(n^2)` and `O(n^2 d)`.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use gallerist_retrieval::search::Metric;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use super::pairs::{Pairs, column, counts, hinge, indicator, total};
use super::rows::{self, ContrastiveRows};
use crate::Result;
use crate::lists::Lists;
use crate::miner::{self, MinerConfig};
use crate::ranking::{AnyLoss, LossOutput, PairLoss, Progress, Queries, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};

/// Parameters of [`Contrastive`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{ContrastiveConfig, Labels, Progress, RankingLoss};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let loss = ContrastiveConfig { margin: 0.5, ..Default::default() }.init();
/// let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ContrastiveConfig {
    /// Distance beyond which a negative costs nothing. 1.
    pub margin: f64,
    /// Which pairs take part; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub miner: Option<MinerConfig>,
}

impl Default for ContrastiveConfig {
    fn default() -> Self {
        ContrastiveConfig { margin: 1.0, miner: None }
    }
}

impl ContrastiveConfig {
    /// The loss.
    pub fn init(&self) -> Contrastive {
        Contrastive { config: self.clone() }
    }
}

impl Named for ContrastiveConfig {
    const NAME: &'static str = "contrastive";
}

impl LossSpec for ContrastiveConfig {
    fn build(&self, _: LossShape, _: u64, _: &Device) -> AnyLoss {
        self.init().boxed()
    }

    fn raw_metric(&self) -> Metric {
        Metric::Euclidean
    }

    fn takes_memory(&self) -> bool {
        true
    }

    fn takes_miner(&self) -> bool {
        true
    }

    fn scale_parameter(&self) -> Option<&'static str> {
        Some("margin")
    }

    fn validate(&self) -> Result<()> {
        in_range("margin", self.margin, self.margin > 0.0, "above 0")?;
        miner::validate(self.miner.as_ref())
    }
}

/// Contrastive loss; see [`ContrastiveConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct Contrastive {
    #[module(skip)]
    config: ContrastiveConfig,
}

impl PairLoss for Contrastive {
    fn forward_lists(&self, lists: &Lists<'_>, progress: Progress) -> LossOutput {
        let rows = ContrastiveRows { margin: self.config.margin };
        if self.config.miner.is_none()
            && let Some(output) = rows::forward(&rows, lists)
        {
            return output;
        }
        let pairs = Pairs::new(lists);
        let mined = miner::in_force(self.config.miner.as_ref(), &pairs, lists, progress);
        let distance = lists.distances();
        let pull = distance.clone().square() * mined.positives.clone();
        let push = hinge(distance.neg().add_scalar(self.config.margin)).square() * mined.negatives.clone();
        let used = |cost: &Tensor<2>| counts(&indicator(cost.clone().greater_scalar(0.0), cost));
        let (mined_positives, mined_negatives) = (used(&pull), used(&push));
        let sums = (pull + push).sum_dim(1);
        let weights = mined.positives + mined.negatives;
        let number = total(&weights).max(1.0);
        let per_query = sums.clone() / weights.sum_dim(1).clamp_min(1.0);
        let queries =
            Queries { loss: column(&per_query), mined_positives, mined_negatives, ..pairs.queries() };
        LossOutput { value: sums.sum().mul_scalar(1.0 / number), queries }
    }
}
