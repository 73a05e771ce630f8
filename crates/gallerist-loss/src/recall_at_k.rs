//! Recall@k surrogate (RS@k): the recall among the first `k`, with both steps (that of the rank and that at `k`)
//! replaced by sigmoids.
//!
//! Patel, Tolias, Matas, "Recall@k Surrogate Loss with Large Batches and Similarity Mixup", CVPR 2022. Normalised
//! embeddings. With `s_qj = x_q.x_j`, for a query `q` and one of its positives `i`:
//!
//! ```text
//! rank(i)  = 1 + sum over j != i in P_q and N_q of sigmoid((s_qj - s_qi) / temperature)
//! R_k      = min(sum over i in P_q of sigmoid((k - rank(i)) / rank_temperature), k) / min(k, |P_q|)
//! L        = mean of 1 - (mean of R_k over the values of k) over the queries that have a positive
//! ```
//!
//! The division by `min(k, |P_q|)` and the bound `k` are those of the authors' released code: a perfect list scores 1
//! or less for every `k`.
//!
//! The query is not in its own ranked list. The authors' released code counts it there, as a negative that precedes
//! every positive: `include_query`.
//!
//! **Similarity mixup** (`simix`): each two samples of a class give a virtual sample, `a x_i + (1 - a) x_j` with `a`
//! uniform in 0..1, not normalised again. Virtual samples are queries and members of the lists like all others; the
//! value is the mean over samples and virtual samples. Samples with sets of labels: the virtual sample has the labels
//! that both share. The coefficients depend on the seed of the run and on the step, not on the number of threads. A
//! memory gets no virtual samples. The diagnostics are those of the samples; their positives and negatives include
//! virtual ones.
//!
//! **Held constant**: nothing; query, positives and negatives all get a gradient, and a virtual sample hands its own to
//! the two samples that it is made of.
//!
//! # Corner cases
//!
//! - A query without a positive has the loss 0 and is left out of the mean. Without a negative the positives still
//!   rank each other: with `rank_temperature = 1` the loss is not 0.
//! - Equal similarities count as half a rank.
//! - Where the sum over the positives exceeds `k`, that `k` gives no gradient.
//! - Where no sample is within reach of the sigmoid of the rank the gradient is 0: in f32 about 90 temperatures.
//!
//! Memory: `O(n d)`; with `simix` of `n` plus the number of virtual samples, `(K - 1) / 2` for each sample of a class
//! with `K`. Time: `O(n^2 d + n m)` with `m` the number of ordered positive pairs.

use burn::module::Module;
use burn::tensor::Device;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::engine::{Counts, List, ListLoss, ListValue, Listed, Measure, Real, lanes};
use crate::lists::Lists;
use crate::ranking::{AnyLoss, LossOutput, PairLoss, Progress, RankingLoss};
use crate::simix;
use crate::spec::{LossShape, LossSpec, in_range};
use crate::{Error, Result};

/// Parameters of [`RecallAtK`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, Progress, RankingLoss, RecallAtKConfig};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let loss = RecallAtKConfig { simix: true, ..Default::default() }.init(7);
/// let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RecallAtKConfig {
    /// The values of `k` whose recall is approximated. 1, 2, 4, 8 and 16 in the paper.
    pub k: Vec<usize>,
    /// Temperature of the sigmoid that approximates the rank. 0.01 in the paper.
    pub temperature: f64,
    /// Temperature of the sigmoid at `k`, in ranks. 1 in the paper.
    pub rank_temperature: f64,
    /// Whether a query counts in its own list, as in the authors' released code. False as the equations have it.
    pub include_query: bool,
    /// Similarity mixup: virtual samples between each two samples of a class.
    pub simix: bool,
    /// Coefficient of the first sample of each virtual one; absent: uniform in 0..1 for each virtual sample.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mix: Option<f64>,
}

impl Default for RecallAtKConfig {
    fn default() -> Self {
        RecallAtKConfig {
            k: vec![1, 2, 4, 8, 16],
            temperature: 0.01,
            rank_temperature: 1.0,
            include_query: false,
            simix: false,
            mix: None,
        }
    }
}

impl RecallAtKConfig {
    /// The loss; `seed` is that of the coefficients of similarity mixup.
    pub fn init(&self, seed: u64) -> RecallAtK {
        RecallAtK { config: self.clone(), seed }
    }
}

impl Named for RecallAtKConfig {
    const NAME: &'static str = "recall_at_k";
}

impl LossSpec for RecallAtKConfig {
    fn build(&self, _: LossShape, seed: u64, _: &Device) -> AnyLoss {
        self.init(seed).boxed()
    }

    fn takes_memory(&self) -> bool {
        true
    }

    fn derived_parameters(&self) -> Vec<(&'static str, &'static str)> {
        vec![("mix", "uniform in 0..1")]
    }

    fn scale_parameter(&self) -> Option<&'static str> {
        Some("temperature")
    }

    fn validate(&self) -> Result<()> {
        in_range("temperature", self.temperature, self.temperature > 0.0, "above 0")?;
        in_range("rank_temperature", self.rank_temperature, self.rank_temperature > 0.0, "above 0")?;
        if self.k.is_empty() {
            let message = "`loss.k` is empty: there is no recall to approximate".into();
            return Err(Error::Conflict { message, hint: "write k = [1, 2, 4, 8, 16]".into() });
        }
        for &k in &self.k {
            in_range("k", k as f64, k > 0, "one or more numbers of 1 or more")?;
        }
        if let Some(mix) = self.mix {
            in_range("mix", mix, (0.0..=1.0).contains(&mix), "from 0 to 1")?;
        }
        Ok(())
    }
}

/// Recall@k surrogate; see [`RecallAtKConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct RecallAtK {
    #[module(skip)]
    config: RecallAtKConfig,
    #[module(skip)]
    seed: u64,
}

impl PairLoss for RecallAtK {
    fn forward_lists(&self, lists: &Lists<'_>, progress: Progress) -> LossOutput {
        let loss = Listed::new(self.config.clone());
        if !self.config.simix {
            return loss.forward_lists(lists, progress);
        }
        let mixed = simix::extend(lists, self.config.mix, self.seed, progress.step);
        let mut output = loss.forward_lists(&mixed.lists(lists.memory()), progress);
        output.queries.truncate(lists.labels().len());
        output
    }
}

impl RecallAtKConfig {
    /// `rank(i)` of a positive with the similarity `s`.
    #[inline(always)]
    fn rank<F: Real>(&self, list: &List<'_, F>, s: F) -> f64 {
        let inverse = F::of(1.0 / self.temperature);
        let sigmoid = |other: F| lanes::sigmoid((other - s) * inverse);
        let others = lanes::sum(list.negatives, sigmoid) + lanes::sum(list.positives, sigmoid);
        let own = if self.include_query { sigmoid(list.own).wide() } else { 0.0 };
        // The positive itself is among them, with one half.
        0.5 + others.wide() + own
    }

    /// Adds the derivatives of `slope * rank(i)`, `i` being the positive `at`; returns that by the query's similarity to
    /// itself.
    #[inline(always)]
    fn differentiate<F: Real>(&self, list: &mut List<'_, F>, at: usize, slope: f64) -> f64 {
        let s = list.positives[at];
        let inverse = F::of(1.0 / self.temperature);
        let slope = F::of(slope) * inverse;
        let derivative = |other: F| lanes::sigmoid_slope(slope, (other - s) * inverse);
        let both = |other: F| (derivative(other), derivative(other));
        let mut by_others = lanes::add_map_sum(list.negatives, list.by_negatives, both)
            + lanes::add_map_sum(list.positives, list.by_positives, both);
        let by_own = if self.include_query { derivative(list.own) } else { F::ZERO };
        by_others += by_own;
        list.by_positives[at] -= by_others;
        by_own.wide()
    }
}

impl ListLoss for RecallAtKConfig {
    const MEASURE: Measure = Measure::Similarity;

    fn factor(&self, counts: &Counts) -> f64 {
        1.0 / counts.with_positives.max(1) as f64
    }

    #[inline(always)]
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
        let positives = list.positives.len();
        if positives == 0 {
            return ListValue::default();
        }
        let ranks: Vec<f64> = list.positives.iter().map(|&s| self.rank(list, s)).collect();
        // The derivative of the loss by each rank.
        let mut slopes = vec![0.0; positives];
        let mut recall = 0.0;
        let share = 1.0 / self.k.len() as f64;
        for &k in &self.k {
            let within = |rank: f64| 1.0 / (1.0 + ((rank - k as f64) / self.rank_temperature).exp());
            let found: f64 = ranks.iter().map(|&rank| within(rank)).sum();
            let part = share / k.min(positives) as f64;
            recall += part * found.min(k as f64);
            if found < k as f64 {
                for (slope, &rank) in slopes.iter_mut().zip(&ranks) {
                    let within = within(rank);
                    *slope += part * within * (1.0 - within) / self.rank_temperature;
                }
            }
        }
        let (mut mined_positives, mut by_own) = (0, 0.0);
        for (at, &slope) in slopes.iter().enumerate() {
            if slope > 0.0 {
                mined_positives += 1;
                by_own += self.differentiate(list, at, slope);
            }
        }
        ListValue {
            loss: 1.0 - recall,
            by_own,
            mined_positives,
            mined_negatives: lanes::count(list.by_negatives, |by| by != F::ZERO),
            ..ListValue::default()
        }
    }
}
