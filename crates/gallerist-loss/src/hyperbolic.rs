//! Hyperbolic embeddings: pairwise cross-entropy over the distances of the Poincaré ball.
//!
//! Ermolov, Mirvakhabova, Khrulkov, Sebe, Oseledets, "Hyperbolic Vision Transformers: Combining Improvements in Metric
//! Learning", CVPR 2022. Embeddings as the network gives them, **not** normalised. Each is clipped to the length
//! `clip = r` and mapped to the ball of the curvature `-c` by the exponential map at 0:
//!
//! ```text
//! u        = x min(1, r / |x|)
//! y        = tanh(sqrt(c) |u|) u / (sqrt(c) |u|)
//! D(y, z)  = 2/sqrt(c) asinh(sqrt(c) |y - z| / sqrt((1 - c |y|^2) (1 - c |z|^2)))
//! l(a, p)  = -log(exp(-D(a, p)/t) / (exp(-D(a, p)/t) + sum over j in N of exp(-D(a, j)/t)))
//! L        = mean of l(a, p) over all ordered pairs of an anchor and a positive
//! ```
//!
//! `D` is the paper's `2/sqrt(c) artanh(sqrt(c) |(-y) ⊕ z|)` in the form that keeps its digits. `N` are all samples of
//! other classes (`negatives = "all"`). In a batch with two samples of each class these are the paper's. With more, the
//! authors' released code takes the negatives of each pair from the two columns of the batch that hold `a` and `p`:
//! `negatives = "columns"`, where the column of a sample is the number of earlier samples of its class. The released
//! value is the sum over ordered pairs divided by the number of classes: `K (K - 1)` times this one for `K` samples of
//! each class. The released functions add 1e-5 to three denominators (`epsilon = 1e-5`; 0 here).
//!
//! **Held constant**: nothing. The paper uses the Euclidean gradient, without the factor of the Riemannian one.
//!
//! # What the evaluation ranks by
//!
//! Embeddings files hold the network's outputs, not the points of the ball, and are compared by cosine
//! (`evaluation.metric`). For rows of length `clip` or more this **is** the ranking by the distance `D`: all their
//! points lie on one sphere, where `D` increases with the angle. For shorter rows the two rankings differ, and neither
//! cosine nor Euclidean distance gives that by `D`; the log then has a remark. With `clip = 0` (no clipping) the
//! rankings always differ. Near 0, where `sqrt(c) |u|` is small, `D` is close to twice the Euclidean distance.
//!
//! # Corner cases
//!
//! - Points are kept within 0.999 of the ball's radius, as in the released code; beyond, a row's length has no gradient.
//! - A row of zeros is the centre of the ball. Coincident rows have distance 0 and no gradient from each other.
//! - A pair of an anchor without negatives costs 0. Without any positive pair the loss is 0.
//!
//! Memory and time: `O(n (n + d))` and `O(n^2 d)`; with `negatives = "columns"`, both also `O(n^2 K)`.
//!
//! Tensor code, not a list loss: the distances depend on the lengths of the rows, too.

use burn::module::Module;
use burn::tensor::{Device, Tensor, TensorData, activation};
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::Result;
use crate::classify::count_nonzero;
use crate::labels::share_a_label;
use crate::lists::Lists;
use crate::ranking::{AnyLoss, LossOutput, PairLoss, Progress, Queries, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};
use crate::toolbox::{Pairs, column, distances, host, log_sum_exp, row_softmax, softplus, total};

/// Largest length of a point, in radii of the ball.
const EDGE: f64 = 1.0 - 1e-3;

/// Which negatives [`Hyperbolic`] compares a pair with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HyperbolicNegatives {
    /// All of the anchor's.
    #[default]
    All,
    /// Those in the columns of anchor and positive, as in the authors' released code.
    Columns,
}

/// Parameters of [`Hyperbolic`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{HyperbolicConfig, Labels, Progress, RankingLoss};
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let loss = HyperbolicConfig { curvature: 0.3, ..Default::default() }.init();
/// let output = loss.forward(embeddings.clone(), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HyperbolicConfig {
    /// Temperature of the distances. 0.2 in the paper.
    pub temperature: f64,
    /// The curvature is minus this number, `c`. 0.1 in the paper.
    pub curvature: f64,
    /// Length to which longer rows are clipped, `r`; 0: no clipping. 2.3 in the paper.
    pub clip: f64,
    /// The negatives of a pair.
    pub negatives: HyperbolicNegatives,
    /// Added to the lengths and to the denominator of the Möbius addition. 0 as in the equations, 1e-5 in the authors'
    /// released code.
    pub epsilon: f64,
}

impl Default for HyperbolicConfig {
    fn default() -> Self {
        HyperbolicConfig {
            temperature: 0.26,
            curvature: 0.013,
            clip: 2.3,
            negatives: HyperbolicNegatives::All,
            epsilon: 0.0,
        }
    }
}

impl HyperbolicConfig {
    /// The loss.
    pub fn init(&self) -> Hyperbolic {
        Hyperbolic { config: self.clone() }
    }
}

impl Named for HyperbolicConfig {
    const NAME: &'static str = "hyperbolic";
}

impl LossSpec for HyperbolicConfig {
    fn build(&self, _: LossShape, _: u64, _: &Device) -> AnyLoss {
        self.init().boxed()
    }

    fn normalized(&self) -> bool {
        false
    }

    fn takes_memory(&self) -> bool {
        true
    }

    /// Rows of twice the length to which they are clipped; without clipping, of the radius of the ball.
    fn initial_distance(&self) -> Option<f64> {
        let length = if self.clip > 0.0 { 2.0 * self.clip } else { 1.0 / self.curvature.sqrt() };
        Some(std::f64::consts::SQRT_2 * length)
    }

    fn scale_parameter(&self) -> Option<&'static str> {
        Some("temperature")
    }

    fn validate(&self) -> Result<()> {
        in_range("temperature", self.temperature, self.temperature > 0.0, "above 0")?;
        in_range("curvature", self.curvature, self.curvature > 0.0, "above 0")?;
        in_range("clip", self.clip, self.clip >= 0.0, "0 or more")?;
        in_range("epsilon", self.epsilon, (0.0..=0.1).contains(&self.epsilon), "from 0 to 0.1")
    }
}

/// Hyperbolic embeddings with pairwise cross-entropy; see [`HyperbolicConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct Hyperbolic {
    #[module(skip)]
    config: HyperbolicConfig,
}

/// Rows in the ball.
struct Ball {
    /// `[n, d]`.
    points: Tensor<2>,
    /// `1 - c |y|^2` of each, `[n, 1]`.
    margins: Tensor<2>,
}

impl HyperbolicConfig {
    fn ball(&self, x: &Tensor<2>) -> Ball {
        let root = self.curvature.sqrt();
        // A safe value before the root: its derivative at 0 is infinite.
        let length = x.clone().square().sum_dim(1).clamp_min(1e-24).sqrt();
        let scale = match self.clip > 0.0 {
            true => length.clone().add_scalar(self.epsilon).recip().mul_scalar(self.clip).clamp_max(1.0),
            false => length.ones_like(),
        };
        let of_edge = (length.clone() * scale).mul_scalar(root).tanh().clamp_max(EDGE);
        Ball {
            points: x.clone() * of_edge.clone() * length.recip().mul_scalar(1.0 / root),
            margins: of_edge.square().neg().add_scalar(1.0),
        }
    }

    /// Distances of the points, `[n, m]`.
    fn distances(&self, a: &Ball, b: &Ball) -> Tensor<2> {
        let root = self.curvature.sqrt();
        let margins = a.margins.clone() * b.margins.clone().transpose();
        let apart = distances(&a.points, &b.points).mul_scalar(root);
        let half = match self.epsilon > 0.0 {
            false => asinh(apart * margins.sqrt().recip()),
            true => {
                // |(-y) + z| of the Möbius addition, with the released code's denominator.
                let denominator = margins + apart.clone().square();
                let length =
                    apart * denominator.clone().sqrt() * denominator.add_scalar(self.epsilon).recip();
                artanh(length.clamp_max(1.0 - 1e-5))
            }
        };
        half.mul_scalar(2.0 / root)
    }
}

/// `asinh(x)` for `x >= 0`, small ones with all their digits.
fn asinh(x: Tensor<2>) -> Tensor<2> {
    let square = x.clone().square();
    let root = square.clone().add_scalar(1.0).sqrt();
    (x + square * root.add_scalar(1.0).recip()).log1p()
}

/// `artanh(x)` for `0 <= x < 1`.
fn artanh(x: Tensor<2>) -> Tensor<2> {
    (x.clone().log1p() - x.neg().log1p()).mul_scalar(0.5)
}

/// Pairs of anchors and positives that are compared with the same negatives of the anchor: masks, `[n, g]`.
struct Comparison {
    positives: Tensor<2>,
    negatives: Tensor<2>,
}

fn by_columns(lists: &Lists<'_>, pairs: &Pairs) -> Vec<Comparison> {
    let [n, g] = lists.dims();
    let of_gallery = |i: usize, j: usize| share_a_label(lists.labels_of(i), lists.labels_of(j));
    let columns: Vec<usize> = (0..g).map(|j| (0..j).filter(|&i| of_gallery(i, j)).count()).collect();
    let like = &pairs.positives;
    let mask = |fits: &dyn Fn(usize, usize) -> bool| {
        let values: Vec<f32> = (0..n * g).map(|at| f32::from(u8::from(fits(at / g, at % g)))).collect();
        Tensor::<2>::from_data(TensorData::new(values, [n, g]), (&like.device(), like.dtype()))
    };
    let used = columns.iter().copied().max().map_or(0, |last| last + 1);
    (0..used)
        .map(|column| Comparison {
            positives: pairs.positives.clone() * mask(&|_, j| columns[j] == column),
            negatives: pairs.negatives.clone()
                * mask(&|i, j| columns[j] == column || columns[j] == columns[i]),
        })
        .collect()
}

impl PairLoss for Hyperbolic {
    fn forward_lists(&self, lists: &Lists<'_>, _progress: Progress) -> LossOutput {
        let HyperbolicConfig { temperature, clip, negatives, .. } = self.config;
        let pairs = Pairs::new(lists);
        let queries = pairs.queries();
        let rows = self.config.ball(lists.embeddings());
        let gallery = self.config.ball(&lists.gallery());
        let logits = self.config.distances(&rows, &gallery).mul_scalar(-1.0 / temperature);
        let comparisons = match negatives {
            HyperbolicNegatives::All => {
                vec![Comparison { positives: pairs.positives.clone(), negatives: pairs.negatives.clone() }]
            }
            HyperbolicNegatives::Columns => by_columns(lists, &pairs),
        };
        let mut costs = logits.clone().sum_dim(1).mul_scalar(0.0);
        let (mut pulls, mut pushes) =
            (logits.clone().detach().zeros_like(), logits.clone().detach().zeros_like());
        for Comparison { positives, negatives } in comparisons {
            let counted = positives * negatives.clone().max_dim(1);
            let gap = log_sum_exp(&logits, &negatives) - logits.clone();
            let pull = activation::sigmoid(gap.clone().detach()) * counted.clone();
            pushes = pushes + row_softmax(&logits.clone().detach(), &negatives) * pull.clone().sum_dim(1);
            pulls = pulls + pull;
            costs = costs + (softplus(gap) * counted).sum_dim(1);
        }
        let value = costs.clone().sum().mul_scalar(1.0 / total(&pairs.positives).max(1.0));
        let per_query = pairs.positives.sum_dim(1).clamp_min(1.0).recip() * costs.detach();
        let short = || {
            let squares = host(&lists.embeddings().clone().square().sum_dim(1));
            squares.iter().any(|&square| square.sqrt() < clip * (1.0 - 1e-6))
        };
        let queries = Queries {
            loss: column(&per_query),
            mined_positives: count_nonzero(&pulls),
            mined_negatives: count_nonzero(&pushes),
            note: (clip == 0.0 || short()).then_some(
                "some embeddings are not clipped by the hyperbolic loss: their ranking by cosine, as in the evaluation, \
                 differs from that by hyperbolic distance",
            ),
            ..queries
        };
        LossOutput { value, queries }
    }
}
