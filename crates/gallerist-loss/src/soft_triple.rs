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
//! Memory and time: `O(n C K + C K^2)` and `O(n C K d + C K^2 d)`.
//!
//! Tensor code, not a list loss: its gallery is the centres, which get a gradient of their own.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, TensorData, activation};
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use super::classify::{Denominator, Targets, classification};
use super::init;
use crate::Result;
use crate::labels::Labels;
use crate::ranking::{AnyLoss, LossOutput, Progress, RankingLoss};
use crate::spec::{Limit, LossShape, LossSpec, in_range};
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
    /// Factor on the similarities. 20 in the paper.
    pub lambda: f64,
    /// Temperature of the weights of a class's centres. 0.1 in the paper.
    pub gamma: f64,
    /// What is taken off the own class's similarity. 0.01 in the paper.
    pub margin: f64,
    /// Weight of the regulariser that merges centres. 0.2 in the paper.
    pub tau: f64,
}

impl Default for SoftTripleConfig {
    fn default() -> Self {
        SoftTripleConfig { centers: 10, lambda: 20.0, gamma: 0.1, margin: 0.01, tau: 0.2 }
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
    fn forward(&self, embeddings: Tensor<2>, labels: Labels<'_>, _progress: Progress) -> LossOutput {
        let SoftTripleConfig { centers: k, lambda, gamma, margin, tau } = self.config;
        let [n, _] = embeddings.dims();
        let centers = l2_normalize(self.centers.val().cast(embeddings.dtype()));
        let classes = centers.dims()[0] / k;
        let targets = Targets::new(labels, classes, "centres", &embeddings);
        let similarities: Tensor<3> = embeddings.matmul(centers.clone().transpose()).reshape([n, classes, k]);
        let weights = activation::softmax(similarities.clone().mul_scalar(1.0 / gamma), 2);
        let logits: Tensor<2> = (weights * similarities).sum_dim(2).reshape([n, classes]).mul_scalar(lambda);
        let own = targets.pick(&logits).sub_scalar(lambda * margin);
        let mut output = classification(own, logits, &targets, Denominator::WithOwn);
        if k > 1 && tau > 0.0 {
            let pairs = (classes * k * (k - 1)) as f64;
            output.value = output.value + spread(centers, k).mul_scalar(tau / pairs);
        }
        output
    }
}
