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
//! Memory and time: `O(n d)` and `O(n^2 d)`.

use burn::tensor::Device;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::engine::{Counts, List, ListLoss, ListValue, Listed, Measure, Real, lanes};
use crate::ranking::{AnyLoss, RankingLoss};
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
        Listed::new(self.clone())
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
pub type Nra = Listed<NraConfig>;

impl NraConfig {
    /// `-log(w + eps)`, or `-log(1 - w + eps)` if `complement`, of the approximated rank `w` of the
    /// distance `low` above the smallest and `high` below the largest; its derivative by the rank.
    fn term(&self, low: f64, high: f64, complement: bool) -> (f64, f64) {
        let range = low + high;
        let (rank, rest) = (low / range, high / range);
        // The smaller one of w and 1 - w is a power, the other its complement.
        let upper = rank >= 0.5;
        let base = 2.0 * if upper { rest } else { rank };
        let small = 0.5 * base.powf(self.alpha);
        let slope = self.alpha * base.powf(self.alpha - 1.0);
        let kept = if upper == complement { small } else { 1.0 - small };
        let sign = if complement { 1.0 } else { -1.0 };
        (-(kept + self.eps).ln(), sign * slope / (kept + self.eps))
    }
}

impl ListLoss for NraConfig {
    const MEASURE: Measure = Measure::Distance;
    const DEAD_TERMS: bool = true;

    fn factor(&self, counts: &Counts) -> f64 {
        1.0 / counts.both.max(1) as f64
    }

    #[inline(always)]
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
        if !list.has_both() {
            return ListValue::default();
        }
        let present = |v: F| if v < F::INFINITY { v } else { F::NEG_INFINITY };
        let farthest_positive = lanes::largest(list.positives, |v| v);
        let nearest_positive = lanes::smallest(list.positives, |v| v);
        let farthest_negative = lanes::largest(list.negatives, present);
        let nearest_negative = lanes::smallest(list.negatives, |v| v);
        let largest = lanes::larger(farthest_positive, farthest_negative);
        let smallest = lanes::smaller(nearest_positive, nearest_negative);
        if largest <= smallest {
            return ListValue { terms: 2, dead_terms: 2, ..ListValue::default() };
        }
        let wide = F::wide;
        let (top, bottom) = (wide(largest), wide(smallest));
        let (p, n) = (wide(farthest_positive), wide(nearest_negative));
        let (loss_p, by_rank_p) = self.term(p - bottom, top - p, true);
        let (loss_n, by_rank_n) = self.term(n - bottom, top - n, false);
        // r = (d - Dmin) / (Dmax - Dmin).
        let range = top - bottom;
        let rank = |d: f64| (d - bottom) / range;
        let mut by_top = -(by_rank_p * rank(p) + by_rank_n * rank(n)) / range;
        let mut by_bottom = -(by_rank_p * (top - p) + by_rank_n * (top - n)) / (range * range);
        let (mut by_p, mut by_n) = (by_rank_p / range, by_rank_n / range);
        // Where one pair is two extremes its derivatives are added before they are rounded: at an
        // end of the ranks they are as large as 1 / eps and cancel.
        for (value, by) in [(p, &mut by_p), (n, &mut by_n)] {
            if value == top {
                *by += std::mem::take(&mut by_top);
            } else if value == bottom {
                *by += std::mem::take(&mut by_bottom);
            }
        }
        list.by_positives[lanes::position(list.positives, farthest_positive)] += F::of(by_p);
        list.by_negatives[lanes::position(list.negatives, nearest_negative)] += F::of(by_n);
        // What is left belongs to the farthest negative and to the nearest positive.
        if by_top != 0.0 {
            list.by_negatives[lanes::position(list.negatives, farthest_negative)] += F::of(by_top);
        }
        if by_bottom != 0.0 {
            list.by_positives[lanes::position(list.positives, nearest_positive)] += F::of(by_bottom);
        }
        let mined_positives = u32::from(farthest_positive < largest);
        let mined_negatives = u32::from(nearest_negative > smallest);
        ListValue {
            loss: loss_p + loss_n,
            mined_positives,
            mined_negatives,
            terms: 2,
            dead_terms: 2 - mined_positives - mined_negatives,
            ..ListValue::default()
        }
    }
}
