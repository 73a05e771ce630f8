//! ArcFace: softmax over cosines, with a margin added to the angle of the sample's own class.
//!
//! Deng et al., "ArcFace: Additive Angular Margin Loss for Deep Face Recognition", CVPR 2019 (Eq. 3). With
//! `theta_z` the angle between the embedding and the weight `w_z`:
//!
//! ```text
//! L_i = -log( e^(s cos(theta_y + m)) / (e^(s cos(theta_y + m)) + sum over z != y of e^(s cos theta_z)) )
//! L   = mean of L_i over the batch
//! ```
//!
//! Where `theta_y + m` exceeds pi the cosine would rise again; there `cos theta_y - m sin m` stands in its
//! place, as in the authors' released layer and in pytorch-metric-learning's `ArcFaceLoss` (whose margin
//! is given in degrees).
//!
//! **Held constant**: nothing; embeddings and weights learn. The loss depends on angles, so the length of
//! an embedding does not matter; it is divided out here.
//!
//! # Corner cases
//!
//! - As for [`Softmax`](super::Softmax).
//! - The derivative of `cos(theta + m)` by `cos theta` is `sin(theta + m) / sin theta`, infinite at 0. An embedding
//!   in its weight's direction has no direction to be turned in: that pair's gradient is 0. Near it the sine is
//!   computed from the difference of the two unit vectors, which keeps its digits.
//! - An embedding or a weight of zeros counts as perpendicular to everything and gets no gradient.
//!
//! Memory and time: `O((n + classes) d)` and `O(n classes d)`.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::engine::{List, ListLoss, ListValue, Measure, Real};
use crate::labels::Labels;
use crate::proxies::{Denominator, cross_entropy, forward_among};
use crate::ranking::{AnyLoss, LossOutput, Progress, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};
use crate::{Result, init};
use gallerist_tensor::pairwise::l2_normalize;

/// Parameters of [`ArcFace`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{ArcFaceConfig, Labels, LossShape, Progress, RankingLoss};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let shape = LossShape { classes: 3, dimensions: 8 };
/// let loss = ArcFaceConfig { scale: 30.0, ..Default::default() }.init(shape, 1, &device);
/// let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ArcFaceConfig {
    /// Factor on the cosines, `s`. 64 in the paper.
    pub scale: f64,
    /// What is added to the own class's angle, `m`, in radians. 0.5 in the paper.
    pub margin: f64,
}

impl Default for ArcFaceConfig {
    fn default() -> Self {
        ArcFaceConfig { scale: 14.0, margin: 0.32 }
    }
}

impl ArcFaceConfig {
    /// The loss, its weights in directions drawn from `seed`.
    pub fn init(&self, shape: LossShape, seed: u64, device: &Device) -> ArcFace {
        let weight = init::directions(seed, "arc_face.weight", [shape.classes, shape.dimensions], device);
        ArcFace { weight, config: self.clone() }
    }
}

impl Named for ArcFaceConfig {
    const NAME: &'static str = "arc_face";
}

impl LossSpec for ArcFaceConfig {
    fn build(&self, shape: LossShape, seed: u64, device: &Device) -> AnyLoss {
        self.init(shape, seed, device).boxed()
    }

    fn scale_parameter(&self) -> Option<&'static str> {
        Some("scale")
    }

    fn validate(&self) -> Result<()> {
        in_range("scale", self.scale, self.scale > 0.0, "above 0")?;
        let fits = (0.0..=std::f64::consts::FRAC_PI_2).contains(&self.margin);
        in_range("margin", self.margin, fits, "an angle from 0 to pi/2")
    }
}

/// ArcFace; see [`ArcFaceConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct ArcFace {
    /// `[classes, d]`; only the direction of a row counts.
    pub weight: Param<Tensor<2>>,
    #[module(skip)]
    config: ArcFaceConfig,
}

impl RankingLoss for ArcFace {
    fn forward(&self, embeddings: Tensor<2>, labels: Labels<'_>, progress: Progress) -> LossOutput {
        let embeddings = l2_normalize(embeddings);
        let weight = l2_normalize(self.weight.val().cast(embeddings.dtype()));
        forward_among(self.config.clone(), &embeddings, labels, &weight, 1, "weight", progress)
    }
}

impl ListLoss for ArcFaceConfig {
    const MEASURE: Measure = Measure::Similarity;
    const POSITIVE_DISTANCES: bool = true;

    #[inline(always)]
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
        let ArcFaceConfig { scale, margin } = *self;
        let (own, distances) = (list.own.wide(), list.distances);
        cross_entropy(list, scale, Denominator::WithOwn, |at, cosine| {
            let (turned, slope) = cosine_with_margin(cosine, distances[at].wide(), own, margin);
            (scale * turned, scale * slope)
        })
    }
}

/// `cos(theta + margin)` and its derivative by `cos theta`, for two rows of length 1 or 0: their inner product, their
/// distance, and the squared length of one.
#[inline(always)]
fn cosine_with_margin(cosine: f64, distance: f64, own: f64, margin: f64) -> (f64, f64) {
    // |a - b| = 2 sin(theta / 2) and |a + b| = 2 cos(theta / 2).
    let difference = distance * distance;
    let other = difference + 2.0 * cosine - own;
    let sum = (2.0 * (own + other) - difference).max(0.0);
    let is_zero = own * other < 0.5;
    let sine = if is_zero { 1.0 } else { 0.5 * (difference * sum).sqrt() };
    let (sin_m, cos_m) = margin.sin_cos();
    // theta + m > pi.
    if cosine < -cos_m {
        return (cosine - margin * sin_m, 1.0);
    }
    // sin(theta + m) / sin theta = cos m + sin m cos theta / sin theta.
    let slope = if sine > 0.0 { cos_m + sin_m * cosine / sine } else { 0.0 };
    (cosine * cos_m - sine * sin_m, slope)
}
