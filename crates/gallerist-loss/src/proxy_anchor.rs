//! Proxy-Anchor: every proxy is an anchor that pulls the samples of its class and pushes the others,
//! the hard ones first.
//!
//! Kim et al., "Proxy Anchor Loss for Deep Metric Learning", CVPR 2020 (Eq. 4). Normalised embeddings. With `p`
//! a class's proxy scaled to length 1, `P` all proxies and `P+` those with a sample in the batch:
//!
//! ```text
//! L = 1/|P+| sum over p in P+ of log(1 + sum over samples x of p's class   of exp(-alpha (x.p - delta)))
//!   + 1/|P|  sum over p in P  of log(1 + sum over samples x of the others  of exp(+alpha (x.p + delta)))
//! ```
//!
//! **Held constant**: nothing; embeddings and proxies learn. The embeddings are taken as they are;
//! pytorch-metric-learning's `ProxyAnchorLoss` normalises them too, which is the same on normalised
//! embeddings.
//!
//! The loss has one term a proxy. The loss of a query is its share in those terms by its weight there, times
//! `n`, so that the mean over the queries is the value.
//!
//! # Corner cases
//!
//! - A class without a sample in the batch only pushes. A batch of one class of one only pulls.
//! - The largest exponent is subtracted before `exp`, so no `alpha` overflows.
//! - A sample with a set of labels is pulled by all its proxies and pushed by the others.
//!
//! Memory and time: `O(n classes)` and `O(n classes d)`.
//!
//! Tensor code, not a list loss: its gallery is the proxies, which get a gradient of their own.

use burn::module::{Module, Param};
use burn::tensor::{Bool, Device, Tensor, activation};
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use super::classify::{Targets, count_nonzero, log_sum_exp};
use super::init;
use crate::Result;
use crate::labels::Labels;
use crate::ranking::{AnyLoss, LossOutput, Progress, Queries, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};
use crate::toolbox::softplus;
use gallerist_tensor::pairwise::{host, l2_normalize};

/// Parameters of [`ProxyAnchor`].
///
/// # Example: a loss with parameters of its own in a training loop
///
/// ```
/// use burn::optim::GradientsParams;
/// use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, LossShape, Progress, ProxyAnchorConfig, RankingLoss};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// let device = Device::flex().autodiff();
/// let loss = ProxyAnchorConfig::default().init(LossShape { classes: 3, dimensions: 8 }, 1, &device);
///
/// let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// // For an optimiser's step on the proxies.
/// let gradients = GradientsParams::from_grads(gradients, &loss);
/// assert_eq!(gradients.len(), 1);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ProxyAnchorConfig {
    /// Factor on the similarities. 32 in the paper.
    pub alpha: f64,
    /// Margin of the similarities, `delta`. 0.1 in the paper.
    pub delta: f64,
}

impl Default for ProxyAnchorConfig {
    fn default() -> Self {
        ProxyAnchorConfig { alpha: 32.0, delta: 0.1 }
    }
}

impl ProxyAnchorConfig {
    /// The loss, its proxies in directions drawn from `seed`.
    pub fn init(&self, shape: LossShape, seed: u64, device: &Device) -> ProxyAnchor {
        let proxies =
            init::directions(seed, "proxy_anchor.proxies", [shape.classes, shape.dimensions], device);
        ProxyAnchor { proxies, config: self.clone() }
    }
}

impl Named for ProxyAnchorConfig {
    const NAME: &'static str = "proxy_anchor";
}

impl LossSpec for ProxyAnchorConfig {
    fn build(&self, shape: LossShape, seed: u64, device: &Device) -> AnyLoss {
        self.init(shape, seed, device).boxed()
    }

    fn scale_parameter(&self) -> Option<&'static str> {
        Some("alpha")
    }

    fn validate(&self) -> Result<()> {
        in_range("alpha", self.alpha, self.alpha > 0.0, "above 0")?;
        in_range("delta", self.delta, self.delta >= 0.0, "0 or more")
    }
}

/// Proxy-Anchor; see [`ProxyAnchorConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct ProxyAnchor {
    /// `[classes, d]`; only the direction of a row counts.
    pub proxies: Param<Tensor<2>>,
    #[module(skip)]
    config: ProxyAnchorConfig,
}

/// The terms of one kind, pull or push, over all proxies.
struct Side {
    /// Their mean, `[1]`, tracked.
    value: Tensor<1>,
    /// Each sample's share in that mean.
    shares: Vec<f64>,
    /// Number of proxies that act on each sample.
    acting: Vec<u32>,
}

/// Mean of `log(1 + sum of exp)` over the rows that have an entry, or over `rows` of them.
///
/// `exponents` `[classes, n]`; `absent` marks the samples that are not in a row's sum.
fn side(exponents: Tensor<2>, absent: &Tensor<2, Bool>, rows: Option<usize>) -> Side {
    let sum = log_sum_exp(exponents.clone(), absent);
    let present = sum.empty.clone().bool_not();
    let rows = rows.unwrap_or_else(|| host(&present.float()).iter().sum::<f64>() as usize).max(1) as f64;
    let term = softplus(sum.value.clone()).mask_fill(sum.empty, 0.0);
    let value = term.clone().sum().mul_scalar(1.0 / rows);
    let weight = (exponents - sum.value.clone()).detach().mask_fill(absent.clone(), f32::NEG_INFINITY).exp();
    let shares =
        host(&(weight.clone() * term.detach()).sum_dim(0)).iter().map(|share| share / rows).collect();
    let acting = count_nonzero(&(weight * activation::sigmoid(sum.value.detach())).transpose());
    Side { value, shares, acting }
}

impl RankingLoss for ProxyAnchor {
    fn forward(&self, embeddings: Tensor<2>, labels: Labels<'_>, _progress: Progress) -> LossOutput {
        let ProxyAnchorConfig { alpha, delta } = self.config;
        let [n, _] = embeddings.dims();
        let proxies = l2_normalize(self.proxies.val().cast(embeddings.dtype()));
        let targets = Targets::new(labels, proxies.dims()[0], "proxy", &embeddings);
        let similarities = proxies.matmul(embeddings.transpose());
        let own = targets.own.clone().transpose();
        let pull =
            side(similarities.clone().sub_scalar(delta).mul_scalar(-alpha), &own.clone().bool_not(), None);
        let push = side(similarities.add_scalar(delta).mul_scalar(alpha), &own, Some(targets.total));
        let queries = Queries {
            loss: pull
                .shares
                .iter()
                .zip(&push.shares)
                .map(|(pull, push)| ((pull + push) * n as f64) as f32)
                .collect(),
            negatives: targets.others(),
            positives: targets.counts,
            mined_positives: pull.acting,
            mined_negatives: push.acting,
            ..Queries::default()
        };
        LossOutput { value: pull.value + push.value, queries }
    }
}
