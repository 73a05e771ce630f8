//! Batch-hard triplet loss: each anchor with its farthest positive and its nearest negative.
//!
//! Hermans, Beyer, Leibe, "In Defense of the Triplet Loss for Person Re-Identification", 2017 (Eq. 5; the
//! soft margin in section 2).
//!
//! ```text
//! L = mean over anchors of [margin + max_p d_ap - min_n d_an]_+
//!   = mean over anchors of log(1 + exp(max_p d_ap - min_n d_an))    (soft)
//! ```
//!
//! over the anchors that have a positive and a negative. **Held constant**: the choice of the pairs.
//!
//! # Corner cases
//!
//! - Among ties one pair carries the gradient. The hinge has slope 0 at the kink.
//! - In a collapsed batch the value is `margin` (`log 2` if soft) and the gradient 0.
//! - A batch without a triplet has the value 0.
//!
//! The embeddings are as the network gives them; the paper does not normalise. They are compared as they were
//! trained, by the Euclidean distance: on Market-1501 (MobileNetV2, 100 steps) mAP .357 and CMC@1 .553, by the cosine
//! .371 and .548, which does not decide it. Memory and time: `O(n^2)` and `O(n^2 d)`.

use burn::module::Module;
use burn::tensor::Device;
use gallerist_retrieval::search::Metric;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use super::pairs::{Pairs, column, counts, hinge, indicator, mean_among, row_max, row_min, softplus};
use super::rows::{self, BatchHardRows};
use crate::Result;
use crate::lists::Lists;
use crate::ranking::{AnyLoss, LossOutput, PairLoss, Progress, Queries, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};

/// Parameters of [`TripletBatchHard`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, Progress, RankingLoss, TripletBatchHardConfig};
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let loss = TripletBatchHardConfig { soft: true, ..Default::default() }.init();
/// let output = loss.forward(embeddings.clone(), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TripletBatchHardConfig {
    /// Distance by which the nearest negative must be farther than the farthest positive; not used if `soft`.
    /// 0.2; the paper tries 0.1 to 1.
    pub margin: f64,
    /// Softplus instead of the hinge, without a margin.
    pub soft: bool,
}

impl Default for TripletBatchHardConfig {
    fn default() -> Self {
        TripletBatchHardConfig { margin: 0.2, soft: false }
    }
}

impl TripletBatchHardConfig {
    /// The mean distance between rows at which training begins well
    /// ([`LossConfig::initial_distance`](super::LossConfig::initial_distance)).
    pub const INITIAL_DISTANCE: f64 = 5.0;

    /// The loss.
    pub fn init(&self) -> TripletBatchHard {
        TripletBatchHard { config: self.clone() }
    }
}

impl Named for TripletBatchHardConfig {
    const NAME: &'static str = "triplet_batch_hard";
}

impl LossSpec for TripletBatchHardConfig {
    fn build(&self, _: LossShape, _: u64, _: &Device) -> AnyLoss {
        self.init().boxed()
    }

    fn normalized(&self) -> bool {
        false
    }

    fn raw_metric(&self) -> Metric {
        Metric::Euclidean
    }

    fn takes_memory(&self) -> bool {
        true
    }

    fn initial_distance(&self) -> Option<f64> {
        Some(TripletBatchHardConfig::INITIAL_DISTANCE)
    }

    fn scale_parameter(&self) -> Option<&'static str> {
        (!self.soft).then_some("margin")
    }

    fn validate(&self) -> Result<()> {
        in_range("margin", self.margin, self.margin >= 0.0, "0 or more")
    }
}

/// Batch-hard triplet loss; see [`TripletBatchHardConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct TripletBatchHard {
    #[module(skip)]
    config: TripletBatchHardConfig,
}

impl PairLoss for TripletBatchHard {
    fn forward_lists(&self, lists: &Lists<'_>, _progress: Progress) -> LossOutput {
        let rows = BatchHardRows { margin: self.config.margin, soft: self.config.soft };
        if let Some(output) = rows::forward(&rows, lists) {
            return output;
        }
        let pairs = Pairs::new(lists);
        let distance = lists.distances();
        let both = pairs.both();
        let gap = row_max(&distance, &pairs.positives) - row_min(&distance, &pairs.negatives);
        let cost = if self.config.soft { softplus(gap) } else { hinge(gap.add_scalar(self.config.margin)) };
        let per_query = cost * both.clone();
        let active = counts(&indicator(per_query.clone().greater_scalar(0.0), &both));
        let queries = Queries {
            loss: column(&per_query),
            mined_positives: active.clone(),
            mined_negatives: active,
            ..pairs.queries()
        };
        LossOutput { value: mean_among(&per_query, &both), queries }
    }
}
