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
//! .371 and .548, which does not decide it. The loss falls fastest where all distances shrink, and a network with frozen
//! statistics of batch norm can do that: it collapses (docs/results/srt-market.md). Memory and time: `O(n d)` and `O(n^2 d)`.

use burn::tensor::Device;
use gallerist_retrieval::search::Metric;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::engine::{Counts, List, ListLoss, ListValue, Listed, Measure, Real, lanes};
use crate::ranking::{AnyLoss, RankingLoss};
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
    /// ([`LossSpec::initial_distance`](crate::LossSpec::initial_distance)).
    pub const INITIAL_DISTANCE: f64 = 5.0;

    /// The loss.
    pub fn init(&self) -> TripletBatchHard {
        Listed::new(self.clone())
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
pub type TripletBatchHard = Listed<TripletBatchHardConfig>;

impl ListLoss for TripletBatchHardConfig {
    const MEASURE: Measure = Measure::Distance;

    fn factor(&self, counts: &Counts) -> f64 {
        1.0 / counts.both.max(1) as f64
    }

    #[inline(always)]
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
        if !list.has_both() {
            return ListValue::default();
        }
        let farthest = lanes::largest(list.positives, |v| v);
        let nearest = lanes::smallest(list.negatives, |v| v);
        let gap = farthest.wide() - nearest.wide();
        let (loss, slope) = if self.soft {
            (lanes::softplus(gap), 1.0 / (1.0 + (-gap).exp()))
        } else {
            let hinge = (self.margin + gap).max(0.0);
            (hinge, if hinge > 0.0 { 1.0 } else { 0.0 })
        };
        if slope > 0.0 {
            list.by_positives[lanes::position(list.positives, farthest)] = F::of(slope);
            list.by_negatives[lanes::position(list.negatives, nearest)] = F::of(-slope);
        }
        let mined = u32::from(slope > 0.0);
        ListValue { loss, mined_positives: mined, mined_negatives: mined, ..ListValue::default() }
    }
}
