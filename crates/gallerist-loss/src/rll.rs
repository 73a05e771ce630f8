//! Ranked list loss: pull the positives of each query inside a sphere, push its negatives out of a
//! larger one, and weight the negatives by how wrong they are.
//!
//! Wang et al., "Ranked List Loss for Deep Metric Learning", CVPR 2019 (Eqs. 1-7) and its journal
//! version (Eqs. 1-15). RLL-Simpler is the journal's form with fewer parameters.
//!
//! For a query `i` with distances `d_ij`:
//!
//! ```text
//! P* = { j of i's class       : d_ij > alpha - margin }   loss d_ij - (alpha - margin)
//! N* = { j of another class   : d_ij < alpha }            loss alpha - d_ij
//! w  = exp(t_pos * loss) on P*, exp(t_neg * loss) on N*
//! L_P = sum w loss / sum w over P*, L_N likewise over N*; 0 where the set is empty
//! L_i = (1 - lambda) L_P + lambda L_N   (journal, lambda 0.5)
//!     = L_P + lambda L_N                (CVPR, lambda 1)
//! L   = mean of L_i over all queries    (uniform, Eq. 14)
//! ```
//!
//! **Held constant**: every gallery embedding and every weight. Only the query's embedding gets
//! a gradient; every sample is a query once.
//!
//! # Corner cases
//!
//! - Two identical embeddings of different classes are the worst negatives, at `d = 0`: they stay in N* with
//!   full weight, and that pair's gradient is 0. A fully collapsed batch has the value
//!   `lambda * alpha`.
//! - A query without a positive or without a negative counts with that part 0.
//! - The largest exponent is subtracted before `exp`, so no temperature overflows.
//!
//! Memory and time: `O(n^2)` and `O(n^2 d)`; on the CPU in `f32` `O(n d)` and `O(n^2 d)`.

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use gallerist_retrieval::search::Metric;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use super::pairs::{Pairs, column, counts};
use super::rows::{self, RllRows};
use crate::Result;
use crate::lists::Lists;
use crate::ranking::{AnyLoss, LossOutput, PairLoss, Progress, Queries, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};
use gallerist_tensor::pairwise::{distances, host};

/// How L_P and L_N are added.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RllForm {
    /// `(1 - lambda) L_P + lambda L_N`.
    #[default]
    Journal,
    /// `L_P + lambda L_N`.
    Cvpr,
}

/// How the queries of a batch are weighted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueryWeighting {
    /// Every query counts the same (Eq. 14).
    #[default]
    Uniform,
    /// A query counts by the sum of its un-normalised weights over that sum for all queries, as in
    /// the authors' released layer.
    Mass,
}

/// Parameters of [`Rll`]. The default is RLL-Simpler for Stanford Online Products.
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, Progress, RankingLoss, RllConfig};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let loss = RllConfig { t_neg: 12.0, ..RllConfig::simpler() }.init();
/// let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct RllConfig {
    /// Distance within which no negative may stay. Absent: `1 + margin / 2` (RLL-Simpler).
    /// The CVPR paper has 1.2.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub alpha: Option<f64>,
    /// Width of the shell between positives and negatives: positives are pulled within `alpha -
    /// margin`. 0.4 in both papers.
    pub margin: f64,
    /// Temperature of the positives' weights: 0 weights them equally (both papers).
    pub t_pos: f64,
    /// Temperature of the negatives' weights: 10 (SOP), 12 (In-shop).
    pub t_neg: f64,
    /// Temperature of the negatives at the last step; the temperature goes linearly from `t_neg` to
    /// it (dynamic weighting, journal Eq. 15). Absent: constant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub t_neg_end: Option<f64>,
    /// How the two parts are added.
    pub form: RllForm,
    /// Weight of the negatives' part. Absent: 0.5 in the journal's form, 1 in CVPR's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lambda: Option<f64>,
    /// How queries are weighted.
    pub query_weighting: QueryWeighting,
}

impl Default for RllConfig {
    fn default() -> Self {
        RllConfig::simpler()
    }
}

impl RllConfig {
    /// RLL-Simpler (journal): alpha `1 + margin / 2`, margin 0.4, t_pos 0, t_neg 10.
    pub fn simpler() -> Self {
        RllConfig {
            alpha: None,
            margin: 0.4,
            t_pos: 0.0,
            t_neg: 10.0,
            t_neg_end: None,
            form: RllForm::Journal,
            lambda: None,
            query_weighting: QueryWeighting::Uniform,
        }
    }

    /// The CVPR paper's: alpha 1.2, margin 0.4, T 10, `L_P + L_N`.
    pub fn cvpr() -> Self {
        RllConfig { alpha: Some(1.2), form: RllForm::Cvpr, ..RllConfig::simpler() }
    }

    /// The loss.
    pub fn init(&self) -> Rll {
        Rll { config: self.clone() }
    }

    /// The boundary in force.
    pub fn alpha(&self) -> f64 {
        self.alpha.unwrap_or(1.0 + self.margin / 2.0)
    }

    /// The weight of the positives' and of the negatives' part.
    fn parts(&self) -> (f64, f64) {
        match self.form {
            RllForm::Journal => {
                let lambda = self.lambda.unwrap_or(0.5);
                (1.0 - lambda, lambda)
            }
            RllForm::Cvpr => (1.0, self.lambda.unwrap_or(1.0)),
        }
    }

    fn t_neg_at(&self, progress: Progress) -> f64 {
        match self.t_neg_end {
            Some(end) => {
                self.t_neg - progress.step as f64 * (self.t_neg - end) / progress.steps.max(1) as f64
            }
            None => self.t_neg,
        }
    }
}

impl Named for RllConfig {
    const NAME: &'static str = "rll";
}

impl LossSpec for RllConfig {
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
        Some("t_neg")
    }

    fn derived_parameters(&self) -> Vec<(&'static str, &'static str)> {
        [
            (self.alpha, "alpha", "1 + margin / 2"),
            (self.t_neg_end, "t_neg_end", "t_neg"),
            (self.lambda, "lambda", "0.5 (journal), 1 (cvpr)"),
        ]
        .into_iter()
        .filter(|(value, ..)| value.is_none())
        .map(|(_, key, default)| (key, default))
        .collect()
    }

    fn validate(&self) -> Result<()> {
        in_range("alpha", self.alpha(), self.alpha() > 0.0, "a distance above 0")?;
        in_range("margin", self.margin, self.margin >= 0.0, "0 or more")?;
        in_range("t_pos", self.t_pos, true, "a finite number")?;
        in_range("t_neg", self.t_neg, true, "a finite number")?;
        in_range("t_neg_end", self.t_neg_end.unwrap_or(0.0), true, "a finite number")?;
        let lambda = self.lambda.unwrap_or(0.5);
        let fits = lambda >= 0.0 && (lambda <= 1.0 || self.form == RllForm::Cvpr);
        in_range("lambda", lambda, fits, "from 0 to 1 (0 or more with form = \"cvpr\")")
    }
}

/// Ranked list loss; see [`RllConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct Rll {
    #[module(skip)]
    config: RllConfig,
}

/// One side (positives or negatives) of every query's list.
struct Side {
    /// `[n, 1]` weighted mean loss, tracked.
    loss: Tensor<2>,
    /// Per query the logarithm of the sum of its un-normalised weights; minus infinity where none.
    log_mass: Vec<f64>,
    /// Per query the number of mined samples.
    mined: Vec<u32>,
}

/// Weighted mean of `hinge` over the mined entries (`hinge > 0` inside `mask`) of each row.
fn side(hinge: Tensor<2>, mask: &Tensor<2>, temperature: f64) -> Side {
    let mined = hinge.clone().detach().greater_scalar(0.0).float().cast(mask.dtype()) * mask.clone();
    let exponent = hinge.clone().detach().mul_scalar(temperature);
    let outside = mined.clone().equal_scalar(0.0);
    let largest = exponent.clone().mask_fill(outside.clone(), f32::NEG_INFINITY).max_dim(1);
    let empty = largest.clone().equal_scalar(f32::NEG_INFINITY);
    let largest = largest.mask_fill(empty.clone(), 0.0);
    let weights = (exponent - largest.clone()).mask_fill(outside, f32::NEG_INFINITY).exp();
    let total = weights.clone().sum_dim(1);
    let loss = (weights * hinge).sum_dim(1) / total.clone().mask_fill(empty, 1.0);
    let log_mass =
        host(&total).iter().zip(host(&largest)).map(|(total, largest)| total.ln() + largest).collect();
    let mined = counts(&mined);
    Side { loss, log_mass, mined }
}

impl PairLoss for Rll {
    fn forward_lists(&self, lists: &Lists<'_>, progress: Progress) -> LossOutput {
        let config = &self.config;
        let rows = RllRows {
            alpha: config.alpha(),
            margin: config.margin,
            t_pos: config.t_pos,
            t_neg: config.t_neg_at(progress),
            parts: config.parts(),
            mass: config.query_weighting == QueryWeighting::Mass,
        };
        if let Some(output) = rows::forward(&rows, lists) {
            return output;
        }
        let [n, _] = lists.dims();
        let (alpha, margin) = (config.alpha(), config.margin);
        let distance = distances(lists.embeddings(), &lists.gallery().detach());
        let pairs = Pairs::new(lists);
        let positives = side(distance.clone().sub_scalar(alpha - margin), &pairs.positives, config.t_pos);
        let negatives = side(distance.neg().add_scalar(alpha), &pairs.negatives, config.t_neg_at(progress));
        let (positive_part, negative_part) = config.parts();
        let per_query = positives.loss.mul_scalar(positive_part) + negatives.loss.mul_scalar(negative_part);
        let value = match config.query_weighting {
            QueryWeighting::Uniform => per_query.clone().sum().mul_scalar(1.0 / n.max(1) as f64),
            QueryWeighting::Mass => {
                let share = mass_shares(&positives.log_mass, &negatives.log_mass);
                let options = (per_query.device(), per_query.dtype());
                let share = Tensor::<1>::from_data(share.as_slice(), (&options.0, options.1));
                (per_query.clone() * share.reshape([n, 1])).sum()
            }
        };
        let queries = Queries {
            loss: column(&per_query),
            mined_positives: positives.mined,
            mined_negatives: negatives.mined,
            ..pairs.queries()
        };
        LossOutput { value, queries }
    }
}

/// Each query's sum of weights over that sum for all queries; all 0 where nothing was mined.
fn mass_shares(positives: &[f64], negatives: &[f64]) -> Vec<f64> {
    let largest = positives.iter().chain(negatives).fold(f64::NEG_INFINITY, |a, &b| a.max(b));
    if largest == f64::NEG_INFINITY {
        return vec![0.0; positives.len()];
    }
    let mass: Vec<f64> =
        positives.iter().zip(negatives).map(|(p, q)| (p - largest).exp() + (q - largest).exp()).collect();
    let total: f64 = mass.iter().sum();
    mass.iter().map(|m| m / total).collect()
}
