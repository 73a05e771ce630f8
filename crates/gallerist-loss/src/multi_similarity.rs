//! Multi-Similarity loss: mine the pairs that violate their anchor's order, then weight them by their own and
//! by their relative similarity.
//!
//! Wang, Han, Huang, Dong, Scott, "Multi-Similarity Loss with General Pair Weighting for Deep Metric
//! Learning", CVPR 2019.
//!
//! With the similarity `S_ij = x_i.x_j` of embeddings of length 1:
//!
//! ```text
//! kept negatives N*: S_in > min over positives of S_ip - epsilon
//! kept positives P*: S_ip < max over negatives of S_in + epsilon
//! L_i = 1/alpha log(1 + sum_P* exp(-alpha (S_ip - base))) + 1/beta log(1 + sum_N* exp(beta (S_in - base)))
//! L   = mean of L_i over all n
//! ```
//!
//! **Held constant**: which pairs are kept. Another miner than the paper's can choose them
//! (see [`crate::miner`]).
//!
//! # Corner cases
//!
//! - With mining, an anchor without a positive or without a negative has nothing to be compared with and
//!   contributes 0. Without mining (`miner = { name = "all" }`) each side counts by itself.
//! - The largest exponent is subtracted before `exp`; a sum far below 1 keeps its relative precision.
//!
//! Memory and time: `O(n d)` and `O(n^2 d)`.

use burn::tensor::Device;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::engine::{List, ListLoss, ListValue, Listed, Measure, Real, lanes};
use crate::miner::{MinerConfig, MultiSimilarityMinerConfig};
use crate::ranking::{AnyLoss, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};

/// Parameters of [`MultiSimilarity`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, MultiSimilarityConfig, Progress, RankingLoss};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let loss = MultiSimilarityConfig { base: 0.7, ..Default::default() }.init();
/// let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MultiSimilarityConfig {
    /// Sharpness of the positives' weights. 2 in the paper.
    pub alpha: f64,
    /// Sharpness of the negatives' weights. 50 in the paper.
    pub beta: f64,
    /// Similarity `lambda` around which pairs are weighed. 0.5, as in the authors' released code.
    pub base: f64,
    /// Which pairs take part. The paper's own mining, `multi_similarity` with `epsilon` 0.1.
    pub miner: MinerConfig,
}

impl Default for MultiSimilarityConfig {
    fn default() -> Self {
        let miner: MinerConfig = MultiSimilarityMinerConfig::default().into();
        MultiSimilarityConfig { alpha: 3.0, beta: 12.0, base: 0.5, miner }
    }
}

impl MultiSimilarityConfig {
    /// The loss.
    pub fn init(&self) -> MultiSimilarity {
        Listed::new(self.clone())
    }
}

impl Named for MultiSimilarityConfig {
    const NAME: &'static str = "multi_similarity";
}

impl LossSpec for MultiSimilarityConfig {
    fn build(&self, _: LossShape, _: u64, _: &Device) -> AnyLoss {
        self.init().boxed()
    }

    fn takes_memory(&self) -> bool {
        true
    }

    fn takes_miner(&self) -> bool {
        true
    }

    fn scale_parameter(&self) -> Option<&'static str> {
        Some("beta")
    }

    fn validate(&self) -> Result<()> {
        in_range("alpha", self.alpha, self.alpha > 0.0, "above 0")?;
        in_range("beta", self.beta, self.beta > 0.0, "above 0")?;
        in_range("base", self.base, true, "a finite number")?;
        self.miner.validate()
    }
}

/// Multi-Similarity loss; see [`MultiSimilarityConfig`] for its parameters.
pub type MultiSimilarity = Listed<MultiSimilarityConfig>;

/// `log(1 + sum exp(slope * (value - base))) / |slope|` over the values that `fits`, its derivatives,
/// and how many fit.
#[inline(always)]
fn part<F: Real>(
    values: &[F],
    to: &mut [F],
    slope: f64,
    base: f64,
    fits: impl Fn(F) -> bool + Copy,
) -> (f64, u32) {
    let (slope_, base_) = (F::of(slope), F::of(base));
    let exponent = |value: F| slope_ * (value - base_);
    let mined = lanes::count(values, fits);
    if mined == 0 {
        return (0.0, 0);
    }
    // The 1 is the exponent 0.
    let largest = lanes::largest(values, |v| if fits(v) { exponent(v) } else { F::ZERO });
    let largest = lanes::larger(largest, F::ZERO);
    let sum = lanes::map_sum(values, to, |v| {
        let raw = if fits(v) { (exponent(v) - largest).exp() } else { F::ZERO };
        (raw, raw)
    });
    let one = (-largest.wide()).exp();
    let total = sum.wide() + one;
    lanes::scale(to, F::of(slope.signum() / total));
    // log(total) = log(1 + (one - 1) + sum), precise for small sums.
    let log = largest.wide() + (one - 1.0 + sum.wide()).ln_1p();
    (log / slope.abs(), mined)
}

impl MultiSimilarityConfig {
    /// The paper's miner, which the list function applies itself.
    fn own_miner(&self) -> Option<&MultiSimilarityMinerConfig> {
        self.miner.downcast_ref()
    }
}

impl ListLoss for MultiSimilarityConfig {
    const MEASURE: Measure = Measure::Similarity;

    fn miner(&self) -> Option<&MinerConfig> {
        match self.own_miner() {
            Some(_) => None,
            None => Some(&self.miner),
        }
    }

    #[inline(always)]
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
        let (least_negative, most_positive) = match self.own_miner() {
            Some(miner) => (
                lanes::smallest(list.positives, |v| v) - F::of(miner.epsilon),
                lanes::largest(list.negatives, |v| v) + F::of(miner.epsilon),
            ),
            // Below every similarity, above the mark of what is absent.
            None => (F::NEG_INFINITY, F::INFINITY),
        };
        let fits = |v: F| v > least_negative && v > F::NEG_INFINITY;
        let (loss_n, mined_negatives) = part(list.negatives, list.by_negatives, self.beta, self.base, fits);
        let fits = |v: F| v < most_positive;
        let (loss_p, mined_positives) = part(list.positives, list.by_positives, -self.alpha, self.base, fits);
        ListValue { loss: loss_p + loss_n, mined_positives, mined_negatives, ..ListValue::default() }
    }
}
