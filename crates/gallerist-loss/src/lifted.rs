//! Lifted structured loss: each positive pair against all negatives of both its samples.
//!
//! Oh Song, Xiang, Jegelka, Savarese, "Deep Metric Learning via Lifted Structured Feature Embedding", CVPR
//! 2016 (Eq. 4).
//!
//! With `P` the unordered positive pairs and `N_i` the negatives of `i`:
//!
//! ```text
//! J_ij = log(sum over k in N_i of exp(alpha - d_ik) + sum over l in N_j of exp(alpha - d_jl)) + d_ij
//! L    = 1 / (2 |P|) sum over P of [J_ij]_+^2      (squared)
//!      = 1 / (2 |P|) sum over P of [J_ij]_+        (the form printed in the ranked list loss papers)
//! ```
//!
//! With a memory, the pairs are those of a query and a positive in its list (a pair inside the batch is in
//! two lists), and the mean is over them; the negatives of a memory's row are the batch's.
//!
//! **Held constant**: nothing. A query's own loss is half the mean of `[J_ij]_+^2` (or `[J_ij]_+`) over its
//! positives. With a miner (see [`crate::miner`]) `P` are the ordered selected pairs, twice `|P|` their number, and
//! `N_i` the selected negatives.
//!
//! # Corner cases
//!
//! - A pair without any negative contributes 0; it is counted in `|P|`.
//! - The largest exponent is subtracted before `exp`.
//! - Coincident rows have no direction; a collapsed batch has a value and the gradient 0.
//! - A batch without a positive pair has the value 0.
//!
//! The embeddings are as the network gives them; the paper does not normalise. They are compared as they were
//! trained, by the Euclidean distance. Memory and time: `O(n (n + d))` and `O(n^2 d)`.
//!
//! Tensor code, not a list loss: each positive pair joins the negatives of two queries.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use gallerist_retrieval::search::Metric;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::lists::Lists;
use crate::miner::{self, MinerConfig};
use crate::ranking::{AnyLoss, LossOutput, PairLoss, Progress, Queries, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};
use crate::toolbox::{Pairs, column, counts, hinge, indicator, scaled_sum_exp, total};

/// Parameters of [`Lifted`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, LiftedConfig, Progress, RankingLoss};
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let loss = LiftedConfig::default().init();
/// let output = loss.forward(embeddings.clone(), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LiftedConfig {
    /// Distance by which negatives must be farther than positives, in the smooth sense. 1 in the paper.
    pub alpha: f64,
    /// Whether the hinge is squared (the paper) or not (as printed in the ranked list loss papers, and the default).
    pub squared: bool,
    /// Which pairs take part; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub miner: Option<MinerConfig>,
}

impl Default for LiftedConfig {
    fn default() -> Self {
        LiftedConfig { alpha: 4.0, squared: false, miner: None }
    }
}

impl LiftedConfig {
    /// The mean distance between rows at which training begins well
    /// ([`LossSpec::initial_distance`](crate::LossSpec::initial_distance)).
    pub const INITIAL_DISTANCE: f64 = 10.0;

    /// The loss.
    pub fn init(&self) -> Lifted {
        Lifted { config: self.clone() }
    }
}

impl Named for LiftedConfig {
    const NAME: &'static str = "lifted";
}

impl LossSpec for LiftedConfig {
    fn build(&self, _: LossShape, _: u64, _: &Device) -> AnyLoss {
        self.init().boxed()
    }

    fn normalized(&self) -> bool {
        false
    }

    fn raw_metric(&self) -> Metric {
        Metric::Euclidean
    }

    fn takes_memory(&self) -> bool {
        true
    }

    fn takes_miner(&self) -> bool {
        true
    }

    fn initial_distance(&self) -> Option<f64> {
        Some(LiftedConfig::INITIAL_DISTANCE)
    }

    fn scale_parameter(&self) -> Option<&'static str> {
        Some("alpha")
    }

    fn validate(&self) -> Result<()> {
        in_range("alpha", self.alpha, true, "a finite number")?;
        miner::validate(self.miner.as_ref())
    }
}

/// Lifted structured loss; see [`LiftedConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct Lifted {
    #[module(skip)]
    config: LiftedConfig,
}

impl PairLoss for Lifted {
    fn forward_lists(&self, lists: &Lists<'_>, progress: Progress) -> LossOutput {
        let [n, g] = lists.dims();
        let all = Pairs::new(lists);
        let mined = miner::in_force(self.config.miner.as_ref(), &all, lists, progress);
        let pairs = mined.pairs();
        let distance = lists.distances();
        let exponent = distance.clone().neg().add_scalar(self.config.alpha);
        let own = sums(&exponent, &pairs.negatives);
        // The negatives of the memory's rows are the batch's.
        let of_memory = |x: &Tensor<2>| x.clone().slice([0..n, n..g]).transpose();
        let partner = match g > n {
            true => {
                let (largest, sum) = sums(&of_memory(&exponent), &of_memory(&pairs.negatives));
                (Tensor::cat(vec![own.0.clone(), largest], 0), Tensor::cat(vec![own.1.clone(), sum], 0))
            }
            false => own.clone(),
        };
        let partner = (partner.0.transpose(), partner.1.transpose());

        // The two samples' sums, brought to the larger of their largest exponents.
        let largest = own.0.clone().max_pair(partner.0.clone());
        let nothing = largest.clone().equal_scalar(f32::NEG_INFINITY);
        let largest = largest.mask_fill(nothing.clone(), 0.0);
        let both = own.1 * (own.0 - largest.clone()).exp() + partner.1 * (partner.0 - largest.clone()).exp();
        let both = both.mask_fill(nothing.clone(), 1.0);
        let excess = hinge(both.log() + largest + distance).mask_fill(nothing, 0.0) * pairs.positives.clone();

        let active = indicator(excess.clone().greater_scalar(0.0), &excess);
        let cost = if self.config.squared { excess.square() } else { excess };
        let halves = cost.clone().sum_dim(1).mul_scalar(0.5);
        let mined_positives = counts(&active);
        let in_force = counts(&pairs.negatives);
        let mined_negatives =
            (0..mined_positives.len()).map(|i| if mined_positives[i] > 0 { in_force[i] } else { 0 });
        let queries = Queries {
            loss: column(&(halves.clone() / pairs.positives.clone().sum_dim(1).clamp_min(1.0))),
            mined_negatives: mined_negatives.collect(),
            mined_positives,
            ..all.queries()
        };
        let value = halves.sum().mul_scalar(1.0 / total(&pairs.positives).max(1.0));
        LossOutput { value, queries }.with_problem(mined.problem, lists)
    }
}

/// The largest exponent of each row inside `mask`, held constant, and the sum of `exp(exponent - largest)`. A
/// row without any has minus infinity and 0.
fn sums(exponent: &Tensor<2>, mask: &Tensor<2>) -> (Tensor<2>, Tensor<2>) {
    let (largest, sum) = scaled_sum_exp(exponent, mask);
    let empty = mask.clone().max_dim(1).equal_scalar(0.0);
    (largest.mask_fill(empty, f32::NEG_INFINITY), sum)
}
