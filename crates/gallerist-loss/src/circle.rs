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
//! - With a miner (see [`crate::miner`]) positives and negatives are those in force.
//!
//! Memory and time: `O(n^2)` and `O(n^2 d)`.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use super::pairs::{Pairs, column, counts, hinge, log_sum_exp, mean_among, softplus};
use super::rows::{self, CircleRows};
use crate::Result;
use crate::lists::Lists;
use crate::miner::{self, MinerConfig};
use crate::ranking::{AnyLoss, LossOutput, PairLoss, Progress, Queries, RankingLoss};
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
    /// Relaxation `m`: positives are done at `1 - m`, negatives at `m`. 0.25.
    pub margin: f64,
    /// Scale. 256 (face recognition), 80 (fine-grained retrieval).
    pub gamma: f64,
    /// Which pairs take part; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub miner: Option<MinerConfig>,
}

impl Default for CircleConfig {
    fn default() -> Self {
        CircleConfig { margin: 0.25, gamma: 256.0, miner: None }
    }
}

impl CircleConfig {
    /// The loss.
    pub fn init(&self) -> Circle {
        Circle { config: self.clone() }
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
#[derive(Module, Debug)]
pub struct Circle {
    #[module(skip)]
    config: CircleConfig,
}

impl PairLoss for Circle {
    fn forward_lists(&self, lists: &Lists<'_>, progress: Progress) -> LossOutput {
        let rows = CircleRows { margin: self.config.margin, gamma: self.config.gamma };
        if self.config.miner.is_none()
            && let Some(output) = rows::forward(&rows, lists)
        {
            return output;
        }
        let CircleConfig { margin, gamma, .. } = self.config;
        let all = Pairs::new(lists);
        let pairs = miner::in_force(self.config.miner.as_ref(), &all, lists, progress).pairs();
        let similarity = lists.similarities();
        let held = similarity.clone().detach();
        let weight_p = hinge(held.clone().neg().add_scalar(1.0 + margin));
        let weight_n = hinge(held.add_scalar(margin));
        let logit_p = (weight_p * similarity.clone().sub_scalar(1.0 - margin)).mul_scalar(-gamma);
        let logit_n = (weight_n * similarity.sub_scalar(margin)).mul_scalar(gamma);
        let both = pairs.both();
        let lead = log_sum_exp(&logit_p, &pairs.positives) + log_sum_exp(&logit_n, &pairs.negatives);
        let per_query = softplus(lead) * both.clone();
        let losses = column(&per_query);
        let active = |mask: &Tensor<2>| {
            counts(mask).iter().zip(&losses).map(|(&all, &loss)| if loss > 0.0 { all } else { 0 }).collect()
        };
        let queries = Queries {
            mined_positives: active(&pairs.positives),
            mined_negatives: active(&pairs.negatives),
            loss: losses,
            ..all.queries()
        };
        LossOutput { value: mean_among(&per_query, &both), queries }
    }
}
