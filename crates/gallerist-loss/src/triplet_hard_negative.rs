//! Triplet loss with the hardest negative: each positive pair with its anchor's nearest negative.
//!
//! The hard-negative form of FaceNet's triplet loss (Schroff et al., CVPR 2015), with distances instead of
//! their squares, that papers on ranking losses compare with.
//!
//! ```text
//! L = mean over (a, p) of [margin + d_ap - min_n d_an]_+
//! ```
//!
//! over the anchors that have a positive and a negative. **Held constant**: the choice of the negative. A
//! query's own loss is the mean over its positives.
//!
//! # Corner cases
//!
//! - Among equally near negatives one carries the gradient. The hinge has slope 0 at the kink.
//! - In a collapsed batch the value is `margin` and the gradient 0.
//! - A batch without a triplet has the value 0.
//!
//! The embeddings are L2-normalised by default. Memory and time: `O(n^2)` and `O(n^2 d)`.

use burn::module::Module;
use burn::tensor::Device;
use gallerist_retrieval::search::Metric;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use super::pairs::{Pairs, column, counts, hinge, indicator, row_min, total};
use super::rows::{self, HardNegativeRows};
use crate::Result;
use crate::lists::Lists;
use crate::ranking::{AnyLoss, LossOutput, PairLoss, Progress, Queries, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};

/// Parameters of [`TripletHardNegative`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, Progress, RankingLoss, TripletHardNegativeConfig};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let loss = TripletHardNegativeConfig { margin: 0.1 }.init();
/// let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TripletHardNegativeConfig {
    /// Distance by which the nearest negative must be farther than a positive. 0.2.
    pub margin: f64,
}

impl Default for TripletHardNegativeConfig {
    fn default() -> Self {
        TripletHardNegativeConfig { margin: 0.2 }
    }
}

impl TripletHardNegativeConfig {
    /// The loss.
    pub fn init(&self) -> TripletHardNegative {
        TripletHardNegative { config: self.clone() }
    }
}

impl Named for TripletHardNegativeConfig {
    const NAME: &'static str = "triplet_hard_negative";
}

impl LossSpec for TripletHardNegativeConfig {
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

/// Triplet loss with the hardest negative; see [`TripletHardNegativeConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct TripletHardNegative {
    #[module(skip)]
    config: TripletHardNegativeConfig,
}

impl PairLoss for TripletHardNegative {
    fn forward_lists(&self, lists: &Lists<'_>, _progress: Progress) -> LossOutput {
        let rows = HardNegativeRows { margin: self.config.margin };
        if let Some(output) = rows::forward(&rows, lists) {
            return output;
        }
        let pairs = Pairs::new(lists);
        let distance = lists.distances();
        let taken = pairs.positives.clone() * pairs.both();
        let nearest = row_min(&distance, &pairs.negatives);
        let excess = hinge((distance - nearest).add_scalar(self.config.margin)) * taken.clone();
        let per_query = excess.clone().sum_dim(1) / taken.clone().sum_dim(1).clamp_min(1.0);
        let active = indicator(excess.clone().greater_scalar(0.0), &excess);
        let queries = Queries {
            loss: column(&per_query),
            mined_positives: counts(&active),
            mined_negatives: counts(&active.max_dim(1)),
            ..pairs.queries()
        };
        LossOutput { value: excess.sum().mul_scalar(1.0 / total(&taken).max(1.0)), queries }
    }
}
