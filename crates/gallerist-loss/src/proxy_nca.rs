//! Proxy-NCA: one learnt proxy a class; pull each sample to the proxy of its class and push it away
//! from the others, the near ones first.
//!
//! Movshovitz-Attias et al., "No Fuss Distance Metric Learning using Proxies", ICCV 2017 (Eq. 4), as the
//! ranked list papers print it (Eq. 5).
//!
//! With `p_z` the proxy of class `z` scaled to length 1 and `d` the **squared** Euclidean distance:
//!
//! ```text
//! L_i = -log( exp(-scale d(x_i, p_y)) / sum over z != y of exp(-scale d(x_i, p_z)) )
//! L   = mean of L_i over the batch
//! ```
//!
//! **The positive is not in the denominator**, so the loss has no lower bound. pytorch-metric-learning's
//! `ProxyNCALoss` and ProxyNCA++ put it there; that is [`NormSoftmax`](super::NormSoftmax) with
//! temperature `1 / (2 scale)`.
//!
//! **Held constant**: nothing; embeddings and proxies learn.
//!
//! # Corner cases
//!
//! - With one class only there is nothing to push away: loss 0.
//! - The term `|x|^2` is the same for all proxies and cancels; it is left out, so that long embeddings
//!   keep their digits. Zero embeddings and proxies are finite.
//! - A sample with a set of labels has the mean over them; none of the set is among the others.
//!
//! Memory and time: `O((n + classes) d)` and `O(n classes d)`.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use gallerist_retrieval::search::Metric;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::engine::{List, ListLoss, ListValue, Measure, Real};
use crate::labels::Labels;
use crate::proxies::{Denominator, cross_entropy, forward_among, with_offsets};
use crate::ranking::{AnyLoss, LossOutput, Progress, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};
use crate::{Result, init};
use gallerist_tensor::pairwise::l2_normalize;

/// Parameters of [`ProxyNca`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, LossShape, Progress, ProxyNcaConfig, RankingLoss};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let shape = LossShape { classes: 3, dimensions: 8 };
/// let loss = ProxyNcaConfig { scale: 3.0 }.init(shape, 1, &device);
/// let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProxyNcaConfig {
    /// Factor on the squared distances. 1 as printed; later work finds 3 to 9 better.
    pub scale: f64,
}

impl Default for ProxyNcaConfig {
    fn default() -> Self {
        ProxyNcaConfig { scale: 2.7 }
    }
}

impl ProxyNcaConfig {
    /// The loss, its proxies in directions drawn from `seed`.
    pub fn init(&self, shape: LossShape, seed: u64, device: &Device) -> ProxyNca {
        let proxies = init::directions(seed, "proxy_nca.proxies", [shape.classes, shape.dimensions], device);
        ProxyNca { proxies, config: self.clone() }
    }
}

impl Named for ProxyNcaConfig {
    const NAME: &'static str = "proxy_nca";
}

impl LossSpec for ProxyNcaConfig {
    fn build(&self, shape: LossShape, seed: u64, device: &Device) -> AnyLoss {
        self.init(shape, seed, device).boxed()
    }

    fn raw_metric(&self) -> Metric {
        Metric::Euclidean
    }

    fn scale_parameter(&self) -> Option<&'static str> {
        Some("scale")
    }

    fn validate(&self) -> Result<()> {
        in_range("scale", self.scale, self.scale > 0.0, "above 0")
    }
}

/// Proxy-NCA; see [`ProxyNcaConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct ProxyNca {
    /// `[classes, d]`; only the direction of a row counts.
    pub proxies: Param<Tensor<2>>,
    #[module(skip)]
    config: ProxyNcaConfig,
}

impl RankingLoss for ProxyNca {
    fn forward(&self, embeddings: Tensor<2>, labels: Labels<'_>, progress: Progress) -> LossOutput {
        let proxies = l2_normalize(self.proxies.val().cast(embeddings.dtype()));
        // -d = 2 (x.p - |p|^2 / 2) - |x|^2, and the last cancels.
        let lengths = proxies.clone().square().sum_dim(1).mul_scalar(-0.5);
        let (embeddings, proxies) = with_offsets(embeddings, proxies, lengths);
        forward_among(self.config.clone(), &embeddings, labels, &proxies, 1, "proxy", progress)
    }
}

impl ListLoss for ProxyNcaConfig {
    const MEASURE: Measure = Measure::Similarity;

    #[inline(always)]
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
        let scale = 2.0 * self.scale;
        cross_entropy(list, scale, Denominator::OthersOnly, |_, v| (scale * v, scale))
    }
}
