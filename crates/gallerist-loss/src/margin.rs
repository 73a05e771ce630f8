//! Margin loss with distance-weighted sampling: positives inside, negatives outside a boundary, negatives
//! drawn so that all distances are met equally often.
//!
//! Wu, Manmatha, Smola, Krähenbühl, "Sampling Matters in Deep Embedding Learning", ICCV 2017 (sections 4.1
//! and 4.2).
//!
//! A miner chooses the pairs; the paper's, and the default, is
//! [`distance_weighted`](crate::miner::DistanceWeightedConfig): for every anchor and each of its positives
//! one negative is drawn. A negative drawn for several positives counts as often.
//!
//! ```text
//! L = 1/M (sum over the positive pairs of [d_ap - beta + margin]_+ + nu beta
//!          + sum over the negative pairs of [beta - d_an + margin]_+)
//! ```
//!
//! with `M` the number of hinges above 0, as in the authors' released code. The boundary `beta` is fixed,
//! learnt, or learnt per class (that of the anchor's class counts). **Held constant**: the choice. A query's
//! own loss is the mean over its positive pairs plus the mean over its negative pairs. With
//! a memory, positives and negatives are of the whole list.
//!
//! # Corner cases
//!
//! - Hinges have slope 0 at the kink. Coincident rows cost what the equation says and have no direction.
//! - A batch without a hinge above 0 has the value 0.
//! - `boundary = "per_class"` needs one class per sample.
//!
//! Memory and time: `O(n (n + d))` and `O(n^2 d)`.
//!
//! Tensor code, not a list loss: its mean is over the active pairs of all queries, which are known only after all lists
//! were read, and its boundary is learnt.

use burn::module::{Module, Param};
use burn::tensor::{Device, Int, Tensor};
use gallerist_retrieval::search::Metric;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::labels::Labels;
use crate::lists::Lists;
use crate::miner::{self, DistanceWeightedConfig, MinerConfig};
use crate::ranking::{AnyLoss, LossOutput, PairLoss, Progress, Queries, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};
use crate::toolbox::{Pairs, column, counts, hinge, indicator, total};

/// Whether the boundary of [`Margin`] is learnt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MarginBoundary {
    /// It stays `beta`.
    #[default]
    Fixed,
    /// One boundary is learnt; it starts at `beta`.
    Learnt,
    /// One boundary per class is learnt; all start at `beta`.
    PerClass,
}

/// Parameters of [`Margin`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, LossShape, MarginBoundary, MarginConfig, Progress, RankingLoss};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let shape = LossShape { classes: 3, dimensions: 8 };
/// let loss = MarginConfig { boundary: MarginBoundary::PerClass, ..Default::default() }.init(shape, &device);
/// let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MarginConfig {
    /// Distance on either side of the boundary. 0.2 in the paper.
    pub margin: f64,
    /// Boundary between positives and negatives, or where it starts. 1.2 in the paper.
    pub beta: f64,
    /// Whether the boundary is learnt.
    pub boundary: MarginBoundary,
    /// Weight of the sum of boundaries, which keeps learnt ones small. 0 in the paper.
    pub nu: f64,
    /// Which pairs take part. `distance_weighted` in the paper.
    pub miner: MinerConfig,
}

impl Default for MarginConfig {
    fn default() -> Self {
        MarginConfig {
            margin: 0.3,
            beta: 0.7,
            boundary: MarginBoundary::Fixed,
            nu: 0.0,
            miner: DistanceWeightedConfig::default().into(),
        }
    }
}

impl MarginConfig {
    /// The loss, with its boundaries (if they are learnt) for `shape` on `device`.
    pub fn init(&self, shape: LossShape, device: &Device) -> Margin {
        let boundaries = match self.boundary {
            MarginBoundary::Fixed => None,
            MarginBoundary::Learnt => Some(1),
            MarginBoundary::PerClass => Some(shape.classes),
        };
        let beta = boundaries.map(|count| Param::from_tensor(Tensor::full([count], self.beta, device)));
        Margin { beta, config: self.clone() }
    }
}

impl Named for MarginConfig {
    const NAME: &'static str = "margin";
}

impl LossSpec for MarginConfig {
    fn build(&self, shape: LossShape, _: u64, device: &Device) -> AnyLoss {
        self.init(shape, device).boxed()
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

    fn needs_one_class(&self) -> Option<&'static str> {
        let hint = "`boundary = \"fixed\"` and `boundary = \"learnt\"` take several labels";
        (self.boundary == MarginBoundary::PerClass).then_some(hint)
    }

    fn scale_parameter(&self) -> Option<&'static str> {
        Some("margin")
    }

    fn validate(&self) -> Result<()> {
        in_range("margin", self.margin, self.margin >= 0.0, "0 or more")?;
        in_range("beta", self.beta, true, "a finite number")?;
        in_range("nu", self.nu, self.nu >= 0.0, "0 or more")?;
        self.miner.validate()
    }
}

/// Margin loss; see [`MarginConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct Margin {
    /// The learnt boundaries, one or one per class.
    beta: Option<Param<Tensor<1>>>,
    #[module(skip)]
    config: MarginConfig,
}

impl PairLoss for Margin {
    fn forward_lists(&self, lists: &Lists<'_>, progress: Progress) -> LossOutput {
        let config = &self.config;
        let pairs = Pairs::new(lists);
        let mined = miner::in_force(Some(&config.miner), &pairs, lists, progress);
        let distance = lists.distances();
        let beta = self.boundaries(lists);

        let cost_p = hinge((distance.clone() - beta.clone()).add_scalar(config.margin));
        let cost_n = hinge((beta.clone() - distance).add_scalar(config.margin));
        let active = |cost: &Tensor<2>, weights: &Tensor<2>| {
            indicator(cost.clone().greater_scalar(0.0), cost) * weights.clone()
        };
        let (active_p, active_n) = (active(&cost_p, &mined.positives), active(&cost_n, &mined.negatives));
        let number = total(&active_p) + total(&active_n);
        let sums_p = (cost_p * mined.positives.clone()).sum_dim(1);
        let sums_n = (cost_n * mined.negatives.clone()).sum_dim(1);
        let price = (beta * mined.positives.clone()).sum().mul_scalar(config.nu);
        let value = (sums_p.clone().sum() + sums_n.clone().sum() + price).mul_scalar(if number > 0.0 {
            1.0 / number
        } else {
            0.0
        });

        let mean = |sums: Tensor<2>, weights: Tensor<2>| sums / weights.sum_dim(1).clamp_min(1.0);
        let queries = Queries {
            loss: column(&(mean(sums_p, mined.positives) + mean(sums_n, mined.negatives))),
            mined_positives: counts(&active_p),
            mined_negatives: counts(&active_n.clamp_max(1.0)),
            ..pairs.queries()
        };
        LossOutput { value, queries }.with_problem(mined.problem, lists)
    }
}

impl Margin {
    /// The boundary of each anchor, `[n, 1]`.
    fn boundaries(&self, lists: &Lists<'_>) -> Tensor<2> {
        let [n, _] = lists.dims();
        let (device, dtype) = (lists.embeddings().device(), lists.embeddings().dtype());
        match (&self.beta, self.config.boundary) {
            (Some(beta), MarginBoundary::PerClass) => {
                let Labels::Classes(classes) = lists.labels() else {
                    panic!("a boundary per class needs one class per sample")
                };
                let [count] = beta.dims();
                if let Some(class) = classes.iter().find(|&&class| class as usize >= count) {
                    panic!("class {class}, but boundaries for {count} classes");
                }
                let classes: Vec<i64> = classes.iter().map(|&class| i64::from(class)).collect();
                let classes = Tensor::<1, Int>::from_data(classes.as_slice(), &device);
                beta.val().select(0, classes).reshape([n, 1]).cast(dtype)
            }
            (Some(beta), _) => beta.val().reshape([1, 1]).cast(dtype).expand([n, 1]),
            (None, _) => Tensor::full([n, 1], self.config.beta, (&device, dtype)),
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::TensorData;

    use super::super::{Labels, RankingLoss};
    use super::*;
    use gallerist_tensor::pairwise::host;

    /// Value and derivative with respect to the boundaries, on 12 points of 3 classes.
    fn run(config: MarginConfig) -> (f64, Vec<f64>) {
        let rows: Vec<f64> = (0..48).map(|i| f64::from(i * i % 29) / 29.0 - 0.5).collect();
        let device = Device::flex().autodiff();
        let x = Tensor::<2>::from_data(TensorData::new(rows, [12, 4]), (&device, burn::tensor::DType::F64));
        let labels: Vec<u32> = (0..12).map(|i| i % 3).collect();
        let loss = config.init(LossShape { classes: 5, dimensions: 4 }, &device);
        let output = loss.forward(x, Labels::Classes(&labels), Progress::default());
        let gradients =
            loss.beta.as_ref().map(|beta| host(&beta.val().grad(&output.value.backward()).unwrap()));
        (host(&output.value)[0], gradients.unwrap_or_default())
    }

    #[test]
    fn learnt_boundaries_get_the_derivative_of_the_value() {
        let config = MarginConfig { beta: 0.625, nu: 0.05, ..MarginConfig::default() };
        let at = |by: f64| run(MarginConfig { beta: 0.625 + by, ..config.clone() }).0;
        let wanted = (at(1e-5) - at(-1e-5)) / 2e-5;
        let (value, learnt) = run(MarginConfig { boundary: MarginBoundary::Learnt, ..config.clone() });
        assert!((value - at(0.0)).abs() < 1e-12);
        assert!(wanted.abs() > 1e-2 && (learnt[0] - wanted).abs() < 1e-6, "{learnt:?} {wanted}");
        // Classes that are not in the batch get none; together the others get what the one boundary gets.
        let (value, by_class) = run(MarginConfig { boundary: MarginBoundary::PerClass, ..config.clone() });
        assert!((value - at(0.0)).abs() < 1e-12);
        assert!(by_class[..3].iter().all(|&g| g != 0.0) && by_class[3..] == [0.0, 0.0], "{by_class:?}");
        assert!((by_class.iter().sum::<f64>() - wanted).abs() < 1e-6);
    }
}
