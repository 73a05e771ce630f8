//! Nonlinear rank approximation: bring each anchor's farthest positive to the front and its nearest
//! negative to the back, on a smooth approximation of their ranks.
//!
//! Schall, Barthel, Hezel, Jung, "Deep Metric Learning using Similarities from Nonlinear Rank
//! Approximations", 2019.
//!
//! For an anchor `i` with distances `d_ij` to all others:
//!
//! ```text
//! Dmax, Dmin = largest and smallest d_ij over all j != i
//! r_p = (largest positive distance  - Dmin) / (Dmax - Dmin)
//! r_n = (smallest negative distance - Dmin) / (Dmax - Dmin)
//! w(r) = 1/2 (2 r)^alpha              for r < 1/2
//!      = 1 - 1/2 (2 (1 - r))^alpha    from 1/2 on
//! s = 1 - w(r)
//! J_i = -log(s_p + eps) - log(1 - s_n + eps)
//! L   = mean of J_i over the anchors that have a positive and a negative
//! ```
//!
//! **Held constant**: nothing; the gradient flows through Dmax and Dmin too.
//!
//! The embeddings are not normalised in training and are normalised at test: they are compared by the cosine
//! ([`LossConfig::metric`](super::LossConfig::metric)). The loss does not change
//! when all distances are multiplied by one number.
//!
//! # Corner cases
//!
//! - Dmax = Dmin: the anchor contributes 0 and has no gradient.
//! - Where the farthest positive is the farthest of all (`r_p = 1`) or the nearest negative the nearest
//!   of all (`r_n = 0`), that term is at its largest and its gradient is 0: a dead term. They are
//!   counted in [`Queries::dead_terms`]; both terms of an anchor with Dmax = Dmin count as dead.
//! - Two samples at the same extreme distance: one of them carries the gradient.
//!
//! Memory and time: `O(n^2)` and `O(n^2 d)`.

use burn::module::Module;
use burn::tensor::{Bool, Device, Tensor};
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use super::pairs::{Pairs, column, counts, indicator, mean_among, row_max, row_min};
use super::rows::{self, NraRows};
use crate::Result;
use crate::lists::Lists;
use crate::ranking::{AnyLoss, LossOutput, PairLoss, Progress, Queries, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};

/// Parameters of [`Nra`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, NraConfig, Progress, RankingLoss};
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let loss = NraConfig { alpha: 3.0, ..Default::default() }.init();
/// let output = loss.forward(embeddings.clone(), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NraConfig {
    /// Steepness of the rank approximation; 1 is linear. 4 in the paper.
    pub alpha: f64,
    /// Added inside the logarithms. 1e-4.
    pub eps: f64,
}

impl Default for NraConfig {
    fn default() -> Self {
        NraConfig { alpha: 4.0, eps: 1e-4 }
    }
}

impl NraConfig {
    /// The loss.
    pub fn init(&self) -> Nra {
        Nra { config: self.clone() }
    }
}

impl Named for NraConfig {
    const NAME: &'static str = "nra";
}

impl LossSpec for NraConfig {
    fn build(&self, _: LossShape, _: u64, _: &Device) -> AnyLoss {
        self.init().boxed()
    }

    fn normalized(&self) -> bool {
        false
    }

    fn takes_memory(&self) -> bool {
        true
    }

    fn validate(&self) -> Result<()> {
        in_range("alpha", self.alpha, self.alpha >= 1.0, "1 or more")?;
        in_range("eps", self.eps, self.eps > 0.0, "above 0")
    }
}

/// Nonlinear rank approximation; see [`NraConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct Nra {
    #[module(skip)]
    config: NraConfig,
}

impl PairLoss for Nra {
    fn forward_lists(&self, lists: &Lists<'_>, _progress: Progress) -> LossOutput {
        let rows = NraRows { alpha: self.config.alpha, eps: self.config.eps };
        if let Some(output) = rows::forward(&rows, lists) {
            return output;
        }
        let pairs = Pairs::new(lists);
        let distance = lists.distances();
        let others = pairs.positives.clone() + pairs.negatives.clone();
        let largest = row_max(&distance, &others);
        let smallest = row_min(&distance, &others);
        let positive = row_max(&distance, &pairs.positives);
        let negative = row_min(&distance, &pairs.negatives);
        let both = pairs.both();

        let flat = (largest.clone() - smallest.clone()).lower_equal_scalar(0.0);
        let still = flat.clone().bool_or(both.clone().equal_scalar(0.0));
        let range = (largest.clone() - smallest.clone()).mask_fill(still.clone(), 1.0);
        // A rank and its complement, each from its own difference, so that neither end cancels.
        let rank = |x: &Tensor<2>| {
            let rank = (x.clone() - smallest.clone()) / range.clone();
            let complement = (largest.clone() - x.clone()) / range.clone();
            (rank.mask_fill(still.clone(), 0.5), complement.mask_fill(still.clone(), 0.5))
        };
        let (weight_p, upper_p) = self.weight(rank(&positive));
        let (weight_n, upper_n) = self.weight(rank(&negative));
        // s_p = 1 - w(r_p) and 1 - s_n = w(r_n).
        let similarity = complement(weight_p, upper_p.bool_not());
        let dissimilarity = complement(weight_n, upper_n);
        let cost = |x: Tensor<2>| x.add_scalar(self.config.eps).log().neg();
        let per_query = (cost(similarity) + cost(dissimilarity)).mask_fill(still.clone(), 0.0);

        let live =
            |alive: Tensor<2, Bool>| counts(&indicator(alive.bool_and(still.clone().bool_not()), &both));
        let mined_positives = live(positive.lower(largest));
        let mined_negatives = live(negative.greater(smallest));
        let terms: Vec<u32> = counts(&both).iter().map(|&both| 2 * both).collect();
        let dead_terms =
            (0..terms.len()).map(|i| terms[i] - mined_positives[i] - mined_negatives[i]).collect();
        let queries = Queries {
            loss: column(&per_query),
            mined_positives,
            mined_negatives,
            terms,
            dead_terms,
            ..pairs.queries()
        };
        LossOutput { value: mean_among(&per_query, &both), queries }
    }
}

impl Nra {
    /// The small one of `w` and `1 - w`, and whether it is `1 - w` (from `r = 1/2` on).
    fn weight(&self, (rank, complement): (Tensor<2>, Tensor<2>)) -> (Tensor<2>, Tensor<2, Bool>) {
        let upper = rank.clone().greater_equal_scalar(0.5);
        let base = rank.mask_where(upper.clone(), complement).clamp_min(0.0);
        (base.mul_scalar(2.0).powf_scalar(self.config.alpha).mul_scalar(0.5), upper)
    }
}

/// `1 - x` at the entries of `swap`, `x` elsewhere.
fn complement(x: Tensor<2>, swap: Tensor<2, Bool>) -> Tensor<2> {
    x.clone().mask_where(swap, x.neg().add_scalar(1.0))
}
