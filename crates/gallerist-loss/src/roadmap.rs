//! ROADMAP: a smooth upper bound of `1 - AP` (SupAP) and a calibration term that brings the mean over batches closer
//! to the value on the whole data set.
//!
//! Ramzi, Thome, Rambour, Audebert, Bitot, "Robust and Decomposable Average Precision for Image Retrieval", NeurIPS
//! 2021. Normalised embeddings. With `s_qj = x_q.x_j`, for a query `q` and one of its positives `i`:
//!
//! ```text
//! rank+(i) = 1 + number of positives j != i with s_qj >= s_qi
//! rank-(i) = sum over the negatives j of H(s_qj - s_qi)
//! H(z)     = sigmoid(z / temperature)                      z <= 0
//!          = sigmoid(z / temperature) + start              0 < z <= delta
//!          = rho (z - delta) + offset                      z > delta
//! SupAP_q  = 1 - 1/|P_q| sum over i in P_q of rank+(i) / (rank+(i) + rank-(i))
//! C_q      = 1/|P_q| sum over P_q of [positive_margin - s_qj]_+ + 1/|N_q| sum over N_q of [s_qj - negative_margin]_+
//! L        = mean of (1 - lambda) SupAP_q + lambda C_q over the queries that have a positive
//! ```
//!
//! `offset` is `sigmoid(delta / temperature) + start` unless given, so that `H` has no step at `delta`. `lambda = 0` is
//! SupAP alone.
//!
//! The authors' released code differs: the query is a positive in its own list (`include_query`), the two means of the
//! calibration term are over all pairs of the batch with a term above 0 (`calibration = "violating"`), `offset` is 1.44,
//! and the two terms have the weight 1 each, which is twice this value with `lambda = 0.5`. The preset
//! `roadmap-released` has the first three.
//!
//! **Held constant**: `rank+`, and which pairs violate a margin.
//!
//! # Corner cases
//!
//! - A query without a positive has the loss 0 and is left out of the mean; with `calibration = "violating"` its
//!   negatives count in the second term. Without a negative SupAP is 0.
//! - Equal similarities of positives: each precedes the other. A negative as similar as a positive counts half.
//! - `H` has a step of `start` at 0, which gives no gradient.
//! - `1 - AP` is summed from the negatives' part, so that it keeps its digits where AP is near 1.
//!
//! Memory: `O(n d)`. Time: `O(n^2 d + n m)` with `m` the number of ordered positive pairs; `calibration = "violating"`
//! computes the similarities twice.

use burn::module::Module;
use burn::tensor::Device;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::engine::{Counts, List, ListLoss, ListValue, Listed, Measure, Real, lanes};
use crate::lists::Lists;
use crate::ranking::{AnyLoss, LossOutput, PairLoss, Progress, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};

/// Over which pairs the means of the calibration term of [`Roadmap`] are taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RoadmapCalibration {
    /// For each query over its positives and over its negatives, as the equations have it.
    #[default]
    Query,
    /// Over all positive and all negative pairs of the batch whose term is above 0, as in the released code.
    Violating,
}

/// Parameters of [`Roadmap`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, Progress, RankingLoss, RoadmapConfig};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let sup_ap = RoadmapConfig { lambda: 0.0, ..Default::default() }.init();
/// let output = sup_ap.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RoadmapConfig {
    /// Temperature of the sigmoid, `tau`. 0.01 in the paper.
    pub temperature: f64,
    /// Slope of the rank beyond `delta`. 100 in the paper.
    pub rho: f64,
    /// Difference of similarities from which the rank grows linearly. 0.05 in the paper.
    pub delta: f64,
    /// What a negative that precedes a positive counts more than the sigmoid: 0.5. The released code has 0 for
    /// iNaturalist.
    pub start: f64,
    /// Value of `H` at `delta`; absent: `sigmoid(delta / temperature) + start`. 1.44 in the released code.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<f64>,
    /// Weight of the calibration term; SupAP has 1 minus that. 0.5 in the paper.
    pub lambda: f64,
    /// Similarity that positives should have, `alpha`. 0.9 in the paper.
    pub positive_margin: f64,
    /// Similarity that negatives should not exceed, `beta`. 0.6 in the paper.
    pub negative_margin: f64,
    /// Over which pairs the calibration term is a mean.
    pub calibration: RoadmapCalibration,
    /// Whether a query is a positive in its own list, as in the authors' released code. False as the equations have
    /// it.
    pub include_query: bool,
}

impl Default for RoadmapConfig {
    fn default() -> Self {
        RoadmapConfig {
            temperature: 0.027,
            rho: 100.0,
            delta: 0.05,
            start: 0.5,
            offset: None,
            lambda: 0.8,
            positive_margin: 0.7,
            negative_margin: 0.6,
            calibration: RoadmapCalibration::Query,
            include_query: false,
        }
    }
}

impl RoadmapConfig {
    /// The loss.
    pub fn init(&self) -> Roadmap {
        Roadmap { config: self.clone() }
    }
}

impl Named for RoadmapConfig {
    const NAME: &'static str = "roadmap";
}

impl LossSpec for RoadmapConfig {
    fn build(&self, _: LossShape, _: u64, _: &Device) -> AnyLoss {
        self.init().boxed()
    }

    fn takes_memory(&self) -> bool {
        true
    }

    fn derived_parameters(&self) -> Vec<(&'static str, &'static str)> {
        vec![("offset", "sigmoid(delta / temperature) + start")]
    }

    fn scale_parameter(&self) -> Option<&'static str> {
        Some("temperature")
    }

    fn validate(&self) -> Result<()> {
        in_range("temperature", self.temperature, self.temperature > 0.0, "above 0")?;
        in_range("rho", self.rho, self.rho >= 0.0, "0 or more")?;
        in_range("delta", self.delta, self.delta >= 0.0, "0 or more")?;
        in_range("start", self.start, self.start >= 0.0, "0 or more")?;
        if let Some(offset) = self.offset {
            in_range("offset", offset, offset >= 0.0, "0 or more")?;
        }
        in_range("lambda", self.lambda, (0.0..=1.0).contains(&self.lambda), "from 0 to 1")?;
        in_range("positive_margin", self.positive_margin, true, "a finite number")?;
        in_range("negative_margin", self.negative_margin, true, "a finite number")
    }
}

/// ROADMAP; see [`RoadmapConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct Roadmap {
    #[module(skip)]
    config: RoadmapConfig,
}

impl PairLoss for Roadmap {
    fn forward_lists(&self, lists: &Lists<'_>, progress: Progress) -> LossOutput {
        let config = &self.config;
        let weights = match config.calibration {
            _ if config.lambda == 0.0 => None,
            RoadmapCalibration::Query => None,
            RoadmapCalibration::Violating => Some(violating_weights(config, lists, progress)),
        };
        Listed::new(Terms { config, weights }).forward_lists(lists, progress)
    }
}

/// The weights of the terms of the calibration in a query's loss, for positives and negatives, so that their sums over
/// the batch are means over the pairs with a term above 0.
fn violating_weights(config: &RoadmapConfig, lists: &Lists<'_>, progress: Progress) -> [f64; 2] {
    let rows = lists.embeddings().clone().without_autodiff();
    let lists = Lists::new(rows, lists.labels(), lists.memory().cloned());
    let queries = Listed::new(Violations { config }).forward_lists(&lists, progress).queries;
    let total = |counts: &[u32]| counts.iter().map(|&count| f64::from(count)).sum::<f64>().max(1.0);
    let with_positives = queries.positives.iter().filter(|&&count| count > 0).count().max(1) as f64;
    [&queries.mined_positives, &queries.mined_negatives].map(|counts| with_positives / total(counts))
}

/// Counts the pairs of each query whose calibration term is above 0.
struct Violations<'a> {
    config: &'a RoadmapConfig,
}

impl ListLoss for Violations<'_> {
    const MEASURE: Measure = Measure::Similarity;

    fn factor(&self, _: &Counts) -> f64 {
        1.0
    }

    #[inline(always)]
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
        let [high, low] = [self.config.positive_margin, self.config.negative_margin].map(F::of);
        ListValue {
            mined_positives: lanes::count(list.positives, |s| high - s > F::ZERO),
            mined_negatives: lanes::count(list.negatives, |s| s - low > F::ZERO),
            ..ListValue::default()
        }
    }
}

/// The loss of one query.
struct Terms<'a> {
    config: &'a RoadmapConfig,
    /// Weights of the calibration's terms; `None`: means over the query's positives and negatives.
    weights: Option<[f64; 2]>,
}

/// `H` for the differences to one similarity.
struct Step<F> {
    inverse: F,
    rho: F,
    delta: F,
    start: F,
    offset: F,
}

impl<F: Real> Step<F> {
    fn new(config: &RoadmapConfig) -> Self {
        let at_delta = 1.0 / (1.0 + (-config.delta / config.temperature).exp()) + config.start;
        Step {
            inverse: F::of(1.0 / config.temperature),
            rho: F::of(config.rho),
            delta: F::of(config.delta),
            start: F::of(config.start),
            offset: F::of(config.offset.unwrap_or(at_delta)),
        }
    }

    #[inline(always)]
    fn value(&self, z: F) -> F {
        let sigmoid = lanes::sigmoid(z * self.inverse);
        if z > self.delta {
            self.rho * (z - self.delta) + self.offset
        } else if z > F::ZERO {
            sigmoid + self.start
        } else {
            sigmoid
        }
    }

    #[inline(always)]
    fn slope(&self, z: F) -> F {
        let slope = lanes::sigmoid_slope(self.inverse, z * self.inverse);
        if z > self.delta { self.rho } else { slope }
    }
}

impl Terms<'_> {
    /// Adds SupAP's derivatives, multiplied by `weight`, for a positive (or the query itself) with the similarity `s`;
    /// returns its part of the loss and the derivative by `s`.
    #[inline(always)]
    fn sup_ap<F: Real>(&self, list: &mut List<'_, F>, s: F, ahead: u32, weight: f64) -> (f64, F) {
        let step = Step::<F>::new(self.config);
        // An absent place is minus infinity, where `H` is 0.
        let behind = lanes::sum(list.negatives, |other| step.value(other - s)).wide();
        let ahead = f64::from(ahead);
        let rank = ahead + behind;
        let slope = F::of(weight * ahead / (rank * rank));
        let by = lanes::add_map_sum(list.negatives, list.by_negatives, |other| {
            let by = slope * step.slope(other - s);
            (by, by)
        });
        (weight * behind / rank, -by)
    }
}

impl ListLoss for Terms<'_> {
    const MEASURE: Measure = Measure::Similarity;

    fn factor(&self, counts: &Counts) -> f64 {
        1.0 / counts.with_positives.max(1) as f64
    }

    #[inline(always)]
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
        let RoadmapConfig { lambda, include_query, .. } = *self.config;
        let positives = list.positives.len();
        if positives == 0 && self.weights.is_none() {
            return ListValue::default();
        }
        let (mut loss, mut by_own) = (0.0, 0.0);
        if positives > 0 && lambda < 1.0 {
            let own = u32::from(include_query);
            let weight = (1.0 - lambda) / (positives as f64 + f64::from(own));
            for at in 0..positives {
                let s = list.positives[at];
                let mut ahead = lanes::count(list.positives, |other| other >= s);
                ahead += u32::from(include_query && list.own >= s);
                let (part, by) = self.sup_ap(list, s, ahead, weight);
                loss += part;
                list.by_positives[at] += by;
            }
            if include_query {
                let s = list.own;
                let ahead = 1 + lanes::count(list.positives, |other| other >= s);
                let (part, by) = self.sup_ap(list, s, ahead, weight);
                loss += part;
                by_own += by.wide();
            }
        }
        if lambda > 0.0 {
            let of_query = |count: usize| 1.0 / count.max(1) as f64;
            let [pull, push] = self
                .weights
                .unwrap_or([of_query(positives), of_query(list.negative_count)])
                .map(|w| lambda * w);
            let (high, low) = (F::of(self.config.positive_margin), F::of(self.config.negative_margin));
            let (pull_, push_) = (F::of(pull), F::of(push));
            let far = lanes::add_map_sum(list.positives, list.by_positives, |s| {
                if high - s > F::ZERO { (-pull_, high - s) } else { (F::ZERO, F::ZERO) }
            });
            let near = lanes::add_map_sum(list.negatives, list.by_negatives, |s| {
                if s - low > F::ZERO { (push_, s - low) } else { (F::ZERO, F::ZERO) }
            });
            loss += pull * far.wide() + push * near.wide();
        }
        ListValue {
            loss,
            by_own,
            mined_positives: lanes::count(list.by_positives, |by| by != F::ZERO),
            mined_negatives: lanes::count(list.by_negatives, |by| by != F::ZERO),
            ..ListValue::default()
        }
    }
}
