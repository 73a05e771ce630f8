//! Smooth-AP: average precision with the step of the rank replaced by a sigmoid.
//!
//! Brown et al., "Smooth-AP: Smoothing the Path Towards Large-Scale Image Retrieval", ECCV 2020 (Eqs. 6-8).
//! Normalised embeddings. With `s_qj = x_q.x_j` and `G(z) = sigmoid(z / temperature)`, for a query `q`:
//!
//! ```text
//! rank_P(i) = 1 + sum over j != i in P_q         of G(s_qj - s_qi)
//! rank(i)   = 1 + sum over j != i in P_q and N_q of G(s_qj - s_qi)
//! AP_q = 1/|P_q| sum over i in P_q of rank_P(i) / rank(i)
//! L    = mean of 1 - AP_q over the queries that have a positive
//! ```
//!
//! The query is not in its own ranked list. The authors' released layer and pytorch-metric-learning's
//! `SmoothAPLoss` count it there, as its own first positive: `include_query`.
//!
//! **Held constant**: nothing; query, positives and negatives all get a gradient. It is computed beside the
//! value, block by block.
//!
//! # Corner cases
//!
//! - A query without a positive has the loss 0 and is left out of the mean; without a negative its AP is 1.
//! - Equal similarities count as half a rank. `1 - AP` is summed from the negatives' part, so that it keeps its
//!   digits where AP is near 1.
//! - Where no negative is within reach of the sigmoid the gradient is 0: in f32 about 90 temperatures.
//!
//! Memory: `O(n^2)`. Time: `O(n^2 d + n m)` with `m` the number of ordered positive pairs.
//!
//! Tensor code, not a list loss: its ranking of the positives includes the query's similarity to itself.

use burn::module::Module;
use burn::tensor::{Device, IndexingUpdateOp, Int, Tensor, TensorData, activation};
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use super::classify::count_nonzero;
use crate::Result;
use crate::lists::Lists;
use crate::ranking::{AnyLoss, LossOutput, PairLoss, Progress, Queries, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};
use crate::toolbox::{Pairs, column, with_gradient};
use gallerist_tensor::pairwise::host;

/// Entries of the largest block of comparisons that is held at once.
const BLOCK: usize = 1 << 21;

/// Parameters of [`SmoothAp`].
///
/// ```
/// use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, Progress, RankingLoss, SmoothApConfig};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// let embeddings = Tensor::<2>::random([4, 8], Distribution::Default, &Device::flex().autodiff()).require_grad();
/// let output = SmoothApConfig::default().init().forward(
///     l2_normalize(embeddings.clone()),
///     Labels::Classes(&[0, 0, 1, 1]),
///     Progress::default(),
/// );
/// assert_eq!(embeddings.grad(&output.value.backward()).unwrap().dims(), [4, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SmoothApConfig {
    /// Temperature of the sigmoid. 0.01 in the paper.
    pub temperature: f64,
    /// Whether a query stands in its own list as a positive, as in the authors' released layer. False
    /// as the equations have it.
    pub include_query: bool,
}

impl Default for SmoothApConfig {
    fn default() -> Self {
        SmoothApConfig { temperature: 0.01, include_query: false }
    }
}

impl SmoothApConfig {
    /// The loss.
    pub fn init(&self) -> SmoothAp {
        SmoothAp { config: self.clone() }
    }
}

impl Named for SmoothApConfig {
    const NAME: &'static str = "smooth_ap";
}

impl LossSpec for SmoothApConfig {
    fn build(&self, _: LossShape, _: u64, _: &Device) -> AnyLoss {
        self.init().boxed()
    }

    fn takes_memory(&self) -> bool {
        true
    }

    fn scale_parameter(&self) -> Option<&'static str> {
        Some("temperature")
    }

    fn validate(&self) -> Result<()> {
        in_range("temperature", self.temperature, self.temperature > 0.0, "above 0")
    }
}

/// Smooth-AP; see [`SmoothApConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct SmoothAp {
    #[module(skip)]
    config: SmoothApConfig,
}

impl PairLoss for SmoothAp {
    fn forward_lists(&self, lists: &Lists<'_>, _progress: Progress) -> LossOutput {
        let SmoothApConfig { temperature, include_query } = self.config;
        let [n, _] = lists.dims();
        let pairs = Pairs::new(lists);
        let queries = pairs.queries();
        let listed = match include_query {
            true => {
                let like = &pairs.positives;
                let itself = Tensor::<2>::eye(n, &like.device()).cast(like.dtype());
                like.clone().slice_assign([0..n, 0..n], like.clone().slice([0..n, 0..n]) + itself)
            }
            false => pairs.positives.clone(),
        };
        let similarities = lists.similarities();
        let Sums { losses, derivative } =
            sums(&similarities, &listed, &pairs.negatives, &queries.positives, temperature);
        let share = 1.0 / queries.positives.iter().filter(|&&count| count > 0).count().max(1) as f64;
        let value = with_gradient(
            losses.clone().sum().mul_scalar(share),
            &similarities,
            derivative.clone().mul_scalar(share),
        );
        let queries = Queries {
            loss: column(&losses),
            mined_positives: count_nonzero(&(derivative.clone() * pairs.positives)),
            mined_negatives: count_nonzero(&(derivative * pairs.negatives)),
            ..queries
        };
        LossOutput { value, queries }
    }
}

/// `1 - AP` of each query, `[n, 1]`, and its derivative by that query's similarities, `[n, n + m]`.
struct Sums {
    losses: Tensor<2>,
    derivative: Tensor<2>,
}

/// `listed` and `negative` are the masks of the positives and the negatives in each query's list.
fn sums(
    similarities: &Tensor<2>,
    listed: &Tensor<2>,
    negative: &Tensor<2>,
    positives: &[u32],
    temperature: f64,
) -> Sums {
    let similarities = similarities.clone().detach();
    let [n, g] = similarities.dims();
    let options = (similarities.device(), similarities.dtype());
    let mask = host(listed);
    let pairs: Vec<usize> = (0..n * g).filter(|&at| positives[at / g] > 0 && mask[at] > 0.0).collect();
    let listed_counts: Vec<f64> = mask.chunks(g.max(1)).map(|row| row.iter().sum()).collect();
    let ints = |values: Vec<i64>| {
        let length = values.len();
        Tensor::<1, Int>::from_data(TensorData::new(values, [length]), &options.0)
    };
    let flat = similarities.clone().reshape([n * g]);
    let mut losses = Tensor::<2>::zeros([n, 1], (&options.0, options.1));
    let mut derivative = Tensor::<2>::zeros([n, g], (&options.0, options.1));
    for block in pairs.chunks((BLOCK / g.max(1)).max(1)) {
        let m = block.len();
        let queries = ints(block.iter().map(|at| (at / g) as i64).collect());
        let entries = ints(block.iter().map(|&at| at as i64).collect());
        let weights: Vec<f64> = block.iter().map(|at| 1.0 / listed_counts[at / g]).collect();
        let weights = Tensor::<2>::from_data(TensorData::new(weights, [m, 1]), (&options.0, options.1));
        let rows = |matrix: &Tensor<2>| matrix.clone().select(0, queries.clone());
        let own = flat.clone().select(0, entries.clone()).reshape([m, 1]);
        let gap = (rows(&similarities) - own).mul_scalar(1.0 / temperature);
        let above = activation::sigmoid(gap.clone());
        let (listed, negative) = (rows(listed), rows(negative));
        // The sum over the listed has the entry itself in it, with G(0) = 1/2.
        let rank_listed = (above.clone() * listed.clone()).sum_dim(1).add_scalar(0.5);
        let outranked = (above.clone() * negative.clone()).sum_dim(1);
        let rank = rank_listed.clone() + outranked.clone();
        let loss = outranked.clone() / rank.clone() * weights.clone();
        // 1 - rank_P / rank by each G: rank_P / rank^2 for a negative, -(rank - rank_P) / rank^2 for a positive.
        let by_step = (negative * rank_listed - listed * outranked) * weights / rank.square();
        let slope = above * activation::sigmoid(gap.neg());
        let by_similarity = (by_step * slope).mul_scalar(1.0 / temperature);
        losses = losses.select_assign(0, queries.clone(), loss, IndexingUpdateOp::Add);
        let at_own = by_similarity.clone().sum_dim(1).neg().reshape([m]);
        derivative = derivative
            .select_assign(0, queries, by_similarity, IndexingUpdateOp::Add)
            .reshape([n * g])
            .select_assign(0, entries, at_own, IndexingUpdateOp::Add)
            .reshape([n, g]);
    }
    Sums { losses, derivative }
}
