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
//! batch's value is the mean over all triplets. With a miner (see [`crate::miner`]) the triplets are the mined ones.
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
use burn::tensor::{Device, IndexingUpdateOp, Int, Tensor};
use gallerist_retrieval::search::Metric;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use super::pairs::{Pairs, column, counts, hinge, indicator, row_blocks, total, with_gradient};
use super::rows::{self, AllTripletsRows};
use crate::Result;
use crate::lists::Lists;
use crate::miner::{self, MinerConfig};
use crate::ranking::{AnyLoss, LossOutput, PairLoss, Progress, Queries, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};
use gallerist_tensor::pairwise::host;

/// Parameters of [`TripletAll`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, Progress, RankingLoss, TripletAllConfig};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let loss = TripletAllConfig { margin: 0.3, ..Default::default() }.init();
/// let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TripletAllConfig {
    /// Squared distance by which a negative must be farther than a positive. 0.2.
    pub margin: f64,
    /// Which pairs take part; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub miner: Option<MinerConfig>,
}

impl Default for TripletAllConfig {
    fn default() -> Self {
        TripletAllConfig { margin: 0.2, miner: None }
    }
}

impl TripletAllConfig {
    /// The loss.
    pub fn init(&self) -> TripletAll {
        TripletAll { config: self.clone() }
    }
}

impl Named for TripletAllConfig {
    const NAME: &'static str = "triplet_all";
}

impl LossSpec for TripletAllConfig {
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
        in_range("margin", self.margin, self.margin >= 0.0, "0 or more")?;
        miner::validate(self.miner.as_ref())
    }
}

/// Triplet loss over all triplets; see [`TripletAllConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct TripletAll {
    #[module(skip)]
    config: TripletAllConfig,
}

impl PairLoss for TripletAll {
    fn forward_lists(&self, lists: &Lists<'_>, progress: Progress) -> LossOutput {
        let rows = AllTripletsRows { margin: self.config.margin };
        if self.config.miner.is_none()
            && let Some(output) = rows::forward(&rows, lists)
        {
            return output;
        }
        let [n, g] = lists.dims();
        let all = Pairs::new(lists);
        let mined = miner::in_force(self.config.miner.as_ref(), &all, lists, progress);
        let squared = lists.distances().square();
        if let Some(partners) = &mined.partners {
            return self.of_partners(squared, &mined.positives, partners.clone(), &all);
        }
        let pairs = mined.pairs();
        let held = squared.clone().detach();

        let (mut cost, mut active_p, mut active_n) = (Vec::new(), Vec::new(), Vec::new());
        for rows in row_blocks(n, g * g) {
            let b = rows.len();
            let block = |x: &Tensor<2>| x.clone().slice([rows.clone(), 0..g]);
            let gap = block(&held).reshape([b, g, 1]) - block(&held).reshape([b, 1, g]);
            let triplets =
                block(&pairs.positives).reshape([b, g, 1]) * block(&pairs.negatives).reshape([b, 1, g]);
            let excess = hinge(gap.add_scalar(self.config.margin)) * triplets;
            let active = excess.clone().greater_scalar(0.0).float().cast(held.dtype());
            cost.push(excess.sum_dim(2).reshape([b, g]).sum_dim(1));
            active_p.push(active.clone().sum_dim(2).reshape([b, g]));
            active_n.push(active.sum_dim(1).reshape([b, g]));
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
            ..all.queries()
        };
        LossOutput { value, queries }
    }
}

impl TripletAll {
    /// The loss over the triplets of each positive in force with its partner.
    fn of_partners(
        &self,
        squared: Tensor<2>,
        positives: &Tensor<2>,
        partners: Tensor<2, Int>,
        all: &Pairs,
    ) -> LossOutput {
        let gap = squared.clone() - squared.gather(1, partners.clone());
        let cost = hinge(gap.add_scalar(self.config.margin)) * positives.clone();
        let active = indicator(cost.clone().greater_scalar(0.0), &cost);
        let active_n = active.zeros_like().scatter(1, partners, active.clone(), IndexingUpdateOp::Add);
        let sums = cost.sum_dim(1);
        let queries = Queries {
            loss: column(&(sums.clone() / positives.clone().sum_dim(1).clamp_min(1.0))),
            mined_positives: counts(&active),
            mined_negatives: counts(&active_n.clamp_max(1.0)),
            ..all.queries()
        };
        LossOutput { value: sums.sum().mul_scalar(1.0 / total(positives).max(1.0)), queries }
    }
}
