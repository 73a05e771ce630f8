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
//! The lists are those of the proxies: each is a query, and its list is the batch. The diagnostics are those of the
//! samples. The loss of a sample is its share in the terms of the proxies by its weight there, times `n`, so that the
//! mean over the samples is the value.
//!
//! # Corner cases
//!
//! - A class without a sample in the batch only pushes. A batch of one class of one only pulls.
//! - The largest exponent is subtracted before `exp`, so no `alpha` overflows.
//! - A sample with a set of labels is pulled by all its proxies and pushed by the others.
//!
//! Memory and time: `O((n + classes) d)` and `O(n classes d)`.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor};
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::engine::{List, ListLoss, ListValue, Listed, Measure, Real, lanes};
use crate::labels::Labels;
use crate::proxies::check_labels;
use crate::ranking::{AnyLoss, LossOutput, Progress, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};
use crate::{Result, init};
use gallerist_tensor::pairwise::l2_normalize;

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
    /// Factor on the similarities. 17 by default, 32 in the paper.
    pub alpha: f64,
    /// Margin of the similarities, `delta`. 0.11 by default, 0.1 in the paper.
    pub delta: f64,
}

impl Default for ProxyAnchorConfig {
    fn default() -> Self {
        ProxyAnchorConfig { alpha: 17.0, delta: 0.11 }
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

impl RankingLoss for ProxyAnchor {
    fn forward(&self, embeddings: Tensor<2>, labels: Labels<'_>, progress: Progress) -> LossOutput {
        let proxies = l2_normalize(self.proxies.val().cast(embeddings.dtype()));
        let classes: Vec<u32> = (0..proxies.dims()[0] as u32).collect();
        check_labels(labels, classes.len(), "proxy");
        let loss = Listed::new(self.config.clone());
        loss.forward_among(&proxies, Labels::Classes(&classes), &embeddings, labels, progress)
    }
}

impl ListLoss for ProxyAnchorConfig {
    const MEASURE: Measure = Measure::Similarity;
    const PROXY_QUERIES: bool = true;

    #[inline(always)]
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
        let ProxyAnchorConfig { alpha, delta } = *self;
        let mut value = ListValue::default();
        if !list.positives.is_empty() {
            // The mean over the proxies that have a sample.
            let share = list.counts.queries as f64 / list.counts.with_positives as f64;
            let (pull, per_derivative) = term(list.positives, list.by_positives, -alpha, delta, share);
            value.loss += pull;
            value.loss_per_derivative[0] = per_derivative;
        }
        if list.negative_count > 0 {
            let (push, per_derivative) = term(list.negatives, list.by_negatives, alpha, -delta, 1.0);
            value.loss += push;
            value.loss_per_derivative[1] = per_derivative;
        }
        value
    }
}

/// `share` times `log(1 + sum of exp(alpha (v - delta)))` with its derivatives, and the term per derivative.
#[inline(always)]
fn term<F: Real>(values: &[F], by: &mut [F], alpha: f64, delta: f64, share: f64) -> (f64, f64) {
    let factor = F::of(alpha);
    // That of the largest exponent.
    let nearest = if alpha >= 0.0 { lanes::largest(values, |v| v) } else { lanes::smallest(values, |v| v) };
    let total = lanes::map_sum(values, by, |v| {
        let raw = (factor * (v - nearest)).exp();
        (raw, raw)
    });
    let log_sum = alpha * (nearest.wide() - delta) + total.wide().ln();
    let (term, weight) = (lanes::softplus(log_sum), lanes::sigmoid(log_sum));
    lanes::scale(by, F::of(share * alpha * weight / total.wide()));
    (share * term, if weight > 0.0 { term / (alpha * weight) } else { 0.0 })
}
