//! Triplet loss with the hardest negative: each positive pair with its anchor's nearest negative.
//!
//! The hard-negative form of FaceNet's triplet loss (Schroff et al., CVPR 2015), with distances instead of
//! their squares, that papers on ranking losses compare with.
//!
//! ```text
//! L = mean over (a, p) of [margin + d_ap - min_n d_an]_+
//! ```
//!
//! over the anchors that have a positive and a negative. **Held constant**: the choice of the negative. A
//! query's own loss is the mean over its positives.
//!
//! # Corner cases
//!
//! - Among equally near negatives one carries the gradient. The hinge has slope 0 at the kink.
//! - In a collapsed batch the value is `margin` and the gradient 0.
//! - A batch without a triplet has the value 0.
//!
//! The embeddings are L2-normalised by default. Memory and time: `O(n d)` and `O(n^2 d)`.

use burn::tensor::Device;
use gallerist_retrieval::search::Metric;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::engine::{Counts, List, ListLoss, ListValue, Listed, Measure, Real, lanes};
use crate::ranking::{AnyLoss, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};

/// Parameters of [`TripletHardNegative`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, Progress, RankingLoss, TripletHardNegativeConfig};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let loss = TripletHardNegativeConfig { margin: 0.1 }.init();
/// let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TripletHardNegativeConfig {
    /// Distance by which the nearest negative must be farther than a positive. 0.2.
    pub margin: f64,
}

impl Default for TripletHardNegativeConfig {
    fn default() -> Self {
        TripletHardNegativeConfig { margin: 0.2 }
    }
}

impl TripletHardNegativeConfig {
    /// The loss.
    pub fn init(&self) -> TripletHardNegative {
        Listed::new(self.clone())
    }
}

impl Named for TripletHardNegativeConfig {
    const NAME: &'static str = "triplet_hard_negative";
}

impl LossSpec for TripletHardNegativeConfig {
    fn build(&self, _: LossShape, _: u64, _: &Device) -> AnyLoss {
        self.init().boxed()
    }

    fn raw_metric(&self) -> Metric {
        Metric::Euclidean
    }

    fn takes_memory(&self) -> bool {
        true
    }

    fn scale_parameter(&self) -> Option<&'static str> {
        Some("margin")
    }

    fn validate(&self) -> Result<()> {
        in_range("margin", self.margin, self.margin >= 0.0, "0 or more")
    }
}

/// Triplet loss with the hardest negative; see [`TripletHardNegativeConfig`] for its parameters.
pub type TripletHardNegative = Listed<TripletHardNegativeConfig>;

impl ListLoss for TripletHardNegativeConfig {
    const MEASURE: Measure = Measure::Distance;

    fn factor(&self, counts: &Counts) -> f64 {
        1.0 / counts.positive_pairs_of_both.max(1) as f64
    }

    #[inline(always)]
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
        if !list.has_both() {
            return ListValue::default();
        }
        let nearest = lanes::smallest(list.negatives, |v| v);
        let offset = F::of(self.margin - nearest.wide());
        let loss = lanes::map_sum(list.positives, list.by_positives, |d| {
            let hinge = lanes::larger(d + offset, F::ZERO);
            (if hinge > F::ZERO { F::ONE } else { F::ZERO }, hinge)
        });
        let mined = lanes::count(list.by_positives, |by| by > F::ZERO);
        if mined > 0 {
            list.by_negatives[lanes::position(list.negatives, nearest)] = F::of(-f64::from(mined));
        }
        let positives = list.positives.len() as f64;
        ListValue {
            loss: loss.wide() / positives,
            weight: positives,
            mined_positives: mined,
            mined_negatives: u32::from(mined > 0),
            ..ListValue::default()
        }
    }
}
