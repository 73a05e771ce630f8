//! Softmax: cross entropy of a linear classifier over the embedding (CCE).
//!
//! The classification baseline of the ranking papers (Schall et al. 2019 call it CCE). With the
//! classifier's weights `w_z` and biases `b_z`:
//!
//! ```text
//! L_i = -log( exp(w_y.x_i + b_y) / sum over all z of exp(w_z.x_i + b_z) )
//! L   = mean of L_i over the batch
//! ```
//!
//! **Held constant**: nothing; embeddings, weights and biases learn.
//!
//! # Corner cases
//!
//! - With one class only the loss is 0.
//! - The gradient's `1 - p` is computed from the other classes, not by subtraction, so that it keeps its
//!   digits where `p` is near 1; no logit overflows.
//! - A sample with a set of labels has the mean over them; for each, the others of the set are left out of the
//!   sum.
//!
//! Memory and time: `O((n + classes) d)` and `O(n classes d)`.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::engine::{List, ListLoss, ListValue, Measure, Real};
use crate::init;
use crate::labels::Labels;
use crate::proxies::{Denominator, cross_entropy, forward_among, with_offsets};
use crate::ranking::{AnyLoss, LossOutput, Progress, RankingLoss};
use crate::spec::{LossShape, LossSpec};

/// Parameters of [`Softmax`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, LossShape, Progress, RankingLoss, SoftmaxConfig};
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let shape = LossShape { classes: 3, dimensions: 8 };
/// let loss = SoftmaxConfig { bias: false }.init(shape, 1, &device);
/// let output = loss.forward(embeddings.clone(), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SoftmaxConfig {
    /// Whether each class has a bias. True as usual for a classifier.
    pub bias: bool,
}

impl Default for SoftmaxConfig {
    fn default() -> Self {
        SoftmaxConfig { bias: true }
    }
}

impl SoftmaxConfig {
    /// The loss; weights and biases uniform within `1 / sqrt(d)`, drawn from `seed`.
    pub fn init(&self, shape: LossShape, seed: u64, device: &Device) -> Softmax {
        let bound = 1.0 / (shape.dimensions.max(1) as f64).sqrt();
        let weight = init::uniform(seed, "softmax.weight", [shape.classes, shape.dimensions], bound, device);
        let bias = self.bias.then(|| init::uniform(seed, "softmax.bias", [shape.classes], bound, device));
        Softmax { weight, bias }
    }
}

impl Named for SoftmaxConfig {
    const NAME: &'static str = "softmax";
}

impl LossSpec for SoftmaxConfig {
    fn build(&self, shape: LossShape, seed: u64, device: &Device) -> AnyLoss {
        self.init(shape, seed, device).boxed()
    }

    fn normalized(&self) -> bool {
        false
    }
}

/// Softmax cross entropy; see [`SoftmaxConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct Softmax {
    /// `[classes, d]`.
    pub weight: Param<Tensor<2>>,
    /// `[classes]`.
    pub bias: Option<Param<Tensor<1>>>,
}

impl RankingLoss for Softmax {
    fn forward(&self, embeddings: Tensor<2>, labels: Labels<'_>, progress: Progress) -> LossOutput {
        let dtype = embeddings.dtype();
        let (mut embeddings, mut weight) = (embeddings, self.weight.val().cast(dtype));
        if let Some(bias) = &self.bias {
            let bias = bias.val().cast(dtype).unsqueeze_dim(1);
            (embeddings, weight) = with_offsets(embeddings, weight, bias);
        }
        let loss = SoftmaxConfig { bias: self.bias.is_some() };
        forward_among(loss, &embeddings, labels, &weight, 1, "weight", progress)
    }
}

impl ListLoss for SoftmaxConfig {
    const MEASURE: Measure = Measure::Similarity;

    #[inline(always)]
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
        cross_entropy(list, 1.0, Denominator::WithOwn, |_, v| (v, 1.0))
    }
}
