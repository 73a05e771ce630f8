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
//! Memory and time: `O(n classes)` and `O(n classes d)`.
//!
//! Tensor code, not a list loss: its gallery is the class weights, which get a gradient of their own.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use super::classify::{Denominator, Targets, classification};
use super::init;
use crate::Result;
use crate::labels::Labels;
use crate::ranking::{AnyLoss, LossOutput, Progress, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};
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
        ArcFaceConfig { scale: 64.0, margin: 0.5 }
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

/// `cos(theta + margin)` of the unit rows `a` and `b`, its derivative written out.
fn cosine_with_margin(a: Tensor<2>, b: Tensor<2>, margin: f64) -> Tensor<2> {
    let cosine = (a.clone() * b.clone()).sum_dim(1);
    let at = cosine.clone().detach();
    let (a, b) = (a.detach(), b.detach());
    // |a - b| = 2 sin(theta / 2) and |a + b| = 2 cos(theta / 2).
    let chords = (a.clone() - b.clone()).square().sum_dim(1) * (a.clone() + b.clone()).square().sum_dim(1);
    let lengths = a.square().sum_dim(1) * b.square().sum_dim(1);
    let sine = chords.sqrt().mul_scalar(0.5).mask_fill(lengths.equal_scalar(0.0), 1.0);
    let (sin_m, cos_m) = margin.sin_cos();
    let turned = at.clone().mul_scalar(cos_m) - sine.clone().mul_scalar(sin_m);
    // sin(theta + m) / sin theta = cos m + sin m cos theta / sin theta.
    let aligned = sine.clone().equal_scalar(0.0);
    let slope = at.clone() / sine.mask_fill(aligned.clone(), 1.0);
    let slope = slope.mul_scalar(sin_m).add_scalar(cos_m).mask_fill(aligned, 0.0);
    // theta + m > pi.
    let beyond = at.clone().lower_scalar(-cos_m);
    let turned = turned.mask_where(beyond.clone(), at.clone().sub_scalar(margin * sin_m));
    let slope = slope.mask_fill(beyond, 1.0);
    turned + (cosine - at) * slope
}

impl RankingLoss for ArcFace {
    fn forward(&self, embeddings: Tensor<2>, labels: Labels<'_>, _progress: Progress) -> LossOutput {
        let ArcFaceConfig { scale, margin } = self.config;
        let embeddings = l2_normalize(embeddings);
        let weight = l2_normalize(self.weight.val().cast(embeddings.dtype()));
        let targets = Targets::new(labels, weight.dims()[0], "weight", &embeddings);
        let logits = embeddings.clone().matmul(weight.clone().transpose()).mul_scalar(scale);
        let own = match targets.is_empty() {
            true => logits.clone(),
            false => cosine_with_margin(targets.of_samples(&embeddings), targets.of_classes(&weight), margin)
                .mul_scalar(scale),
        };
        classification(own, logits, &targets, Denominator::WithOwn)
    }
}
