//! SoftMax-norm: softmax over the classes with weights of length 1 and a temperature.
//!
//! Zhai & Wu, "Classification is a Strong Baseline for Deep Metric Learning", BMVC 2019 (Eq. 2), and the
//! baseline `SoftMax_norm` of Qian et al., ICCV 2019 (Eq. 4, with `lambda = 1 / temperature`). Normalised
//! embeddings. With `w_z` scaled to length 1:
//!
//! ```text
//! L_i = -log( exp(w_y.x_i / temperature) / sum over all z of exp(w_z.x_i / temperature) )
//! L   = mean of L_i over the batch
//! ```
//!
//! **Held constant**: nothing; embeddings and weights learn. The embeddings are taken as they are.
//! pytorch-metric-learning's `NormalizedSoftmaxLoss` normalises them too, which is the same on
//! normalised embeddings.
//!
//! # Corner cases
//!
//! As for [`Softmax`](super::Softmax). A weight of zeros has the similarity 0 and gets no gradient.
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

/// Parameters of [`NormSoftmax`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, LossShape, NormSoftmaxConfig, Progress, RankingLoss};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let shape = LossShape { classes: 3, dimensions: 8 };
/// let loss = NormSoftmaxConfig { temperature: 0.1 }.init(shape, 1, &device);
/// let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NormSoftmaxConfig {
    /// Temperature of the similarities. 0.05 in both papers.
    pub temperature: f64,
}

impl Default for NormSoftmaxConfig {
    fn default() -> Self {
        NormSoftmaxConfig { temperature: 0.12 }
    }
}

impl NormSoftmaxConfig {
    /// The loss, its weights in directions drawn from `seed`.
    pub fn init(&self, shape: LossShape, seed: u64, device: &Device) -> NormSoftmax {
        let weight = init::directions(seed, "norm_softmax.weight", [shape.classes, shape.dimensions], device);
        NormSoftmax { weight, config: self.clone() }
    }
}

impl Named for NormSoftmaxConfig {
    const NAME: &'static str = "norm_softmax";
}

impl LossSpec for NormSoftmaxConfig {
    fn build(&self, shape: LossShape, seed: u64, device: &Device) -> AnyLoss {
        self.init(shape, seed, device).boxed()
    }

    fn scale_parameter(&self) -> Option<&'static str> {
        Some("temperature")
    }

    fn validate(&self) -> Result<()> {
        in_range("temperature", self.temperature, self.temperature > 0.0, "above 0")
    }
}

/// SoftMax-norm; see [`NormSoftmaxConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct NormSoftmax {
    /// `[classes, d]`; only the direction of a row counts.
    pub weight: Param<Tensor<2>>,
    #[module(skip)]
    config: NormSoftmaxConfig,
}

impl RankingLoss for NormSoftmax {
    fn forward(&self, embeddings: Tensor<2>, labels: Labels<'_>, progress: Progress) -> LossOutput {
        let weight = l2_normalize(self.weight.val().cast(embeddings.dtype()));
        forward_among(self.config.clone(), &embeddings, labels, &weight, 1, "weight", progress)
    }
}

impl ListLoss for NormSoftmaxConfig {
    const MEASURE: Measure = Measure::Similarity;

    #[inline(always)]
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
        let scale = 1.0 / self.temperature;
        cross_entropy(list, scale, Denominator::WithOwn, |_, v| (scale * v, scale))
    }
}
