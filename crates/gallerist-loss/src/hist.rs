//! HIST: class distributions that make a hypergraph of the batch, and a hypergraph neural network that classifies its
//! samples.
//!
//! Lim, Yun, Park, Choi, "Hypergraph-Induced Semantic Tuplet Loss for Deep Metric Learning", CVPR 2022. Each class `c`
//! has a learnt mean `m_c` of length 1 and learnt variances `v_c = exp(min(max(w_c, 0), 6))` of the dimensions. With
//! the normalised embeddings `z_i` and the `n x B` matrix `H` of the samples and the `B` classes in the batch:
//!
//! ```text
//! M(i, c) = sum over the dimensions of (z_i - m_c)^2 / v_c
//! L_D     = mean over the samples of -log(exp(-tau M(i, y_i)) / sum over all classes c of exp(-tau M(i, c)))
//! H(i, c) = 1 where i is of the class c, else exp(-alpha M(i, c))
//! G       = D_v^(-1/2) H D_e^(-1) H^T D_v^(-1/2)          D_v, D_e: sums of the rows and of the columns of H
//! Q       = G (LeakyReLU(BatchNorm(G (x theta_1 + b_1))) theta_2 + b_2)
//! L       = L_D + lambda CrossEntropy(Q, y)
//! ```
//!
//! The network takes the embeddings `x` as the loss gets them, **not** normalised; the means' lengths do not count. The
//! batch norm uses the statistics of the batch; the leak is 0.1. The paper's own networks end with a layer norm without
//! parameters.
//!
//! The paper trains the distributions and the hypergraph network with learning rates of their own (0.1, and 5 to 10
//! times that of the embedding network); here both have `optimizer.loss_factor`.
//!
//! **Held constant**: nothing; the gradient flows through `H`, too.
//!
//! # Corner cases
//!
//! - Samples with sets of labels: the cross entropies are means over a sample's labels, each against the classes it does
//!   not have; a sample without a label has none. A batch without any label has the loss 0.
//! - A single sample has the batch norm's output 0 before scale and shift.
//! - The released code leaves samples out of `L_D` whose probability underflows; here the logarithm is computed without
//!   that underflow.
//!
//! The diagnostics are those of `L_D`: a sample's own classes and the others.
//!
//! Memory: `O(n^2 + n C + (n + C) (d + h) + d h)` for `C` classes and `h` hidden values, of which `n^2` is the matrix `G`. Time:
//! `O(n^2 (C + h) + n C (d + h) + n d h)`.

use burn::module::{Module, Param};
use burn::tensor::{Device, Tensor, activation};
use gallerist_tensor::pairwise::l2_normalize;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::classify::{Targets, classification};
use crate::labels::Labels;
use crate::ranking::{AnyLoss, LossOutput, Progress, RankingLoss};
use crate::spec::{Limit, LossShape, LossSpec, in_range};
use crate::{Result, init};

/// Slope of the LeakyReLU below 0.
const LEAK: f64 = 0.1;

/// Added to the variance of the batch norm.
const EPSILON: f64 = 1e-5;

/// Parameters of [`Hist`].
///
/// # Example
///
/// ```
/// # use burn::tensor::{Device, Distribution, Tensor};
/// use gallerist_loss::{HistConfig, Labels, LossShape, Progress, RankingLoss};
///
/// # let device = Device::flex().autodiff();
/// # let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
/// let shape = LossShape { classes: 3, dimensions: 8 };
/// let loss = HistConfig { hidden: 16, ..Default::default() }.init(shape, 1, &device);
/// let output = loss.forward(embeddings.clone(), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
/// let gradients = output.value.backward();
/// assert_eq!(embeddings.grad(&gradients).unwrap().dims(), [6, 8]);
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct HistConfig {
    /// Factor on the distances in the distribution loss. 32 (CUB, Cars); 16 (SOP).
    pub tau: f64,
    /// Decay of the hypergraph's edges. 1.1 (CUB); 0.9 (Cars); 2 (SOP).
    pub alpha: f64,
    /// Weight of the cross entropy of the hypergraph network. 1 in the paper.
    pub lambda: f64,
    /// Hidden values of the hypergraph network. 512 in the paper.
    pub hidden: usize,
}

impl Default for HistConfig {
    fn default() -> Self {
        HistConfig { tau: 13.0, alpha: 1.1, lambda: 1.0, hidden: 512 }
    }
}

impl HistConfig {
    /// The loss, its parameters drawn from `seed` as in the authors' released code.
    pub fn init(&self, shape: LossShape, seed: u64, device: &Device) -> Hist {
        let LossShape { classes, dimensions } = shape;
        let hidden = self.hidden;
        let distributions = (2.0 / classes.max(1) as f64).sqrt();
        let normal = |name| init::normal(seed, name, [classes, dimensions], distributions, device);
        let bound = |inputs: usize| 1.0 / (inputs.max(1) as f64).sqrt();
        let (first, second) = (bound(dimensions), bound(hidden));
        Hist {
            means: normal("hist.means"),
            log_vars: normal("hist.log_vars"),
            theta1: init::uniform(seed, "hist.theta1", [hidden, dimensions], first, device),
            theta1_bias: init::uniform(seed, "hist.theta1_bias", [hidden], first, device),
            norm_weight: Param::from_tensor(Tensor::ones([hidden], device)),
            norm_bias: Param::from_tensor(Tensor::zeros([hidden], device)),
            theta2: init::uniform(seed, "hist.theta2", [classes, hidden], second, device),
            theta2_bias: init::uniform(seed, "hist.theta2_bias", [classes], second, device),
            config: self.clone(),
        }
    }
}

impl Named for HistConfig {
    const NAME: &'static str = "hist";
}

impl LossSpec for HistConfig {
    fn build(&self, shape: LossShape, seed: u64, device: &Device) -> AnyLoss {
        self.init(shape, seed, device).boxed()
    }

    fn normalized(&self) -> bool {
        false
    }

    fn scale_parameter(&self) -> Option<&'static str> {
        Some("tau")
    }

    fn limits(&self, dimensions: usize) -> Vec<Limit> {
        vec![Limit::Tensor {
            what: "the weights of the hypergraph network",
            key: "loss.hidden",
            sides: vec![self.hidden, dimensions],
        }]
    }

    fn validate(&self) -> Result<()> {
        in_range("tau", self.tau, self.tau > 0.0, "above 0")?;
        in_range("alpha", self.alpha, self.alpha >= 0.0, "0 or more")?;
        in_range("lambda", self.lambda, self.lambda >= 0.0, "0 or more")?;
        in_range("hidden", self.hidden as f64, self.hidden >= 1, "1 or more")
    }
}

/// HIST; see [`HistConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct Hist {
    /// `[classes, d]`; only the direction of a row counts.
    pub means: Param<Tensor<2>>,
    /// `[classes, d]`, logarithms of the variances before they are clamped to 0..6.
    pub log_vars: Param<Tensor<2>>,
    /// `[hidden, d]`.
    pub theta1: Param<Tensor<2>>,
    /// `[hidden]`.
    pub theta1_bias: Param<Tensor<1>>,
    /// `[hidden]`, scale of the batch norm.
    pub norm_weight: Param<Tensor<1>>,
    /// `[hidden]`, shift of the batch norm.
    pub norm_bias: Param<Tensor<1>>,
    /// `[classes, hidden]`.
    pub theta2: Param<Tensor<2>>,
    /// `[classes]`.
    pub theta2_bias: Param<Tensor<1>>,
    #[module(skip)]
    config: HistConfig,
}

impl Hist {
    /// `M`, `[n, classes]`.
    fn distances(&self, z: &Tensor<2>) -> Tensor<2> {
        let means = l2_normalize(self.means.val().cast(z.dtype()));
        let log_vars = self.log_vars.val().cast(z.dtype()).clamp(0.0, 6.0);
        let precisions = log_vars.neg().exp();
        let scaled = means.clone() * precisions.clone();
        let squares = z.clone().square().matmul(precisions.transpose());
        let products = z.clone().matmul(scaled.clone().transpose()).mul_scalar(2.0);
        (squares - products + (scaled * means).sum_dim(1).transpose()).clamp_min(0.0)
    }

    /// `G` of the batch, `[n, n]`.
    fn propagation(&self, distances: &Tensor<2>, targets: &Targets) -> Tensor<2> {
        let edges =
            distances.clone().mul_scalar(-self.config.alpha).exp().mask_fill(targets.own.clone(), 1.0);
        let edges = edges.select(1, targets.present());
        let nodes = edges.clone().sum_dim(1).sqrt().recip();
        let sizes = edges.clone().sum_dim(0).recip();
        let half = edges * nodes;
        (half.clone() * sizes).matmul(half.transpose())
    }

    /// `Q`, `[n, classes]`.
    fn network(&self, x: Tensor<2>, propagation: &Tensor<2>) -> Tensor<2> {
        let dtype = x.dtype();
        let matrix = |weights: &Param<Tensor<2>>| weights.val().cast(dtype).transpose();
        let row = |values: &Param<Tensor<1>>| values.val().cast(dtype).unsqueeze::<2>();
        let hidden = propagation.clone().matmul(x.matmul(matrix(&self.theta1)) + row(&self.theta1_bias));
        let centred = hidden.clone() - hidden.mean_dim(0);
        let deviation = centred.clone().square().mean_dim(0).add_scalar(EPSILON).sqrt();
        let normed = centred * deviation.recip() * row(&self.norm_weight) + row(&self.norm_bias);
        let rectified = activation::leaky_relu(normed, LEAK);
        propagation.clone().matmul(rectified.matmul(matrix(&self.theta2)) + row(&self.theta2_bias))
    }
}

impl RankingLoss for Hist {
    fn forward(&self, embeddings: Tensor<2>, labels: Labels<'_>, _progress: Progress) -> LossOutput {
        let HistConfig { tau, lambda, .. } = self.config;
        let classes = self.means.dims()[0];
        let targets = Targets::new(labels, classes, "distribution", &embeddings);
        let distances = self.distances(&l2_normalize(embeddings.clone()));
        let cross_entropy = |logits: Tensor<2>| classification(targets.pick(&logits), logits, &targets);
        let mut output = cross_entropy(distances.clone().mul_scalar(-tau));
        if !targets.is_empty() {
            let propagation = self.propagation(&distances, &targets);
            let classified = cross_entropy(self.network(embeddings, &propagation));
            output.value = output.value + classified.value.mul_scalar(lambda);
            for (loss, classified) in output.queries.loss.iter_mut().zip(&classified.queries.loss) {
                *loss += lambda as f32 * classified;
            }
        }
        output
    }
}
