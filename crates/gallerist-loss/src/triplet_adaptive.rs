//! Adaptively weighted triplet loss: all positives and negatives of an anchor, the far positives and the near
//! negatives counting most.
//!
//! Ristani, Tomasi, "Features for Multi-Target Multi-Camera Tracking and Re-Identification", CVPR 2018.
//!
//! ```text
//! w_p = exp(d_ap) / sum over positives of exp(d_ap),   w_n = exp(-d_an) / sum over negatives of exp(-d_an)
//! L   = mean over anchors of [margin + sum_p w_p d_ap - sum_n w_n d_an]_+
//! ```
//!
//! over the anchors that have a positive and a negative. **Held constant**: nothing, the weights are
//! differentiated too.
//!
//! # Corner cases
//!
//! - The largest exponent is subtracted before `exp`. The hinge has slope 0 at the kink.
//! - In a collapsed batch the value is `margin` and the gradient 0.
//! - A batch without a triplet has the value 0.
//!
//! The embeddings are as the network gives them; the paper does not normalise. They are compared as they were
//! trained, by the Euclidean distance. Memory and time: `O(n d)` and `O(n^2 d)`.

use burn::tensor::Device;
use gallerist_retrieval::search::Metric;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::engine::{Counts, List, ListLoss, ListValue, Listed, Measure, Real, lanes};
use crate::ranking::{AnyLoss, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};

/// Parameters of [`TripletAdaptive`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, Progress, RankingLoss, TripletAdaptiveConfig};
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let loss = TripletAdaptiveConfig::default().init();
/// let output = loss.forward(embeddings.clone(), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TripletAdaptiveConfig {
    /// Distance by which the negatives must be farther than the positives. 1 is common.
    pub margin: f64,
}

impl Default for TripletAdaptiveConfig {
    fn default() -> Self {
        TripletAdaptiveConfig { margin: 4.5 }
    }
}

impl TripletAdaptiveConfig {
    /// The mean distance between rows at which training begins well
    /// ([`LossSpec::initial_distance`](crate::LossSpec::initial_distance)).
    pub const INITIAL_DISTANCE: f64 = 5.0;

    /// The loss.
    pub fn init(&self) -> TripletAdaptive {
        Listed::new(self.clone())
    }
}

impl Named for TripletAdaptiveConfig {
    const NAME: &'static str = "triplet_adaptive";
}

impl LossSpec for TripletAdaptiveConfig {
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
        Some(TripletAdaptiveConfig::INITIAL_DISTANCE)
    }

    fn scale_parameter(&self) -> Option<&'static str> {
        Some("margin")
    }

    fn validate(&self) -> Result<()> {
        in_range("margin", self.margin, self.margin >= 0.0, "0 or more")
    }
}

/// Adaptively weighted triplet loss; see [`TripletAdaptiveConfig`] for its parameters.
pub type TripletAdaptive = Listed<TripletAdaptiveConfig>;

/// The softmax of `sign * value` as weights in `to`, and the weighted mean of the values.
#[inline(always)]
fn soft_extreme<F: Real>(values: &[F], to: &mut [F], sign: F) -> F {
    let present = |v: F| v < F::INFINITY;
    let largest = lanes::largest(values, |v| if present(v) { sign * v } else { F::NEG_INFINITY });
    let total = lanes::map_sum(values, to, |v| {
        let raw = if present(v) { (sign * v - largest).exp() } else { F::ZERO };
        (raw, raw)
    });
    lanes::scale(to, F::ONE / total);
    lanes::weighted_sum(to, values, |v| if present(v) { v } else { F::ZERO })
}

impl ListLoss for TripletAdaptiveConfig {
    const MEASURE: Measure = Measure::Distance;

    fn factor(&self, counts: &Counts) -> f64 {
        1.0 / counts.both.max(1) as f64
    }

    #[inline(always)]
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
        if !list.has_both() {
            return ListValue::default();
        }
        let far = soft_extreme(list.positives, list.by_positives, F::ONE);
        let near = soft_extreme(list.negatives, list.by_negatives, -F::ONE);
        let hinge = self.margin + far.wide() - near.wide();
        if hinge > 0.0 {
            lanes::update(list.by_positives, list.positives, |by, d| by * (F::ONE + d - far));
            lanes::update(list.by_negatives, list.negatives, |by, d| {
                if d < F::INFINITY { by * (d - near - F::ONE) } else { F::ZERO }
            });
            ListValue {
                loss: hinge,
                mined_positives: list.positives.len() as u32,
                mined_negatives: list.negative_count as u32,
                ..ListValue::default()
            }
        } else {
            list.by_positives.fill(F::ZERO);
            list.by_negatives.fill(F::ZERO);
            ListValue::default()
        }
    }
}
