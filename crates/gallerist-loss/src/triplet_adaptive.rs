//! Adaptively weighted triplet loss: all positives and negatives of an anchor, the far positives and the near
//! negatives counting most.
//!
//! Ristani, Tomasi, "Features for Multi-Target Multi-Camera Tracking and Re-Identification", CVPR 2018.
//!
//! ```text
//! w_p = exp(d_ap) / sum over positives of exp(d_ap),   w_n = exp(-d_an) / sum over negatives of exp(-d_an)
//! L   = mean over anchors of [margin + sum_p w_p d_ap - sum_n w_n d_an]_+
//! ```
//!
//! over the anchors that have a positive and a negative. **Held constant**: nothing, the weights are
//! differentiated too.
//!
//! # Corner cases
//!
//! - The largest exponent is subtracted before `exp`. The hinge has slope 0 at the kink.
//! - In a collapsed batch the value is `margin` and the gradient 0.
//! - A batch without a triplet has the value 0.
//!
//! The embeddings are as the network gives them; the paper does not normalise. They are compared as they were
//! trained, by the Euclidean distance. Memory and time: `O(n^2)` and `O(n^2 d)`.

use burn::module::Module;
use burn::tensor::Device;
use gallerist_retrieval::search::Metric;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use super::pairs::{Pairs, column, hinge, mean_among, row_softmax};
use super::rows::{self, AdaptiveRows};
use crate::Result;
use crate::lists::Lists;
use crate::ranking::{AnyLoss, LossOutput, PairLoss, Progress, Queries, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};

/// Parameters of [`TripletAdaptive`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, Progress, RankingLoss, TripletAdaptiveConfig};
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let loss = TripletAdaptiveConfig::default().init();
/// let output = loss.forward(embeddings.clone(), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TripletAdaptiveConfig {
    /// Distance by which the negatives must be farther than the positives. 1.
    pub margin: f64,
}

impl Default for TripletAdaptiveConfig {
    fn default() -> Self {
        TripletAdaptiveConfig { margin: 1.0 }
    }
}

impl TripletAdaptiveConfig {
    /// The mean distance between rows at which training begins well
    /// ([`LossConfig::initial_distance`](super::LossConfig::initial_distance)).
    pub const INITIAL_DISTANCE: f64 = 5.0;

    /// The loss.
    pub fn init(&self) -> TripletAdaptive {
        TripletAdaptive { config: self.clone() }
    }
}

impl Named for TripletAdaptiveConfig {
    const NAME: &'static str = "triplet_adaptive";
}

impl LossSpec for TripletAdaptiveConfig {
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

    fn initial_distance(&self) -> Option<f64> {
        Some(TripletAdaptiveConfig::INITIAL_DISTANCE)
    }

    fn scale_parameter(&self) -> Option<&'static str> {
        Some("margin")
    }

    fn validate(&self) -> Result<()> {
        in_range("margin", self.margin, self.margin >= 0.0, "0 or more")
    }
}

/// Adaptively weighted triplet loss; see [`TripletAdaptiveConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct TripletAdaptive {
    #[module(skip)]
    config: TripletAdaptiveConfig,
}

impl PairLoss for TripletAdaptive {
    fn forward_lists(&self, lists: &Lists<'_>, _progress: Progress) -> LossOutput {
        let rows = AdaptiveRows { margin: self.config.margin };
        if let Some(output) = rows::forward(&rows, lists) {
            return output;
        }
        let pairs = Pairs::new(lists);
        let distance = lists.distances();
        let both = pairs.both();
        let positive = (row_softmax(&distance, &pairs.positives) * distance.clone()).sum_dim(1);
        let negative = (row_softmax(&distance.clone().neg(), &pairs.negatives) * distance).sum_dim(1);
        let per_query = hinge((positive - negative).add_scalar(self.config.margin)) * both.clone();
        let losses = column(&per_query);
        let counts = pairs.queries();
        let mined = |all: &[u32]| {
            all.iter().zip(&losses).map(|(&all, &loss)| if loss > 0.0 { all } else { 0 }).collect()
        };
        let queries = Queries {
            mined_positives: mined(&counts.positives),
            mined_negatives: mined(&counts.negatives),
            loss: losses,
            ..counts
        };
        LossOutput { value: mean_among(&per_query, &both), queries }
    }
}
