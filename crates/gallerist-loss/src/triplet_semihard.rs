//! Triplet loss with semi-hard negatives: for each positive pair the nearest negative that is farther than
//! the positive, else the farthest negative.
//!
//! Schroff, Kalenichenko, Philbin, "FaceNet: A Unified Embedding for Face Recognition and Clustering",
//! CVPR 2015 (Eqs. 1-4).
//!
//! ```text
//! n(a, p) = the negative with the smallest d_an > d_ap, else the one with the largest d_an
//! L       = mean over (a, p) of [d_ap^2 + margin - d_a,n(a,p)^2]_+, zeros included
//! ```
//!
//! **Held constant**: the choice of the negative. A query's own loss is the mean over its positives.
//!
//! # Corner cases
//!
//! - A negative exactly as far as the positive is not farther. Of equally far negatives one is taken.
//! - The mean is over the pairs whose anchor has a negative; a batch without one has the value 0.
//! - The hinge has slope 0 at the kink; in a collapsed batch the value is `margin` and the gradient 0.
//!
//! The embeddings are L2-normalised by default. Memory and time: `O(n d)` and `O(n^2 (d + p))` with
//! `p` positives of a query.

use burn::tensor::Device;
use gallerist_retrieval::search::Metric;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::engine::{Counts, List, ListLoss, ListValue, Listed, Measure, Real, lanes};
use crate::ranking::{AnyLoss, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};

/// Parameters of [`TripletSemihard`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, Progress, RankingLoss, TripletSemihardConfig};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let loss = TripletSemihardConfig { margin: 1.0 }.init();
/// let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TripletSemihardConfig {
    /// Squared distance by which a negative must be farther than a positive. 0.2 in FaceNet, 1 where NRA
    /// compares with it.
    pub margin: f64,
}

impl Default for TripletSemihardConfig {
    fn default() -> Self {
        TripletSemihardConfig { margin: 0.2 }
    }
}

impl TripletSemihardConfig {
    /// The loss.
    pub fn init(&self) -> TripletSemihard {
        Listed::new(self.clone())
    }
}

impl Named for TripletSemihardConfig {
    const NAME: &'static str = "triplet_semihard";
}

impl LossSpec for TripletSemihardConfig {
    fn build(&self, _: LossShape, _: u64, _: &Device) -> AnyLoss {
        self.init().boxed()
    }

    fn raw_metric(&self) -> Metric {
        Metric::Euclidean
    }

    fn takes_memory(&self) -> bool {
        true
    }

    fn scale_parameter(&self) -> Option<&'static str> {
        Some("margin")
    }

    fn validate(&self) -> Result<()> {
        in_range("margin", self.margin, self.margin >= 0.0, "0 or more")
    }
}

/// Triplet loss with semi-hard negatives; see [`TripletSemihardConfig`] for its parameters.
pub type TripletSemihard = Listed<TripletSemihardConfig>;

impl ListLoss for TripletSemihardConfig {
    const MEASURE: Measure = Measure::Distance;

    fn factor(&self, counts: &Counts) -> f64 {
        1.0 / counts.positive_pairs_of_both.max(1) as f64
    }

    #[inline(always)]
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
        if !list.has_both() {
            return ListValue::default();
        }
        let present = |v: F| if v < F::INFINITY { v } else { F::NEG_INFINITY };
        let farthest = lanes::largest(list.negatives, present);
        let mut seen = ListValue::default();
        for (&positive, by) in list.positives.iter().zip(list.by_positives.iter_mut()) {
            let farther = lanes::smallest(list.negatives, |v| if v > positive { v } else { F::INFINITY });
            let negative = if farther < F::INFINITY { farther } else { farthest };
            let square = |v: F| v.wide() * v.wide();
            let hinge = square(positive) + self.margin - square(negative);
            if hinge > 0.0 {
                seen.loss += hinge;
                seen.mined_positives += 1;
                *by = F::of(2.0) * positive;
                list.by_negatives[lanes::position(list.negatives, negative)] -= F::of(2.0) * negative;
            }
        }
        seen.mined_negatives = lanes::count(list.by_negatives, |by| by != F::ZERO);
        seen.weight = list.positives.len() as f64;
        seen.loss /= seen.weight;
        seen
    }
}
