//! FastAP: average precision of each query's ranking, made smooth by soft histograms of distances.
//!
//! Cakir, He, Xia, Kulis, Sclaroff, "Deep Metric Learning to Rank", CVPR 2019.
//!
//! For a query, squared Euclidean distances of embeddings of length 1 lie in `[0, 4]`. With the nodes `t_0 =
//! 0, ..., t_bins = 4` and the step `D = 4 / bins`:
//!
//! ```text
//! h_b    = sum over the gallery of [1 - |d^2 - t_b| / D]_+      (h+: the positives only)
//! H_b    = h_0 + ... + h_b
//! FastAP = 1 / P sum over b of h+_b H+_b / H_b
//! L      = mean over the queries with a positive of 1 - FastAP
//! ```
//!
//! **Held constant**: nothing.
//!
//! # Corner cases
//!
//! - A distance exactly at a node has slope 0 there, as a tent's top has.
//! - Where `H_b = 0` the term is 0. Distances beyond the last node, as of rows that are not of length 1,
//!   belong to no node: they count as not retrieved.
//! - A query without a positive contributes 0 and is not counted in the mean; one without a negative has
//!   FastAP 1 up to the ties that the histogram makes.
//! - In a collapsed batch all distances are at the first node: the gradient is 0.
//!
//! Time and memory: `O(n^2 (d + bins))`.
//!
//! Tensor code. It is a function of one query's list and can become a list loss.

use burn::module::Module;
use burn::tensor::Device;
use gallerist_retrieval::search::Metric;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::lists::Lists;
use crate::ranking::{AnyLoss, LossOutput, PairLoss, Progress, Queries, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};
use crate::toolbox::{Pairs, column, hinge, mean_among};

/// Parameters of [`FastAp`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{FastApConfig, Labels, Progress, RankingLoss};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let loss = FastApConfig { bins: 20 }.init();
/// let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct FastApConfig {
    /// Number of intervals of the histograms; they have one node more. 10.
    pub bins: usize,
}

impl Default for FastApConfig {
    fn default() -> Self {
        FastApConfig { bins: 10 }
    }
}

impl FastApConfig {
    /// The loss.
    pub fn init(&self) -> FastAp {
        FastAp { config: self.clone() }
    }
}

impl Named for FastApConfig {
    const NAME: &'static str = "fast_ap";
}

impl LossSpec for FastApConfig {
    fn build(&self, _: LossShape, _: u64, _: &Device) -> AnyLoss {
        self.init().boxed()
    }

    fn raw_metric(&self) -> Metric {
        Metric::Euclidean
    }

    fn takes_memory(&self) -> bool {
        true
    }

    fn validate(&self) -> Result<()> {
        in_range("bins", self.bins as f64, (1..=10_000).contains(&self.bins), "from 1 to 10000")
    }
}

/// FastAP; see [`FastApConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct FastAp {
    #[module(skip)]
    config: FastApConfig,
}

impl PairLoss for FastAp {
    fn forward_lists(&self, lists: &Lists<'_>, _progress: Progress) -> LossOutput {
        let pairs = Pairs::new(lists);
        let squared = lists.distances().square();
        let step = 4.0 / self.config.bins as f64;
        let others = pairs.positives.clone() + pairs.negatives.clone();

        let number = pairs.positives.clone().sum_dim(1);
        let mut precision = number.zeros_like();
        let (mut ahead, mut ahead_p) = (number.zeros_like(), number.zeros_like());
        for node in 0..=self.config.bins {
            let from = squared.clone().sub_scalar(node as f64 * step).abs().mul_scalar(1.0 / step);
            let tent = hinge(from.neg().add_scalar(1.0));
            let here_p = (tent.clone() * pairs.positives.clone()).sum_dim(1);
            ahead = ahead + (tent * others.clone()).sum_dim(1);
            ahead_p = ahead_p + here_p.clone();
            let none = ahead.clone().equal_scalar(0.0);
            precision = precision + here_p * ahead_p.clone() / ahead.clone().mask_fill(none, 1.0);
        }
        let any = pairs.positives.clone().max_dim(1);
        let per_query = (precision / number.clamp_min(1.0)).neg().add_scalar(1.0) * any.clone();
        let counts = pairs.queries();
        let mined = |all: &[u32]| {
            let used = all.iter().zip(counts.positives.iter().zip(&counts.negatives));
            used.map(|(&all, (&p, &n))| if p > 0 && n > 0 { all } else { 0 }).collect()
        };
        let queries = Queries {
            loss: column(&per_query),
            mined_positives: mined(&counts.positives),
            mined_negatives: mined(&counts.negatives),
            ..counts
        };
        LossOutput { value: mean_among(&per_query, &any), queries }
    }
}
