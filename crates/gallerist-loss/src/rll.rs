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
//! **Held constant** (`gradient = "query"`, the papers'): every gallery embedding and every weight. Only the query's
//! embedding gets a gradient; every sample is a query once. For comparison, `gradient = "both"` holds the weights constant
//! and gives both samples of a pair a gradient, and `gradient = "autodiff"` is the true derivative of the value: a pair's
//! derivative by its distance is `w / sum w (1 + t (loss - L_P))` on `P*`, and likewise on `N*`.
//!
//! # Corner cases
//!
//! - Two identical embeddings of different classes are the worst negatives, at `d = 0`: they stay in N* with
//!   full weight, and that pair's gradient is 0. A fully collapsed batch has the value
//!   `lambda * alpha`.
//! - A query without a positive or without a negative counts with that part 0.
//! - The largest exponent is subtracted before `exp`, so no temperature overflows.
//!
//! Memory and time: `O(n d)` and `O(n^2 d)`.

use burn::tensor::Device;
use gallerist_retrieval::search::Metric;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::engine::{Counts, List, ListLoss, ListValue, Listed, Measure, Real, Sides, lanes};
use crate::ranking::{AnyLoss, Progress, RankingLoss};
use crate::spec::{LossShape, LossSpec, in_range};
use crate::{Error, Result};

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

/// What gets a gradient in [`Rll`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RllGradient {
    /// The papers': the query; its list and the weights are held constant.
    #[default]
    Query,
    /// Both samples of a pair; the weights are held constant.
    Both,
    /// The true derivative of the value, by the weights, too.
    Autodiff,
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
    /// Temperature of the negatives when all steps are taken; after `s` of `S` steps it is `t_neg + (t_neg_end - t_neg) s / S`
    /// (dynamic weighting, journal Eq. 15). Absent: constant.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub t_neg_end: Option<f64>,
    /// How the two parts are added.
    pub form: RllForm,
    /// Weight of the negatives' part. Absent: 0.5 in the journal's form, 1 in CVPR's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lambda: Option<f64>,
    /// How queries are weighted.
    pub query_weighting: QueryWeighting,
    /// What gets a gradient. Only `query` goes with queries weighted by mass.
    pub gradient: RllGradient,
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
            gradient: RllGradient::Query,
        }
    }

    /// The CVPR paper's: alpha 1.2, margin 0.4, T 10, `L_P + L_N`.
    pub fn cvpr() -> Self {
        RllConfig { alpha: Some(1.2), form: RllForm::Cvpr, ..RllConfig::simpler() }
    }

    /// The loss.
    pub fn init(&self) -> Rll {
        Listed::new(self.clone())
    }

    /// The effective boundary.
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

    fn depends_on_steps(&self) -> bool {
        self.t_neg_end.is_some()
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
        // First, because alpha is derived from it.
        in_range("margin", self.margin, self.margin >= 0.0, "0 or more")?;
        in_range("alpha", self.alpha(), self.alpha() > 0.0, "a distance above 0")?;
        in_range("t_pos", self.t_pos, true, "a finite number")?;
        in_range("t_neg", self.t_neg, true, "a finite number")?;
        in_range("t_neg_end", self.t_neg_end.unwrap_or(0.0), true, "a finite number")?;
        if self.query_weighting == QueryWeighting::Mass && self.gradient != RllGradient::Query {
            return Err(Error::Conflict {
                message: "the loss rll has query_weighting = \"mass\", which needs gradient = \"query\""
                    .into(),
                hint: "set query_weighting = \"uniform\", or leave out gradient".into(),
            });
        }
        let lambda = self.lambda.unwrap_or(0.5);
        let fits = lambda >= 0.0 && (lambda <= 1.0 || self.form == RllForm::Cvpr);
        in_range("lambda", lambda, fits, "from 0 to 1 (0 or more with form = \"cvpr\")")
    }
}

/// Ranked list loss; see [`RllConfig`] for its parameters.
pub type Rll = Listed<RllConfig>;

/// The weighted mean over the mined values.
struct Part {
    loss: f64,
    mined: u32,
    /// Sum of the weights, divided by `e^exponent`.
    total: f64,
    exponent: f64,
}

/// `hinge` is the pair's loss if that is above 0; its derivative by the distance is `slope`. The derivatives hold the
/// weights constant, except with `autodiff`.
#[inline(always)]
fn part<F: Real>(
    values: &[F],
    to: &mut [F],
    temperature: f64,
    weight: f64,
    slope: F,
    autodiff: bool,
    hinge: impl Fn(F) -> F + Copy,
) -> Part {
    let temperature = F::of(temperature);
    let mined = lanes::count(values, |value| hinge(value) > F::ZERO);
    if mined == 0 {
        return Part { loss: 0.0, mined, total: 0.0, exponent: 0.0 };
    }
    // The largest exponent belongs to the largest loss, or to the smallest above 0.
    let extreme = if temperature >= F::ZERO {
        lanes::largest(values, hinge)
    } else {
        lanes::smallest(values, |value| {
            let hinge = hinge(value);
            if hinge > F::ZERO { hinge } else { F::INFINITY }
        })
    };
    let raw = |value: F| {
        let hinge = hinge(value);
        if hinge > F::ZERO { (temperature * (hinge - extreme)).exp() } else { F::ZERO }
    };
    let total = lanes::map_sum(values, to, |value| {
        let raw = raw(value);
        (raw, raw)
    });
    let scale = slope * F::of(weight) / total;
    let sum = lanes::weighted_sum(to, values, |value| lanes::larger(hinge(value), F::ZERO));
    lanes::scale(to, scale);
    if autodiff {
        let mean = sum / total;
        lanes::update(to, values, |slope, value| {
            let hinge = hinge(value);
            if hinge > F::ZERO { slope * (F::ONE + temperature * (hinge - mean)) } else { F::ZERO }
        });
    }
    Part {
        loss: weight * sum.wide() / total.wide(),
        mined,
        total: total.wide(),
        exponent: temperature.wide() * extreme.wide(),
    }
}

impl ListLoss for RllConfig {
    const MEASURE: Measure = Measure::Distance;

    fn sides(&self) -> Sides {
        if self.gradient == RllGradient::Query { Sides::Query } else { Sides::Both }
    }

    fn factor(&self, counts: &Counts) -> f64 {
        if self.query_weighting == QueryWeighting::Mass { 1.0 } else { 1.0 / counts.queries as f64 }
    }

    #[inline(always)]
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
        let (inner, alpha) = (F::of(self.alpha() - self.margin), F::of(self.alpha()));
        let (part_p, part_n) = self.parts();
        let t_neg = self.t_neg_at(list.progress);
        let autodiff = self.gradient == RllGradient::Autodiff;
        let pull = |d: F| d - inner;
        let push = |d: F| alpha - d;
        let positives = part(list.positives, list.by_positives, self.t_pos, part_p, F::ONE, autodiff, pull);
        let negatives = part(list.negatives, list.by_negatives, t_neg, part_n, -F::ONE, autodiff, push);
        let log_mass = |part: &Part| part.total.ln() + part.exponent;
        let (p, n) = (log_mass(&positives), log_mass(&negatives));
        let largest = p.max(n);
        let log_mass = if largest == f64::NEG_INFINITY {
            largest
        } else {
            largest + ((p - largest).exp() + (n - largest).exp()).ln()
        };
        ListValue {
            loss: positives.loss + negatives.loss,
            mined_positives: positives.mined,
            mined_negatives: negatives.mined,
            log_mass,
            ..ListValue::default()
        }
    }

    fn shares(&self, seen: &[ListValue]) -> Option<Vec<f64>> {
        (self.query_weighting == QueryWeighting::Mass).then(|| {
            let largest = seen.iter().fold(f64::NEG_INFINITY, |a, s| a.max(s.log_mass));
            if largest == f64::NEG_INFINITY {
                return vec![0.0; seen.len()];
            }
            let mass = |seen: &ListValue| (seen.log_mass - largest).exp();
            let total: f64 = seen.iter().map(mass).sum();
            seen.iter().map(|seen| mass(seen) / total).collect()
        })
    }
}
