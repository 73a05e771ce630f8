//! SoftTriple: softmax over classes that have several learnt centres each, and a regulariser that merges
//! the centres a class does not need.
//!
//! Qian et al., "SoftTriple Loss: Deep Metric Learning Without Triplet Sampling", ICCV 2019 (Eqs. 7-11).
//! Normalised embeddings. With `w_c^k` the centre `k` of class `c`, scaled to length 1:
//!
//! ```text
//! S_ic = sum over k of q_ik x_i.w_c^k,  q_ik = softmax over k of x_i.w_c^k / gamma
//! L_i  = -log( e^(lambda (S_iy - margin)) / (e^(lambda (S_iy - margin)) + sum over c != y of e^(lambda S_ic)) )
//! R_c  = sum over pairs t < s of |w_c^t - w_c^s|
//! L    = mean of L_i over the batch + tau sum over c of R_c / (C K (K - 1))
//! ```
//!
//! **Held constant**: nothing; embeddings and centres learn, the weights `q` are differentiated.
//! `|w^t - w^s| = sqrt(2 - 2 w^t.w^s)` is computed from the difference where the centres are near. The
//! authors' released layer and pytorch-metric-learning's `SoftTripleLoss` add 1e-5 under the root instead,
//! which puts 0.003 in the place of 0.
//!
//! # Corner cases
//!
//! - Merged centres have the distance 0 and, the direction being undefined there, no gradient from
//!   each other.
//! - One centre a class: SoftMax-norm with a margin; there is nothing to merge.
//! - With one class only the first term is 0.
//! - A sample with a set of labels has the mean over them; none of the set is among the others.
//!
//! Memory and time: `O((n + C K) d + C K^2)` and `O(n C K d + C K^2 d)`.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData};
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::engine::{List, ListLoss, ListValue, Measure, Real, lanes};
use crate::labels::Labels;
use crate::proxies::{Denominator, forward_among};
use crate::ranking::{AnyLoss, LossOutput, Progress, RankingLoss};
use crate::spec::{Limit, LossShape, LossSpec, in_range};
use crate::{Result, init};
use gallerist_tensor::pairwise::{host, l2_normalize};

/// Parameters of [`SoftTriple`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{Labels, LossShape, Progress, RankingLoss, SoftTripleConfig};
/// use gallerist_tensor::pairwise::l2_normalize;
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let shape = LossShape { classes: 3, dimensions: 8 };
/// let loss = SoftTripleConfig { centers: 2, ..Default::default() }.init(shape, 1, &device);
/// let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SoftTripleConfig {
    /// Centres a class, `K`. 10 in the paper.
    pub centers: usize,
    /// Factor on the similarities. 14 by default, 20 in the paper.
    pub lambda: f64,
    /// Temperature of the weights of a class's centres. 0.1 in the paper.
    pub gamma: f64,
    /// What is taken off the own class's similarity. 0.024 by default, 0.01 in the paper.
    pub margin: f64,
    /// Weight of the regulariser that merges centres. 0.2 in the paper.
    pub tau: f64,
}

impl Default for SoftTripleConfig {
    fn default() -> Self {
        SoftTripleConfig { centers: 10, lambda: 14.0, gamma: 0.1, margin: 0.024, tau: 0.2 }
    }
}

impl SoftTripleConfig {
    /// The loss, its centres in directions drawn from `seed`.
    pub fn init(&self, shape: LossShape, seed: u64, device: &Device) -> SoftTriple {
        let rows = shape.classes * self.centers;
        let centers = init::directions(seed, "soft_triple.centers", [rows, shape.dimensions], device);
        SoftTriple { centers, config: self.clone() }
    }
}

impl Named for SoftTripleConfig {
    const NAME: &'static str = "soft_triple";
}

impl LossSpec for SoftTripleConfig {
    fn build(&self, shape: LossShape, seed: u64, device: &Device) -> AnyLoss {
        self.init(shape, seed, device).boxed()
    }

    fn scale_parameter(&self) -> Option<&'static str> {
        Some("lambda")
    }

    fn limits(&self, dimensions: usize) -> Vec<Limit> {
        vec![Limit::Tensor {
            what: "the centres",
            key: "loss.centers",
            sides: vec![self.centers, dimensions],
        }]
    }

    fn validate(&self) -> Result<()> {
        in_range("centers", self.centers as f64, self.centers >= 1, "1 or more")?;
        in_range("lambda", self.lambda, self.lambda > 0.0, "above 0")?;
        in_range("gamma", self.gamma, self.gamma > 0.0, "above 0")?;
        in_range("margin", self.margin, self.margin >= 0.0, "0 or more")?;
        in_range("tau", self.tau, self.tau >= 0.0, "0 or more")
    }
}

/// SoftTriple; see [`SoftTripleConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct SoftTriple {
    /// `[classes * K, d]`, the centres of a class one after the other; only the direction of a row
    /// counts.
    pub centers: Param<Tensor<2>>,
    #[module(skip)]
    config: SoftTripleConfig,
}

/// Squared distances up to here are computed from the differences: above, `2 - 2 cos` is right to 1e-5.
const NEAR: f64 = 1e-2;

/// Sum over the classes of the distances between the centres of each.
///
/// `centers` `[classes * k, d]`, rows of length 1.
fn spread(centers: Tensor<2>, k: usize) -> Tensor<1> {
    let [rows, d] = centers.dims();
    let classes = rows / k;
    let blocks: Tensor<3> = centers.clone().reshape([classes, k, d]);
    let squares = blocks.clone().square().sum_dim(2);
    let products = blocks.clone().matmul(blocks.transpose()).mul_scalar(2.0);
    let squared = squares.clone() + squares.transpose() - products;
    let rows = host(&centers);
    let mut distance = host(&squared);
    // Half of 1 / distance at the pairs t < s: the derivative of the root.
    let mut half_inverse = vec![0.0; distance.len()];
    let mut total = 0.0;
    for (at, value) in distance.iter_mut().enumerate() {
        let (class, t, s) = (at / (k * k), at / k % k, at % k);
        if t >= s {
            continue;
        }
        if *value <= NEAR {
            let row = |index: usize| &rows[(class * k + index) * d..][..d];
            *value = row(t).iter().zip(row(s)).map(|(a, b)| (a - b) * (a - b)).sum();
        }
        if *value > 0.0 {
            total += value.sqrt();
            half_inverse[at] = 0.5 / value.sqrt();
        }
    }
    let options = (centers.device(), centers.dtype());
    let half_inverse =
        Tensor::<3>::from_data(TensorData::new(half_inverse, [classes, k, k]), (&options.0, options.1));
    let total = Tensor::<1>::from_data([total].as_slice(), (&options.0, options.1));
    total + ((squared.clone() - squared.detach()) * half_inverse).sum()
}

impl RankingLoss for SoftTriple {
    fn forward(&self, embeddings: Tensor<2>, labels: Labels<'_>, progress: Progress) -> LossOutput {
        let SoftTripleConfig { centers: k, tau, .. } = self.config;
        let centers = l2_normalize(self.centers.val().cast(embeddings.dtype()));
        let classes = centers.dims()[0] / k;
        let mut output =
            forward_among(self.config.clone(), &embeddings, labels, &centers, k, "centres", progress);
        if k > 1 && tau > 0.0 {
            let pairs = (classes * k * (k - 1)) as f64;
            output.value = output.value + spread(centers, k).mul_scalar(tau / pairs);
        }
        output
    }
}

impl ListLoss for SoftTripleConfig {
    const MEASURE: Measure = Measure::Similarity;

    #[inline(always)]
    fn list<F: Real>(&self, list: &mut List<'_, F>) -> ListValue {
        if !list.has_both() {
            return ListValue::default();
        }
        let SoftTripleConfig { centers: k, lambda, gamma, margin, .. } = *self;
        let own = relax(list.positives, list.by_positives, k, gamma);
        let mut others = relax(list.negatives, list.by_negatives, k, gamma);
        let nearest = lanes::largest(&others, |s| s);
        let factor = F::of(lambda);
        for class in 0..others.len() {
            others[class] = (factor * (others[class] - nearest)).exp();
        }
        let total = lanes::sum(&others, |raw| raw).wide();
        let log_others = lambda * nearest.wide() + total.ln();
        let share = 1.0 / own.len() as f64;
        let mut value = ListValue::default();
        let mut pull = 0.0;
        for class in 0..own.len() {
            let logit = lambda * (own[class].wide() - margin);
            let (term, weight) = Denominator::WithOwn.term(log_others - logit);
            value.loss += share * term;
            pull += share * weight;
            let by_class = F::of(-share * weight * lambda);
            lanes::scale(&mut list.by_positives[class * k..][..k], by_class);
            value.mined_positives += u32::from(by_class != F::ZERO);
        }
        let pull = F::of(pull * lambda / total);
        for class in 0..others.len() {
            let by_class = pull * others[class];
            lanes::scale(&mut list.by_negatives[class * k..][..k], by_class);
            value.mined_negatives += u32::from(by_class != F::ZERO);
        }
        value
    }
}

/// The relaxed similarity `S` of each class, from those of its `k` centres; minus infinity where they are absent. Writes
/// its derivatives.
#[inline(always)]
fn relax<F: Real>(similarities: &[F], slopes: &mut [F], k: usize, gamma: f64) -> Vec<F> {
    let inverse = F::of(1.0 / gamma);
    let classes = similarities.len() / k;
    let mut relaxed = vec![F::NEG_INFINITY; classes];
    for class in 0..classes {
        let (values, slopes) = (&similarities[class * k..][..k], &mut slopes[class * k..][..k]);
        let mut nearest = values[0];
        for t in 1..k {
            nearest = lanes::larger(nearest, values[t]);
        }
        // Absent centres stay at minus infinity.
        let origin = if nearest > F::NEG_INFINITY { nearest } else { F::ZERO };
        for t in 0..k {
            slopes[t] = inverse * (values[t] - origin);
        }
    }
    // One loop over all centres: a class has too few for vector registers.
    let slopes = &mut slopes[..classes * k];
    for at in 0..slopes.len() {
        slopes[at] = slopes[at].exp();
    }
    for class in 0..classes {
        let (values, slopes) = (&similarities[class * k..][..k], &mut slopes[class * k..][..k]);
        if values[0] == F::NEG_INFINITY {
            continue;
        }
        let (mut total, mut sum) = (F::ZERO, F::ZERO);
        for t in 0..k {
            total += slopes[t];
            sum += slopes[t] * values[t];
        }
        let share = F::ONE / total;
        let mean = sum * share;
        for t in 0..k {
            slopes[t] *= share * (F::ONE + inverse * (values[t] - mean));
        }
        relaxed[class] = mean;
    }
    relaxed
}
