//! Circle loss: similarities are pushed to their optimum with weights that grow with the way still to go.
//!
//! Sun, Cheng, Zhang, Zhang, Zheng, Wang, Wei, "Circle Loss: A Unified Perspective of Pair Similarity
//! Optimization", CVPR 2020, with pair-wise labels: one loss per anchor.
//!
//! With `s_p`, `s_n` the cosine similarities of an anchor's positives and negatives:
//!
//! ```text
//! a_p = [1 + m - s_p]_+,   a_n = [s_n + m]_+           the weights
//! L_a = log(1 + sum_n exp(gamma a_n (s_n - m)) sum_p exp(-gamma a_p (s_p - (1 - m))))
//! L   = mean over the anchors with a positive and a negative
//! ```
//!
//! **Held constant**: the weights `a_p` and `a_n`.
//!
//! # Corner cases
//!
//! - Both sums are taken as logarithms, so that gamma 256 does not overflow.
//! - Anchors without a positive or without a negative contribute 0 and are not counted in the mean.
//! - Embeddings that are not of length 1 give finite values, but the margins mean nothing then.
//! - With a miner (see [`crate::miner`]) positives and negatives are the selected ones.
//!
//! Memory and time: `O(n d)` and `O(n^2 d)`.

use burn::tensor::Device;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::engine::{Counts, List, ListLoss, ListValue, Listed, Measure, Real, lanes};
use crate::miner::{self, MinerConfig};
use crate::ranking::{AnyLoss, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};

/// Parameters of [`Circle`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{CircleConfig, Labels, Progress, RankingLoss};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let loss = CircleConfig { margin: 0.4, gamma: 80.0, ..Default::default() }.init();
/// let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct CircleConfig {
    /// Relaxation `m`: positives are done at `1 - m`, negatives at `m`. 0.25 (faces) and 0.4 (retrieval) in the paper.
    pub margin: f64,
    /// Scale. 256 (faces) and 80 (retrieval) in the paper.
    pub gamma: f64,
    /// Which pairs take part; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub miner: Option<MinerConfig>,
}

impl Default for CircleConfig {
    fn default() -> Self {
        CircleConfig { margin: 0.5, gamma: 22.0, miner: None }
    }
}

impl CircleConfig {
    /// The loss.
    pub fn init(&self) -> Circle {
        Listed::new(self.clone())
    }
}

impl Named for CircleConfig {
    const NAME: &'static str = "circle";
}

impl LossSpec for CircleConfig {
    fn build(&self, _: LossShape, _: u64, _: &Device) -> AnyLoss {
        self.init().boxed()
    }

    fn takes_memory(&self) -> bool {
        true
    }

    fn takes_miner(&self) -> bool {
        true
    }

    fn scale_parameter(&self) -> Option<&'static str> {
        Some("gamma")
    }

    fn validate(&self) -> Result<()> {
        in_range("margin", self.margin, (-1.0..=1.0).contains(&self.margin), "from -1 to 1")?;
        in_range("gamma", self.gamma, self.gamma > 0.0, "above 0")?;
        miner::validate(self.miner.as_ref())
    }
}

/// Circle loss; see [`CircleConfig`] for its parameters.
pub type Circle = Listed<CircleConfig>;

/// `log sum exp` of the logits and, in `to`, its derivatives by the values. `logit` gives a value's
/// logit and the logit's slope.
#[inline(always)]
fn log_sum_exp<F: Real>(values: &[F], to: &mut [F], logit: impl Fn(F) -> (F, F)) -> f64 {
    let present = |v: F| v > F::NEG_INFINITY;
    let largest = lanes::largest(values, |v| if present(v) { logit(v).0 } else { F::NEG_INFINITY });
    let total = lanes::map_sum(values, to, |v| {
        let (logit, slope) = logit(v);
        let raw = if present(v) { (logit - largest).exp() } else { F::ZERO };
        (if present(v) { raw * slope } else { F::ZERO }, raw)
    });
    lanes::scale(to, F::ONE / total);
    largest.wide() + total.wide().ln()
}

impl ListLoss for CircleConfig {
    const MEASURE: Measure = Measure::Similarity;

    fn factor(&self, counts: &Counts) -> f64 {
        1.0 / counts.both.max(1) as f64
    }

    fn miner(&self) -> Option<&MinerConfig> {
        self.miner.as_ref()
    }

    #[inline(always)]
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
        if !list.has_both() {
            return ListValue::default();
        }
        let (margin, gamma) = (F::of(self.margin), F::of(self.gamma));
        let positives = log_sum_exp(list.positives, list.by_positives, |v| {
            let slope = -gamma * lanes::larger(F::ONE + margin - v, F::ZERO);
            (slope * (v - (F::ONE - margin)), slope)
        });
        let negatives = log_sum_exp(list.negatives, list.by_negatives, |v| {
            let slope = gamma * lanes::larger(v + margin, F::ZERO);
            (slope * (v - margin), slope)
        });
        let lead = positives + negatives;
        let slope = F::of(1.0 / (1.0 + (-lead).exp()));
        lanes::scale(list.by_positives, slope);
        lanes::scale(list.by_negatives, slope);
        let loss = lanes::softplus(lead);
        let mined = |all: usize| if loss > 0.0 { all as u32 } else { 0 };
        ListValue {
            loss,
            mined_positives: mined(list.positives.len()),
            mined_negatives: mined(list.negative_count),
            ..ListValue::default()
        }
    }
}
