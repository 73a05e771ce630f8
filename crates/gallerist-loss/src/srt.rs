//! Soft ranking threshold: push every positive's smooth rank below a threshold that has room for all
//! positives, and every negative's rank above it.
//!
//! Yang, Shi, Zhang, Shi, "Soft Ranking Threshold Losses for Image Retrieval", 2020.
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
//! `m`, positives, negatives and `k` are of the whole list and `n + m` stands for `n`. SRT is plain,
//! SRT-M has a margin, SRT-SM is `soft` (softplus for the first two hinges), SRT-H has the hard terms, and
//! SRT-F is soft with the hard terms switched on at step `hard_from_step`.
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
//! ([`SrtConfig::initial_distance`]; measured in `experiments/head-scale.md`).
//!
//! Time `O(n^3)` with `O(n^2)` memory: the ranks are summed block by block, and the gradient, which is
//! `dL/dd_ij = sum over k of s'((d_ij - d_ik) / temperature) (c_ij - c_ik) / temperature` with
//! `c = dL/dR`, is summed the same way in a second pass.

use burn::module::Module;
use burn::tensor::{Device, IndexingUpdateOp, Tensor, activation::sigmoid};
use gallerist_retrieval::search::Metric;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use super::pairs::{
    Pairs, column, counts, hinge, indicator, row_blocks, row_max, softplus, total, with_gradient,
};
use super::rows::{self, SrtRows};
use crate::Result;
use crate::lists::Lists;
use crate::ranking::{AnyLoss, LossOutput, PairLoss, Progress, Queries, RankingLoss};
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
    /// Step from which the hard terms count (SRT-F).
    pub hard_from_step: usize,
}

impl Default for SrtConfig {
    fn default() -> Self {
        SrtConfig {
            balance: 0.5,
            temperature: 1.0,
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
        Srt { config: self.clone() }
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
#[derive(Module, Debug)]
pub struct Srt {
    #[module(skip)]
    config: SrtConfig,
}

/// One side's share of the loss: `[n, 1]` per query, and its derivative `[n, n + m]` with respect to the ranks.
struct Part {
    loss: Tensor<2>,
    slope: Tensor<2>,
}

impl PairLoss for Srt {
    fn forward_lists(&self, lists: &Lists<'_>, progress: Progress) -> LossOutput {
        let config = &self.config;
        let hard = config.hard_weight_at(progress);
        let rows = SrtRows {
            temperature: config.temperature,
            balance: config.balance,
            margin: config.margin,
            soft: config.soft,
            hard: (hard > 0.0).then_some((hard, config.hardest)),
        };
        if let Some(output) = rows::forward(&rows, lists) {
            return output;
        }
        let pairs = Pairs::new(lists);
        let distance = lists.distances();
        let scaled = distance.clone().detach().mul_scalar(1.0 / config.temperature);
        let rank = ranks(&scaled);

        let both = pairs.both();
        let anchors = total(&both).max(1.0);
        let number = |mask: &Tensor<2>| mask.clone().sum_dim(1);
        let (positives, negatives) = (number(&pairs.positives), number(&pairs.negatives));
        let weight =
            |share: f64, count: &Tensor<2>| both.clone().mul_scalar(share) / count.clone().clamp_min(1.0);
        let weight_p = weight(config.balance, &positives);
        let weight_n = weight(1.0 - config.balance, &negatives);

        let over = rank.clone() - positives.clone().add_scalar(1.0 - config.margin);
        let under = positives.clone().add_scalar(2.0 + config.margin) - rank.clone();
        let mut parts = vec![
            threshold(over, &pairs.positives, config.soft, &weight_p, 1.0),
            threshold(under, &pairs.negatives, config.soft, &weight_n, -1.0),
        ];
        if hard > 0.0 {
            let largest = config.hardest == SrtHardest::MaxMin;
            let samples = positives.clone() + negatives.clone().add_scalar(1.0);
            let over = rank.clone() - positives.clone().mul_scalar(0.5);
            let under = (samples + positives.add_scalar(1.0)).mul_scalar(0.5) - rank.clone();
            parts.push(extreme(over, &pairs.positives, largest, &weight_p.clone().mul_scalar(hard), 1.0));
            parts.push(extreme(under, &pairs.negatives, largest, &weight_n.clone().mul_scalar(hard), -1.0));
        }
        let sum =
            |tensors: Vec<Tensor<2>>| tensors.into_iter().reduce(|a, b| a + b).expect("two parts or four");
        let slope = sum(parts.iter().map(|part| part.slope.clone()).collect());
        let per_query = sum(parts.into_iter().map(|part| part.loss).collect());
        let value = per_query.clone().sum().mul_scalar(1.0 / anchors);

        // Softplus has a slope everywhere, even where it rounds to nothing.
        let used = |mask: &Tensor<2>, weight: Tensor<2>| {
            let slope = if config.soft { weight } else { slope.clone() };
            counts(&(indicator(slope.not_equal_scalar(0.0), &rank) * mask.clone()))
        };
        let queries = Queries {
            loss: column(&per_query),
            mined_positives: used(&pairs.positives, weight_p),
            mined_negatives: used(&pairs.negatives, weight_n),
            ..pairs.queries()
        };
        let value = if distance.is_tracked() {
            let gradient =
                rank_gradient(&scaled, &slope.mul_scalar(1.0 / anchors)).mul_scalar(1.0 / config.temperature);
            with_gradient(value, &distance, gradient)
        } else {
            value
        };
        LossOutput { value, queries }
    }
}

/// `R_ij = sum over k of sigmoid(scaled_ij - scaled_ik)`.
fn ranks(scaled: &Tensor<2>) -> Tensor<2> {
    let [n, g] = scaled.dims();
    let blocks = row_blocks(n, g * g).map(|rows| differences(scaled, rows)).map(|z| sum_last(sigmoid(z)));
    Tensor::cat(blocks.collect(), 0)
}

/// `sum over k of s'(scaled_ij - scaled_ik) (slope_ij - slope_ik)`.
fn rank_gradient(scaled: &Tensor<2>, slope: &Tensor<2>) -> Tensor<2> {
    let [n, g] = scaled.dims();
    let blocks = row_blocks(n, g * g).map(|rows| {
        let s = sigmoid(differences(scaled, rows.clone()));
        let derivative = s.clone() * s.neg().add_scalar(1.0);
        sum_last(derivative * differences(slope, rows))
    });
    Tensor::cat(blocks.collect(), 0)
}

/// `[b, m, m]`: `x_ij - x_ik` for the rows `i` of a block.
fn differences(x: &Tensor<2>, rows: std::ops::Range<usize>) -> Tensor<3> {
    let b = rows.len();
    let [_, m] = x.dims();
    let block = x.clone().slice([rows, 0..m]);
    block.clone().reshape([b, m, 1]) - block.reshape([b, 1, m])
}

fn sum_last(x: Tensor<3>) -> Tensor<2> {
    let [b, m, _] = x.dims();
    x.sum_dim(2).reshape([b, m])
}

/// The weighted sum of `[excess]_+` (or its softplus) inside `mask`; `sign` is the excess's slope in the
/// rank.
fn threshold(excess: Tensor<2>, mask: &Tensor<2>, soft: bool, weight: &Tensor<2>, sign: f64) -> Part {
    let weight = mask.clone() * weight.clone();
    let slope =
        if soft { sigmoid(excess.clone()) } else { indicator(excess.clone().greater_scalar(0.0), &weight) };
    let cost = if soft { softplus(excess) } else { hinge(excess) };
    Part { loss: (cost * weight.clone()).sum_dim(1), slope: (slope * weight).mul_scalar(sign) }
}

/// The weighted `[excess]_+` of the largest excess of each row inside `mask`, or of the smallest.
fn extreme(excess: Tensor<2>, mask: &Tensor<2>, largest: bool, weight: &Tensor<2>, sign: f64) -> Part {
    let direction = if largest { 1.0 } else { -1.0 };
    let ordered = excess.clone().mul_scalar(direction);
    let cost = hinge(row_max(&ordered, mask).mul_scalar(direction)) * weight.clone();
    let outside = mask.clone().equal_scalar(0.0);
    let at = ordered.mask_fill(outside, f32::NEG_INFINITY).argmax(1);
    let slope = indicator(cost.clone().greater_scalar(0.0), weight) * weight.clone().mul_scalar(sign);
    let slope = excess.zeros_like().scatter(1, at, slope, IndexingUpdateOp::Add);
    Part { loss: cost, slope }
}
