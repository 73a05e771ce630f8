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
//! **Held constant**: nothing; query, positives and negatives all get a gradient.
//!
//! # Corner cases
//!
//! - A query without a positive has the loss 0 and is left out of the mean; without a negative its AP is 1.
//! - Equal similarities count as half a rank. `1 - AP` is summed from the negatives' part, so that it keeps its
//!   digits where AP is near 1.
//! - Where no negative is within reach of the sigmoid the gradient is 0: in f32 about 90 temperatures.
//!
//! Memory and time: `O(n d)` and `O(n^2 d + n m)` with `m` the number of ordered positive pairs.

use burn::tensor::Device;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::engine::{Counts, List, ListLoss, ListValue, Listed, Measure, Real, lanes};
use crate::ranking::{AnyLoss, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};

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
    /// Whether a query is a positive of its own list, as in the authors' released layer. False, as in the
    /// equations.
    pub include_query: bool,
}

impl Default for SmoothApConfig {
    fn default() -> Self {
        SmoothApConfig { temperature: 0.046, include_query: false }
    }
}

impl SmoothApConfig {
    /// The loss.
    pub fn init(&self) -> SmoothAp {
        Listed::new(self.clone())
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
pub type SmoothAp = Listed<SmoothApConfig>;

impl ListLoss for SmoothApConfig {
    const MEASURE: Measure = Measure::Similarity;

    fn factor(&self, counts: &Counts) -> f64 {
        1.0 / counts.with_positives.max(1) as f64
    }

    #[inline(always)]
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
        if list.positives.is_empty() {
            return ListValue::default();
        }
        let inverse = F::of(1.0 / self.temperature);
        let own = self.include_query.then_some(list.own);
        let share = 1.0 / (list.positives.len() + usize::from(self.include_query)) as f64;
        let mut seen = ListValue::default();
        for at in 0..list.positives.len() + usize::from(self.include_query) {
            let value = if at < list.positives.len() { list.positives[at] } else { list.own };
            let above = |other: F| lanes::sigmoid((other - value) * inverse);
            // The positive itself counts G(0) = 1/2 among the listed.
            let rank_listed = 0.5 + (lanes::sum(list.positives, above) + own.map_or(F::ZERO, above)).wide();
            let outranked = lanes::sum(list.negatives, above).wide();
            let rank = rank_listed + outranked;
            seen.loss += share * outranked / rank;

            // 1 - rank_P / rank by each G: rank_P / rank^2 for a negative, -(rank - rank_P) / rank^2 for a positive.
            let scale = share / (rank * rank * self.temperature);
            let by = |factor: f64| {
                let factor = F::of(factor * scale);
                move |other: F| {
                    let derivative = lanes::sigmoid_slope(factor, (other - value) * inverse);
                    (derivative, derivative)
                }
            };
            let by_negative = lanes::add_map_sum(list.negatives, list.by_negatives, by(rank_listed));
            let mut by_listed = lanes::add_map_sum(list.positives, list.by_positives, by(-outranked));
            if let Some(own) = own {
                let (by_own, _) = by(-outranked)(own);
                seen.by_own += by_own.wide();
                by_listed += by_own;
            }
            let by_value = by_negative + by_listed;
            if at < list.positives.len() {
                list.by_positives[at] -= by_value;
            } else {
                seen.by_own -= by_value.wide();
            }
        }
        seen.mined_positives = lanes::count(list.by_positives, |by| by != F::ZERO);
        seen.mined_negatives = lanes::count(list.by_negatives, |by| by != F::ZERO);
        seen
    }
}
