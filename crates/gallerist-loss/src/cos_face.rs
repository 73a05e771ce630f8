//! CosFace: softmax over cosines, with a margin taken off the cosine of the sample's own class.
//!
//! Wang et al., "CosFace: Large Margin Cosine Loss for Deep Face Recognition", CVPR 2018 (Eq. 4).
//! Normalised embeddings. With `w_z` scaled to length 1:
//!
//! ```text
//! L_i = -log( e^(s (w_y.x_i - m)) / (e^(s (w_y.x_i - m)) + sum over z != y of e^(s w_z.x_i)) )
//! L   = mean of L_i over the batch
//! ```
//!
//! **Held constant**: nothing; embeddings and weights learn. The embeddings are taken as they are;
//! pytorch-metric-learning's `CosFaceLoss` normalises them too, which is the same on normalised
//! embeddings.
//!
//! # Corner cases
//!
//! As for [`Softmax`](super::Softmax). A weight of zeros has the cosine 0 and gets no gradient.
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

/// Parameters of [`CosFace`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{CosFaceConfig, Labels, LossShape, Progress, RankingLoss};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let shape = LossShape { classes: 3, dimensions: 8 };
/// let loss = CosFaceConfig { scale: 30.0, ..Default::default() }.init(shape, 1, &device);
/// let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CosFaceConfig {
    /// Factor on the cosines, `s`. 64 in the paper.
    pub scale: f64,
    /// What is taken off the own class's cosine, `m`. 0.35 in the paper.
    pub margin: f64,
}

impl Default for CosFaceConfig {
    fn default() -> Self {
        CosFaceConfig { scale: 12.0, margin: 0.37 }
    }
}

impl CosFaceConfig {
    /// The loss, its weights in directions drawn from `seed`.
    pub fn init(&self, shape: LossShape, seed: u64, device: &Device) -> CosFace {
        let weight = init::directions(seed, "cos_face.weight", [shape.classes, shape.dimensions], device);
        CosFace { weight, config: self.clone() }
    }
}

impl Named for CosFaceConfig {
    const NAME: &'static str = "cos_face";
}

impl LossSpec for CosFaceConfig {
    fn build(&self, shape: LossShape, seed: u64, device: &Device) -> AnyLoss {
        self.init(shape, seed, device).boxed()
    }

    fn scale_parameter(&self) -> Option<&'static str> {
        Some("scale")
    }

    fn validate(&self) -> Result<()> {
        in_range("scale", self.scale, self.scale > 0.0, "above 0")?;
        in_range("margin", self.margin, self.margin >= 0.0, "0 or more")
    }
}

/// CosFace; see [`CosFaceConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct CosFace {
    /// `[classes, d]`; only the direction of a row counts.
    pub weight: Param<Tensor<2>>,
    #[module(skip)]
    config: CosFaceConfig,
}

impl RankingLoss for CosFace {
    fn forward(&self, embeddings: Tensor<2>, labels: Labels<'_>, progress: Progress) -> LossOutput {
        let weight = l2_normalize(self.weight.val().cast(embeddings.dtype()));
        forward_among(self.config.clone(), &embeddings, labels, &weight, 1, "weight", progress)
    }
}

impl ListLoss for CosFaceConfig {
    const MEASURE: Measure = Measure::Similarity;

    #[inline(always)]
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
        let CosFaceConfig { scale, margin } = *self;
        cross_entropy(list, scale, Denominator::WithOwn, |_, v| (scale * (v - margin), scale))
    }
}
