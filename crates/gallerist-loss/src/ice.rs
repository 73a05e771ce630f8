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
//!
//! The paper's gradient does not become smaller as the loss does: the weights of an anchor sum to 1 however well it is
//! placed. A network that is good at the start can end worse: on CUB-200 it did, with `gradient = "autodiff"` it did not.
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
//! Memory and time: `O(n^2)` and `O(n^2 d)`.

use burn::module::Module;
use burn::tensor::{Device, Tensor, activation::log_sigmoid};
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use super::pairs::{Pairs, column, log_sum_exp, row_softmax, softplus, with_gradient};
use super::rows::{self, IceRows};
use crate::Result;
use crate::lists::Lists;
use crate::ranking::{AnyLoss, LossOutput, PairLoss, Progress, Queries, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};

/// Which gradient [`Ice`] gives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IceGradient {
    /// The paper's, Eqs. 11-15: weights normalised per anchor, the anchor held constant, no factor `s`.
    #[default]
    Paper,
    /// The true derivative of the value.
    Autodiff,
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
    /// Scale `s` of the similarities: 64 (SOP); the paper's table also has 16 and 48.
    pub scale: f64,
    /// Which gradient is given.
    pub gradient: IceGradient,
}

impl Default for IceConfig {
    fn default() -> Self {
        IceConfig { scale: 64.0, gradient: IceGradient::Paper }
    }
}

impl IceConfig {
    /// The loss.
    pub fn init(&self) -> Ice {
        Ice { config: self.clone() }
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
#[derive(Module, Debug)]
pub struct Ice {
    #[module(skip)]
    config: IceConfig,
}

impl PairLoss for Ice {
    fn forward_lists(&self, lists: &Lists<'_>, _progress: Progress) -> LossOutput {
        let paper_gradient = self.config.gradient == IceGradient::Paper;
        let rows = IceRows { scale: self.config.scale, paper_gradient };
        if let Some(output) = rows::forward(&rows, lists) {
            return output;
        }
        let [n, _] = lists.dims();
        let pairs = Pairs::new(lists);
        let similarity = match self.config.gradient {
            IceGradient::Paper => with_constant_anchors(lists),
            IceGradient::Autodiff => lists.similarities(),
        };
        let logits = similarity.clone().mul_scalar(self.config.scale);
        let both = pairs.both();
        // -log p(i | a) = softplus(log of the sum over the negatives - s x_a.x_i).
        let lead = log_sum_exp(&logits, &pairs.negatives) - logits.clone();
        let taken = pairs.positives.clone() * both.clone();
        let per_query = (softplus(lead.clone()) * taken.clone()).sum_dim(1);
        let value = per_query.clone().sum().mul_scalar(1.0 / n.max(1) as f64);
        let value = match self.config.gradient {
            IceGradient::Autodiff => value,
            IceGradient::Paper => {
                let pull = row_softmax(&log_sigmoid(lead.detach()), &taken);
                let push = row_softmax(&logits.detach(), &(pairs.negatives.clone() * both.clone()));
                let weights = (push - pull).mul_scalar(0.5 / n.max(1) as f64);
                with_gradient(value, &similarity, weights)
            }
        };
        let counts = pairs.queries();
        let mined = |all: &[u32], other: &[u32]| {
            all.iter().zip(other).map(|(&all, &other)| if other > 0 { all } else { 0 }).collect()
        };
        let queries = Queries {
            loss: column(&per_query),
            mined_positives: mined(&counts.positives, &counts.negatives),
            mined_negatives: mined(&counts.negatives, &counts.positives),
            ..counts
        };
        LossOutput { value, queries }
    }
}

/// The similarities of anchors and gallery, `[n, n + m]`, tracked on one side: the gallery's where that is
/// of the batch, the anchor's where the gallery is the memory.
fn with_constant_anchors(lists: &Lists<'_>) -> Tensor<2> {
    let embeddings = lists.embeddings();
    let inside = embeddings.clone().detach().matmul(embeddings.clone().transpose());
    match lists.memory() {
        Some(memory) => {
            let outside = embeddings.clone().matmul(memory.embeddings.clone().transpose());
            Tensor::cat(vec![inside, outside], 1)
        }
        None => inside,
    }
}
