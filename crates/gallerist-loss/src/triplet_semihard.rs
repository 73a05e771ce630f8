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
//! The embeddings are L2-normalised by default. Time `O(n^3)`, memory `O(n^2)`: negatives are chosen block
//! by block.

use burn::module::Module;
use burn::tensor::{Device, IndexingUpdateOp, Tensor};
use gallerist_retrieval::search::Metric;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use super::pairs::{Pairs, column, counts, hinge, indicator, row_blocks, total};
use super::rows::{self, SemihardRows};
use crate::Result;
use crate::lists::Lists;
use crate::ranking::{AnyLoss, LossOutput, PairLoss, Progress, Queries, RankingLoss};
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
        TripletSemihard { config: self.clone() }
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
#[derive(Module, Debug)]
pub struct TripletSemihard {
    #[module(skip)]
    config: TripletSemihardConfig,
}

impl PairLoss for TripletSemihard {
    fn forward_lists(&self, lists: &Lists<'_>, _progress: Progress) -> LossOutput {
        let rows = SemihardRows { margin: self.config.margin };
        if let Some(output) = rows::forward(&rows, lists) {
            return output;
        }
        let [n, g] = lists.dims();
        let pairs = Pairs::new(lists);
        let distance = lists.distances();
        let held = distance.clone().detach();

        // at[a, p] is the negative chosen for (a, p).
        let blocks = row_blocks(n, g * g).map(|rows| {
            let b = rows.len();
            let block = |x: &Tensor<2>| x.clone().slice([rows.clone(), 0..g]);
            let positive = block(&held).reshape([b, g, 1]);
            let outside = block(&pairs.negatives).equal_scalar(0.0).reshape([b, 1, g]);
            let farthest =
                block(&held).reshape([b, 1, g]).mask_fill(outside.clone(), f32::NEG_INFINITY).argmax(2);
            let negative =
                block(&held).reshape([b, 1, g]).mask_fill(outside, f32::NEG_INFINITY).expand([b, g, g]);
            let near = negative.clone().lower_equal(positive.expand([b, g, g]));
            let (nearest, at) = negative.mask_fill(near, f32::INFINITY).min_dim_with_indices(2);
            let none = nearest.equal_scalar(f32::INFINITY);
            at.mask_where(none, farthest.expand([b, g, 1])).reshape([b, g])
        });
        let at = Tensor::cat(blocks.collect(), 0);

        let taken = pairs.positives.clone() * pairs.both();
        let squared = distance.square();
        let excess =
            hinge(squared.clone() - squared.gather(1, at.clone()) + self.config.margin) * taken.clone();
        let per_query = excess.clone().sum_dim(1) / taken.clone().sum_dim(1).clamp_min(1.0);
        let active = indicator(excess.clone().greater_scalar(0.0), &excess);
        let chosen = active.zeros_like().scatter(1, at, active.clone(), IndexingUpdateOp::Add);
        let queries = Queries {
            loss: column(&per_query),
            mined_positives: counts(&active),
            mined_negatives: counts(&indicator(chosen.clone().greater_scalar(0.0), &chosen)),
            ..pairs.queries()
        };
        LossOutput { value: excess.sum().mul_scalar(1.0 / total(&taken).max(1.0)), queries }
    }
}
