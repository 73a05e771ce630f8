//! Instance cross entropy: each anchor tells each of its positives from all negatives, by a softmax over
//! instances.
//!
//! Wang, Hua, Kodirov, Clifton, Robertson, "Instance Cross Entropy for Deep Metric Learning", 2019
//! (Eqs. 11-15 the gradient).
//!
//! For an anchor `a` with negatives `N_a` and one of its positives `i`, all of length 1:
//!
//! ```text
//! p(i | a) = exp(s x_a.x_i) / (exp(s x_a.x_i) + sum over j in N_a of exp(s x_a.x_j))
//! L        = -(1/n) sum over anchors a and their positives i of log p(i | a)
//! ```
//!
//! `gradient = "paper"`: with `w_i = 1 - p(i | a)` and `w_j = sum over i of p(j | a, i)`, both divided by
//! their total over the anchor's positives and negatives and by `n`, the partial derivative is
//! `-x_a w_i` on a positive and `+x_a w_j` on a negative; there is no factor `s`. **Held constant**: the
//! anchor and the weights; every sample is an anchor once, so every sample gets its share.
//! `gradient = "autodiff"`: the true derivative of the value; nothing is held constant.
//! `gradient = "unnormalized"` and `gradient = "query"`, to compare the two: the true derivative is the scale times their
//! sum. The first is the paper's without the division by the anchor's total. The second is the part of the anchors:
//! positives and negatives are held constant.
//!
//! The paper's gradient does not become smaller as the loss does: the weights of an anchor sum to 1 however well it is
//! placed. A network that is good at the start can end worse: on CUB-200 it did, with `gradient = "autodiff"` it did not.
//! Trained from random weights it is 16 to 23 points of Recall@1 below the true derivative, because the anchors are held
//! constant; the normalisation makes little difference (`docs/results/ice-scale.md`).
//! At a scale of 64 a difference of similarities of 0.05 is already decisive, and the rows move together until rounding
//! decides between neighbours; at 16 they keep their distances (`experiments/cub200.md`).
//!
//! With a memory, a pair of an anchor and a memory's row `x_j` would give no gradient at all if the anchor were
//! held constant. It is given in the exchanged roles: with the same weights, `-x_j w_j` on the anchor where `j`
//! is a positive and `+x_j w_j` where it is a negative, the memory's row held constant. So every sample gets a
//! share from each pair it is in, as from the pairs inside the batch. The weights are normalised over the
//! whole list.
//!
//! # Corner cases
//!
//! - The weights of the positives sum to 1/2 and so do those of the negatives, whatever the scale:
//!   `w_i` is proportional to `sigmoid(log sum exp(s x_a.x_j) - s x_a.x_i)` and `w_j` to `exp(s x_a.x_j)`.
//!   Both are taken as softmaxes of logarithms, which neither cancel (as `1 - p` does where `p` is
//!   near 1) nor underflow at `s = 64`.
//! - An anchor without a positive or without a negative contributes 0 and gives no gradient.
//! - Coincident rows are ordinary here; a row of zeros is similar by 0 to everything.
//!
//! Memory and time: `O(n d)` and `O(n^2 d)`.

use burn::tensor::Device;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::engine::{List, ListLoss, ListValue, Listed, Measure, Real, Sides, lanes};
use crate::ranking::{AnyLoss, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};

/// Which gradient [`Ice`] gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IceGradient {
    /// The true derivative of the value.
    #[default]
    Autodiff,
    /// The paper's, Eqs. 11-15: weights normalised per anchor, the anchor held constant, no factor `s`.
    Paper,
    /// The paper's, except that the weights of an anchor are not normalised: an anchor that is placed well gives little.
    Unnormalized,
    /// The part of the true derivative that [`IceGradient::Unnormalized`] leaves out, that of the anchors, over the scale.
    Query,
}

/// Parameters of [`Ice`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{IceConfig, Labels, Progress, RankingLoss};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let loss = IceConfig { scale: 48.0, ..Default::default() }.init();
/// let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct IceConfig {
    /// Scale `s` of the similarities. 64 in the paper (SOP), whose table also has 16 and 48.
    pub scale: f64,
    /// Which gradient is given. That of the paper is `paper`.
    pub gradient: IceGradient,
}

impl Default for IceConfig {
    fn default() -> Self {
        IceConfig { scale: 32.0, gradient: IceGradient::Autodiff }
    }
}

impl IceConfig {
    /// The loss.
    pub fn init(&self) -> Ice {
        Listed::new(self.clone())
    }
}

impl Named for IceConfig {
    const NAME: &'static str = "ice";
}

impl LossSpec for IceConfig {
    fn build(&self, _: LossShape, _: u64, _: &Device) -> AnyLoss {
        self.init().boxed()
    }

    fn takes_memory(&self) -> bool {
        true
    }

    fn scale_parameter(&self) -> Option<&'static str> {
        Some("scale")
    }

    fn validate(&self) -> Result<()> {
        in_range("scale", self.scale, self.scale > 0.0, "above 0")
    }
}

/// Instance cross entropy; see [`IceConfig`] for its parameters.
pub type Ice = Listed<IceConfig>;

impl ListLoss for IceConfig {
    const MEASURE: Measure = Measure::Similarity;

    fn sides(&self) -> Sides {
        match self.gradient {
            IceGradient::Paper | IceGradient::Unnormalized => Sides::Gallery,
            IceGradient::Autodiff => Sides::Both,
            IceGradient::Query => Sides::Query,
        }
    }

    #[inline(always)]
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
        if !list.has_both() {
            return ListValue::default();
        }
        let (total, log_negatives) = lanes::exp_sum(list.negatives, list.by_negatives, self.scale);
        let mut loss = 0.0;
        // Sum over the positives of 1 - p(i|a), and of that over the largest one: at large scales the
        // terms themselves may vanish, their ratios do not.
        let gap = |v: F| log_negatives - self.scale * v.wide();
        let largest = list.positives.iter().fold(f64::NEG_INFINITY, |a, &v| a.max(log_not(gap(v))));
        let mut sum = 0.0;
        for &v in list.positives {
            loss += lanes::softplus(gap(v));
            sum += (log_not(gap(v)) - largest).exp();
        }
        let (by_positive, by_negative) = match self.gradient {
            // Both sides sum to the same, so each gets half of the anchor's 1.
            IceGradient::Paper => (0.5 / sum, 0.5),
            IceGradient::Autodiff => (self.scale * largest.exp(), self.scale * largest.exp() * sum),
            IceGradient::Unnormalized | IceGradient::Query => (largest.exp(), largest.exp() * sum),
        };
        for (&v, by) in list.positives.iter().zip(list.by_positives.iter_mut()) {
            *by = F::of(-by_positive * (log_not(gap(v)) - largest).exp());
        }
        lanes::scale(list.by_negatives, F::of(by_negative / total.wide()));
        ListValue {
            loss,
            mined_positives: list.positives.len() as u32,
            mined_negatives: list.negative_count as u32,
            ..ListValue::default()
        }
    }
}

/// `log(1 - p)` where `p = 1 / (1 + e^gap)`.
#[inline(always)]
fn log_not(gap: f64) -> f64 {
    -lanes::softplus(-gap)
}
