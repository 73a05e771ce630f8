//! Soft ranking threshold: push every positive's smooth rank below a threshold that has room for all
//! positives, and every negative's rank above it.
//!
//! Yang, Shi, Zhang, Shi, "Soft Ranking Threshold Losses for Image Retrieval", ICIP 2021.
//!
//! For an anchor `i` with `P` positives and `N` negatives in a batch of `n`:
//!
//! ```text
//! R_ij = sum over k = 1..n of sigmoid((d_ij - d_ik) / temperature)
//! T+ = P + 1 - margin,   T- = P + 2 + margin
//! L_i  = balance / P sum_P [R_ij - T+]_+ + (1 - balance) / N sum_N [T- - R_ij]_+
//! L_i += hard_weight (balance / P [max_P R_ij - P/2]_+ + (1 - balance) / N [(n + P + 1)/2 - min_N R_ij]_+)
//! L    = mean over the anchors with a positive and a negative
//! ```
//!
//! `k` runs over the whole batch: `j` itself counts 1/2, the anchor (at distance 0) counts. With a memory of
//! `m` rows, positives, negatives and `k` are from the whole list, and `n + m` replaces `n`. SRT is plain,
//! SRT-M has a margin, SRT-SM is `soft` (softplus for the first two hinges), SRT-H has the hard terms, and
//! SRT-F is soft with the hard terms switched on after `hard_from_step` steps.
//!
//! The paper's text says that the hard terms take the batch's hardest pairs, the farthest positive and the
//! nearest negative (`hardest = "max_min"`); its printed equation has min and max exchanged
//! (`hardest = "as_printed"`).
//!
//! **Held constant**: nothing.
//!
//! # Corner cases
//!
//! - An anchor without a positive or without a negative contributes 0 and is not counted in the mean.
//! - Hinges have slope 0 at the kink. Among ties one pair carries the gradient of a hard term.
//! - Coincident rows: their ranks are right, and the pair's own direction has gradient 0. In a collapsed
//!   batch every rank is `n / 2` and the gradient is 0.
//!
//! The embeddings are as the network gives them; the paper does not normalise. They are compared as they were trained,
//! by the Euclidean distance ([`LossConfig::metric`](super::LossConfig::metric)): the paper does not say, and on
//! Market-1501 (MobileNetV2, 150 steps) it gives mAP .358 and CMC@1 .546, the cosine .351 and .537.
//!
//! A smooth rank approximates a rank where distances differ by several temperatures. Where they do not, every rank is
//! near `n / 2` and the loss is nearly linear in the distances: it falls by growth along one direction, and the other
//! dimensions are lost. So a head that begins as LDA begins with a mean distance of 20 temperatures
//! ([`LossSpec::initial_distance`]; measured in `experiments/head-scale.md`).
//!
//! Memory `O(n d)`. A rank takes a pass over the list. Ranks grow with the distance, and a negative costs something only
//! where its rank is small: the negatives are visited from the nearest on, and the first one over the threshold ends
//! the walk. So the time is `O(n^2 d)` and a pass over the list for each positive and each negative that costs
//! something.

use burn::tensor::Device;
use gallerist_retrieval::search::Metric;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::engine::{Counts, List, ListLoss, ListValue, Listed, Measure, Real, lanes};
use crate::ranking::{AnyLoss, Progress, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};

/// Which pairs the hard terms of [`Srt`] take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SrtHardest {
    /// The positive with the largest rank and the negative with the smallest, as the paper's text says.
    #[default]
    #[serde(alias = "hardest")]
    MaxMin,
    /// The positive with the smallest rank and the negative with the largest, as its equation is printed.
    AsPrinted,
}

/// Parameters of [`Srt`]. The default is the plain loss.
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, Progress, RankingLoss, SrtConfig};
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let loss = SrtConfig { soft: true, ..Default::default() }.init();
/// let output = loss.forward(embeddings.clone(), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SrtConfig {
    /// Weight of the positives' part, from 0 to 1; the negatives' has the rest. 0.5.
    pub balance: f64,
    /// Temperature of the smooth ranks. 1 in the paper.
    pub temperature: f64,
    /// Ranks by which both thresholds move apart (SRT-M). 0: plain.
    pub margin: f64,
    /// Softplus instead of the hinges (SRT-SM).
    pub soft: bool,
    /// Weight of the hard terms (SRT-H: 0.01). 0: none.
    pub hard_weight: f64,
    /// The pairs the hard terms take.
    pub hardest: SrtHardest,
    /// Steps that are taken before the hard terms count (SRT-F). 0: they count from the first step on.
    pub hard_from_step: usize,
}

impl Default for SrtConfig {
    fn default() -> Self {
        SrtConfig {
            balance: 0.5,
            temperature: 0.2,
            margin: 0.0,
            soft: false,
            hard_weight: 0.0,
            hardest: SrtHardest::MaxMin,
            hard_from_step: 0,
        }
    }
}

impl SrtConfig {
    /// The loss.
    pub fn init(&self) -> Srt {
        Listed::new(self.clone())
    }

    /// The weight of the hard terms at a step.
    pub(crate) fn hard_weight_at(&self, progress: Progress) -> f64 {
        if progress.step >= self.hard_from_step { self.hard_weight } else { 0.0 }
    }
}

impl Named for SrtConfig {
    const NAME: &'static str = "srt";
}

impl LossSpec for SrtConfig {
    fn build(&self, _: LossShape, _: u64, _: &Device) -> AnyLoss {
        self.init().boxed()
    }

    fn has_schedule(&self) -> bool {
        self.hard_from_step > 0
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

    /// 20 temperatures.
    fn initial_distance(&self) -> Option<f64> {
        Some(20.0 * self.temperature)
    }

    fn scale_parameter(&self) -> Option<&'static str> {
        Some("temperature")
    }

    fn validate(&self) -> Result<()> {
        in_range("balance", self.balance, (0.0..=1.0).contains(&self.balance), "from 0 to 1")?;
        in_range("temperature", self.temperature, self.temperature > 0.0, "above 0")?;
        in_range("margin", self.margin, self.margin >= 0.0, "0 or more")?;
        in_range("hard_weight", self.hard_weight, self.hard_weight >= 0.0, "0 or more")
    }
}

/// Soft ranking threshold; see [`SrtConfig`] for its parameters.
pub type Srt = Listed<SrtConfig>;

/// Softplus terms that are smaller than the largest one of their list by the exponential of this number are left out.
const NEGLIGIBLE: f64 = 30.0;

impl SrtConfig {
    /// A term and its derivative.
    fn cost(&self, excess: f64) -> (f64, f64) {
        if self.soft {
            (lanes::softplus(excess), 1.0 / (1.0 + (-excess).exp()))
        } else if excess > 0.0 {
            (excess, 1.0)
        } else {
            (0.0, 0.0)
        }
    }

    /// `sum over k of sigmoid((d - d_ik) / temperature)`, the query itself at distance 0 included.
    #[inline(always)]
    fn rank<F: Real>(&self, list: &List<'_, F>, d: F) -> f64 {
        let inverse = F::of(1.0 / self.temperature);
        let sigmoid = |other: F| lanes::sigmoid((d - other) * inverse);
        let others = lanes::sum(list.negatives, sigmoid) + lanes::sum(list.positives, sigmoid);
        others.wide() + (sigmoid(F::ZERO)).wide()
    }

    /// The derivatives of `slope * R(d)` by all distances but `d`; returns the one by `d`.
    #[inline(always)]
    fn differentiate<F: Real>(&self, list: &mut List<'_, F>, d: F, slope: f64) -> F {
        let inverse = F::of(1.0 / self.temperature);
        let slope = F::of(slope) * inverse;
        let derivative = |other: F| lanes::sigmoid_slope(slope, (other - d) * inverse);
        let both = |other: F| {
            let derivative = derivative(other);
            (-derivative, derivative)
        };
        lanes::add_map_sum(list.negatives, list.by_negatives, both)
            + lanes::add_map_sum(list.positives, list.by_positives, both)
            + derivative(F::ZERO)
    }
}

impl ListLoss for SrtConfig {
    const MEASURE: Measure = Measure::Distance;

    fn factor(&self, counts: &Counts) -> f64 {
        1.0 / counts.both.max(1) as f64
    }

    #[inline(always)]
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
        if !list.has_both() {
            return ListValue::default();
        }
        let (p, n) = (list.positives.len() as f64, list.negative_count as f64);
        let (weight_p, weight_n) = (self.balance / p, (1.0 - self.balance) / n);
        let (bound_p, bound_n) = (p + 1.0 - self.margin, p + 2.0 + self.margin);
        let present = |v: F| if v < F::INFINITY { v } else { F::NEG_INFINITY };
        let mut seen = ListValue::default();

        // The hard terms' samples, as distances.
        let nearest = lanes::smallest(list.negatives, |v| v);
        let hard = (self.hard_weight_at(list.progress) > 0.0).then(|| {
            let weight = self.hard_weight_at(list.progress);
            let (of_p, of_n) = match self.hardest {
                SrtHardest::MaxMin => (lanes::largest(list.positives, |v| v), nearest),
                SrtHardest::AsPrinted => {
                    (lanes::smallest(list.positives, |v| v), lanes::largest(list.negatives, present))
                }
            };
            (weight, lanes::position(list.positives, of_p), lanes::position(list.negatives, of_n))
        });

        for at in 0..list.positives.len() {
            let d = list.positives[at];
            let rank = self.rank(list, d);
            let (cost, slope) = self.cost(rank - bound_p);
            seen.loss += weight_p * cost;
            let mut slope = weight_p * slope;
            if let Some((weight, of_p, _)) = hard
                && of_p == at
            {
                let excess = rank - p / 2.0;
                if excess > 0.0 {
                    seen.loss += weight * weight_p * excess;
                    slope += weight * weight_p;
                }
            }
            if slope > 0.0 {
                seen.mined_positives += 1;
                let own = self.differentiate(list, d, slope);
                list.by_positives[at] += own;
            }
        }

        // All negatives at one distance have one rank.
        let mut d = nearest;
        let first_rank = self.rank(list, d);
        let mut rank = first_rank;
        while d < F::INFINITY {
            let (cost, slope) = self.cost(bound_n - rank);
            let done = if self.soft { rank > first_rank.max(bound_n) + NEGLIGIBLE } else { slope == 0.0 };
            if done {
                break;
            }
            let same = lanes::count(list.negatives, |v| v == d);
            let (same_, slope) = (f64::from(same), -weight_n * slope);
            seen.loss += same_ * weight_n * cost;
            seen.mined_negatives += same;
            let own = self.differentiate(list, d, same_ * slope) / F::of(f64::from(same));
            lanes::add_map_sum(list.negatives, list.by_negatives, |v| {
                (if v == d { own } else { F::ZERO }, F::ZERO)
            });
            let here = d;
            d = lanes::smallest(list.negatives, |v| if v > here { v } else { F::INFINITY });
            if d < F::INFINITY {
                rank = self.rank(list, d);
            }
        }
        if let Some((weight, _, of_n)) = hard {
            let d = list.negatives[of_n];
            let rank = if d == nearest { first_rank } else { self.rank(list, d) };
            let excess = (n + p + 1.0 + p + 1.0) / 2.0 - rank;
            if excess > 0.0 {
                seen.loss += weight * weight_n * excess;
                if self.cost(bound_n - rank).1 == 0.0 {
                    seen.mined_negatives += 1;
                }
                let own = self.differentiate(list, d, -weight * weight_n);
                list.by_negatives[of_n] += own;
            }
        }
        if self.soft {
            // The walk leaves out what rounds to nothing; it counts all the same.
            seen.mined_negatives = if weight_n > 0.0 { list.negative_count as u32 } else { 0 };
        }
        seen
    }
}
