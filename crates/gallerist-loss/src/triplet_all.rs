//! Triplet loss over all triplets of a batch.
//!
//! Weinberger, Saul, "Distance Metric Learning for Large Margin Nearest Neighbor Classification", 2009;
//! the batch-all form as in Hermans, Beyer, Leibe, "In Defense of the Triplet Loss", 2017, there with
//! distances, here with their squares.
//!
//! ```text
//! L = mean over all triplets (a, p, n) of [d_ap^2 + margin - d_an^2]_+
//! ```
//!
//! **Held constant**: nothing. A query's own loss is the mean over the triplets it is the anchor of; the
//! batch's value is the mean over all triplets. With a miner (see [`crate::miner`]) the triplets are the mined ones.
//!
//! # Corner cases
//!
//! - The hinge has slope 0 at the kink.
//! - Coincident rows cost what the equation says and have no direction: in a collapsed batch the value is
//!   `margin` and the gradient 0.
//! - A batch without a triplet has the value 0.
//!
//! The embeddings are L2-normalised by default. Memory and time: `O(n d)` and `O(n^2 (d + p))` with
//! `p` positives of a query; the derivative with respect to `d_ap^2` is the number of active triplets of the pair.

use burn::tensor::Device;
use gallerist_retrieval::search::Metric;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::engine::{Counts, List, ListLoss, ListValue, Listed, Measure, Real, lanes};
use crate::miner::{self, MinerConfig};
use crate::ranking::{AnyLoss, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};

/// Parameters of [`TripletAll`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, Progress, RankingLoss, TripletAllConfig};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let loss = TripletAllConfig { margin: 0.3, ..Default::default() }.init();
/// let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TripletAllConfig {
    /// Squared distance by which a negative must be farther than a positive. 0.2.
    pub margin: f64,
    /// Which pairs take part; absent: all.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub miner: Option<MinerConfig>,
}

impl Default for TripletAllConfig {
    fn default() -> Self {
        TripletAllConfig { margin: 0.2, miner: None }
    }
}

impl TripletAllConfig {
    /// The loss.
    pub fn init(&self) -> TripletAll {
        Listed::new(self.clone())
    }
}

impl Named for TripletAllConfig {
    const NAME: &'static str = "triplet_all";
}

impl LossSpec for TripletAllConfig {
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
        in_range("margin", self.margin, self.margin >= 0.0, "0 or more")?;
        miner::validate(self.miner.as_ref())
    }
}

/// Triplet loss over all triplets; see [`TripletAllConfig`] for its parameters.
pub type TripletAll = Listed<TripletAllConfig>;

impl ListLoss for TripletAllConfig {
    const MEASURE: Measure = Measure::Distance;

    fn factor(&self, counts: &Counts) -> f64 {
        1.0 / counts.triplets.max(1) as f64
    }

    fn miner(&self) -> Option<&MinerConfig> {
        self.miner.as_ref()
    }

    #[inline(always)]
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
        if !list.has_both() {
            return ListValue { weight: 0.0, ..ListValue::default() };
        }
        let (margin, two) = (F::of(self.margin), F::of(2.0));
        let mut seen = ListValue::default();
        if let Some(partners) = list.partners {
            for ((&positive, by), &partner) in
                list.positives.iter().zip(list.by_positives.iter_mut()).zip(partners)
            {
                let negative = list.negatives[partner as usize];
                let hinge = positive * positive + margin - negative * negative;
                if hinge > F::ZERO {
                    seen.loss += hinge.wide();
                    seen.mined_positives += 1;
                    *by = two * positive;
                    list.by_negatives[partner as usize] += F::ONE;
                }
            }
            seen.weight = list.positives.len() as f64;
        } else {
            for (&positive, by) in list.positives.iter().zip(list.by_positives.iter_mut()) {
                let bound = positive * positive + margin;
                let hinges = lanes::add_map_sum(list.negatives, list.by_negatives, |d| {
                    let hinge = bound - d * d;
                    if hinge > F::ZERO { (F::ONE, hinge) } else { (F::ZERO, F::ZERO) }
                });
                let active = lanes::count(list.negatives, |d| bound - d * d > F::ZERO);
                seen.loss += hinges.wide();
                seen.mined_positives += u32::from(active > 0);
                *by = F::of(f64::from(active)) * two * positive;
            }
            seen.weight = list.positives.len() as f64 * list.negative_count as f64;
        }
        seen.mined_negatives = lanes::count(list.by_negatives, |by| by > F::ZERO);
        lanes::update(
            list.by_negatives,
            list.negatives,
            |by, d| {
                if by > F::ZERO { by * -two * d } else { F::ZERO }
            },
        );
        seen.loss /= seen.weight;
        seen
    }
}
