//! Contrastive loss: pull the pairs of one class together, push the pairs of different classes a margin
//! apart.
//!
//! Hadsell, Chopra, LeCun, "Dimensionality Reduction by Learning an Invariant Mapping", CVPR 2006.
//!
//! ```text
//! L = mean over unordered pairs of  d_ij^2               (same class)
//!                                   [margin - d_ij]_+^2  (different classes)
//! ```
//!
//! **Held constant**: nothing. A query's own loss is the mean over its `n - 1` pairs, so that the loss is
//! the mean over the queries. With a memory of `m` it has `n - 1 + m`. With a miner (see [`crate::miner`]) both
//! means are over the selected pairs.
//!
//! # Corner cases
//!
//! - Coincident rows of two classes cost `margin^2` and have no direction: gradient 0.
//! - A batch of one sample has the value 0.
//!
//! The embeddings are L2-normalised by default. Memory and time: `O(n d)` and `O(n^2 d)`.

use burn::tensor::Device;
use gallerist_retrieval::search::Metric;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::engine::{Counts, List, ListLoss, ListValue, Listed, Measure, Real, lanes};
use crate::miner::{self, MinerConfig};
use crate::ranking::{AnyLoss, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};

/// Parameters of [`Contrastive`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{ContrastiveConfig, Labels, Progress, RankingLoss};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let loss = ContrastiveConfig { margin: 0.5, ..Default::default() }.init();
/// let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ContrastiveConfig {
    /// Distance beyond which a negative costs nothing. 1.
    pub margin: f64,
    /// Which pairs take part; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub miner: Option<MinerConfig>,
}

impl Default for ContrastiveConfig {
    fn default() -> Self {
        ContrastiveConfig { margin: 1.0, miner: None }
    }
}

impl ContrastiveConfig {
    /// The loss.
    pub fn init(&self) -> Contrastive {
        Listed::new(self.clone())
    }
}

impl Named for ContrastiveConfig {
    const NAME: &'static str = "contrastive";
}

impl LossSpec for ContrastiveConfig {
    fn build(&self, _: LossShape, _: u64, _: &Device) -> AnyLoss {
        self.init().boxed()
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

    fn scale_parameter(&self) -> Option<&'static str> {
        Some("margin")
    }

    fn validate(&self) -> Result<()> {
        in_range("margin", self.margin, self.margin > 0.0, "above 0")?;
        miner::validate(self.miner.as_ref())
    }
}

/// Contrastive loss; see [`ContrastiveConfig`] for its parameters.
pub type Contrastive = Listed<ContrastiveConfig>;

impl ListLoss for ContrastiveConfig {
    const MEASURE: Measure = Measure::Distance;

    fn factor(&self, counts: &Counts) -> f64 {
        1.0 / counts.pairs.max(1) as f64
    }

    fn miner(&self) -> Option<&MinerConfig> {
        self.miner.as_ref()
    }

    #[inline(always)]
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
        let (margin, two) = (F::of(self.margin), F::of(2.0));
        let pull = lanes::map_sum(list.positives, list.by_positives, |d| (two * d, d * d));
        let push = |d: F| {
            let hinge = lanes::larger(margin - d, F::ZERO);
            (-two * hinge, hinge * hinge)
        };
        let push = match list.repeats {
            None => lanes::map_sum(list.negatives, list.by_negatives, push),
            Some(repeats) => {
                lanes::map_sum(list.negatives, list.by_negatives, push);
                lanes::update(list.by_negatives, repeats, |by, repeats| by * repeats);
                lanes::weighted_sum(repeats, list.negatives, |d| push(d).1)
            }
        };
        // A query's own loss is the mean over its pairs.
        let pairs = list.pairs().max(1) as f64;
        ListValue {
            loss: (pull.wide() + push.wide()) / pairs,
            weight: pairs,
            mined_positives: lanes::count(list.positives, |d| d > F::ZERO),
            mined_negatives: lanes::count(list.negatives, |d| d < margin),
            ..ListValue::default()
        }
    }
}
