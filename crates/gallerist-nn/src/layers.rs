//! Layers with seeded initial weights that compute with [`gallerist_kernels`].
//!
//! A layer uses the dtype of its input. Its parameters are f32 and are cast to that dtype if it is bf16 or f16.
//! Batch norm, global pooling and the heads always compute in f32. Mixed precision casts the input of the network.

use std::ops::Range;

use burn::module::{Flag, Module, Param, RunningState};
use burn::tensor::ops::{AvgPoolOptions, ConvOptions, MaxPoolOptions};
use burn::tensor::{DType, Device, Tensor, TensorData};
use gallerist_kernels::{ConvNorm, Statistics};
use gallerist_util::random::Random;

use crate::setting::FreezeBatchNorm;

/// Initial weights. Each parameter has its own random generator, so adding a layer does not change the weights of
/// other layers.
#[derive(Clone, Debug)]
pub struct Init<'a> {
    seed: u64,
    device: &'a Device,
}

impl<'a> Init<'a> {
    /// Weights drawn from `seed`, living on `device`.
    pub fn new(seed: u64, device: &'a Device) -> Self {
        Init { seed, device }
    }

    /// Uniform in `[-bound, bound]`.
    pub(crate) fn uniform<const D: usize>(
        &self,
        path: &str,
        shape: [usize; D],
        bound: f64,
    ) -> Param<Tensor<D>> {
        let mut random = Random::new(self.seed, &format!("weights/{path}"), 0, 0);
        let count = shape.iter().product();
        let values: Vec<f32> = (0..count).map(|_| random.between(-bound, bound) as f32).collect();
        self.param(TensorData::new(values, shape))
    }

    pub(crate) fn constant(&self, value: f32, length: usize) -> Param<Tensor<1>> {
        self.param(full(value, length))
    }

    fn param<const D: usize>(&self, data: TensorData) -> Param<Tensor<D>> {
        Param::from_tensor(Tensor::from_data(data, self.device))
    }
}

fn full(value: f32, length: usize) -> TensorData {
    TensorData::new(vec![value; length], [length])
}

/// A parameter in the dtype of `x`.
pub(crate) fn as_in<const D: usize, const E: usize>(
    parameter: &Param<Tensor<D>>,
    x: &Tensor<E>,
) -> Tensor<D> {
    in_dtype(parameter.val(), x.dtype())
}

/// The same values in another dtype; gradients are converted back.
pub(crate) fn in_dtype<const D: usize>(x: Tensor<D>, dtype: DType) -> Tensor<D> {
    if x.dtype() == dtype { x } else { x.cast(dtype) }
}

/// Casts bf16 and f16 to f32; other dtypes are unchanged.
pub(crate) fn at_least_f32<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    match x.dtype() {
        DType::F16 | DType::BF16 => x.cast(DType::F32),
        _ => x,
    }
}

/// Casts bf16 and f16 to f32, unless the kernels sum such a tensor in f32 without that.
pub(crate) fn for_sums<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    if gallerist_kernels::sums_in_f32(&x) { x } else { at_least_f32(x) }
}

pub use gallerist_kernels::{Activation, Gate};

/// Square windows of a pooling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pool {
    /// Height and width of a window.
    pub size: usize,
    /// Stride, in pixels.
    pub stride: usize,
    /// Rows and columns of zeros on each side.
    pub padding: usize,
    /// Whether a last window that is only partly inside is kept (as Caffe does) or left out. The missing
    /// positions do not count, not even in the divisor of a mean.
    pub ceil: bool,
}

impl Pool {
    /// Without padding, the sizes rounded down.
    pub const fn new(size: usize, stride: usize) -> Self {
        Pool { size, stride, padding: 0, ceil: false }
    }

    /// Without padding, the sizes rounded up.
    pub const fn ceil(size: usize, stride: usize) -> Self {
        Pool { ceil: true, ..Pool::new(size, stride) }
    }

    /// With a border of `padding` on every side.
    pub const fn padded(self, padding: usize) -> Self {
        Pool { padding, ..self }
    }

    pub(super) fn max_options(self) -> MaxPoolOptions<2> {
        MaxPoolOptions::new([self.size; 2])
            .with_stride([self.stride; 2])
            .with_padding([self.padding; 2])
            .with_ceil_mode(self.ceil)
    }

    pub(super) fn average_options(self) -> AvgPoolOptions<2> {
        AvgPoolOptions::new([self.size; 2])
            .with_stride([self.stride; 2])
            .with_padding([self.padding; 2])
            .with_ceil_mode(self.ceil)
    }
}

/// Convolution with a square window.
#[derive(Module, Debug)]
pub struct Conv {
    /// `[channels_out, channels_in / groups, size, size]`.
    pub weight: Param<Tensor<4>>,
    /// `[channels_out]`.
    pub bias: Option<Param<Tensor<1>>>,
    /// Stride, in pixels.
    #[module(skip)]
    pub stride: usize,
    /// Zeros before and after the rows, before and after the columns.
    #[module(skip)]
    pub padding: [(usize, usize); 2],
    /// Groups of channels.
    #[module(skip)]
    pub groups: usize,
}

impl Conv {
    /// Kaiming-uniform weights for ReLU (He et al. 2015): bound `sqrt(6 / fan_in)`. Stride 1, padded
    /// to keep the size of an image for odd windows, no bias.
    ///
    /// `channels` are those of the input and of the output.
    pub fn new(init: &Init<'_>, path: &str, channels: [usize; 2], size: usize, groups: usize) -> Self {
        assert!(
            groups > 0 && channels.iter().all(|count| count.is_multiple_of(groups)),
            "{channels:?} channels in {groups} groups"
        );
        let inputs = channels[0] / groups;
        let bound = (6.0 / (inputs * size * size) as f64).sqrt();
        let weight = init.uniform(path, [channels[1], inputs, size, size], bound);
        Conv { weight, bias: None, stride: 1, padding: [(size / 2, size / 2); 2], groups }
    }

    /// With windows `stride` pixels apart.
    pub fn with_stride(self, stride: usize) -> Self {
        Conv { stride, ..self }
    }

    /// With so many zeros before and after the rows, before and after the columns.
    pub fn with_padding(self, padding: [(usize, usize); 2]) -> Self {
        Conv { padding, ..self }
    }

    /// With a bias, at first 0.
    pub fn with_bias(self, init: &Init<'_>) -> Self {
        let channels = self.weight.dims()[0];
        Conv { bias: Some(init.constant(0.0, channels)), ..self }
    }

    /// `[n, channels_in, h, w]` to `[n, channels_out, h', w']` with
    /// `h' = (h + zeros before + zeros after - size) / stride + 1`, rounded down.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let weight = as_in(&self.weight, &x);
        let bias = self.bias.as_ref().map(|bias| as_in(bias, &x));
        gallerist_kernels::conv2d(x, weight, bias, self.options())
    }

    pub(super) fn options(&self) -> ConvOptions<2> {
        ConvOptions::new_with_padding([self.stride; 2], self.padding, [1, 1], self.groups)
    }
}

/// Batch norm over `[n, c, h, w]`: batch statistics in training, running ones otherwise.
#[derive(Module, Debug)]
pub struct BatchNorm {
    /// Scale, `[c]`.
    pub gamma: Param<Tensor<1>>,
    /// Shift, `[c]`.
    pub beta: Param<Tensor<1>>,
    /// Whether batch statistics are used and the running ones updated; off while frozen.
    pub training: Param<Flag>,
    /// Running mean, `[c]`.
    pub running_mean: RunningState<Tensor<1>>,
    /// Running biased variance, `[c]`.
    pub running_var: RunningState<Tensor<1>>,
    #[module(skip)]
    momentum: f64,
    #[module(skip)]
    /// Added to the variance.
    pub epsilon: f64,
    #[module(skip)]
    /// The activation in the same pass.
    pub then: Activation,
    /// Whether the maximum over 2 x 2 windows of stride 2 follows.
    #[module(skip)]
    pub max_pool2: bool,
}

impl BatchNorm {
    /// Scale 1, shift 0; `momentum` is the share of the new batch in the running statistics.
    pub fn new(init: &Init<'_>, channels: usize, momentum: f64) -> Self {
        BatchNorm {
            gamma: init.constant(1.0, channels),
            beta: init.constant(0.0, channels),
            training: Param::from_bool(true),
            running_mean: RunningState::new(Tensor::from_data(full(0.0, channels), init.device)),
            running_var: RunningState::new(Tensor::from_data(full(1.0, channels), init.device)),
            momentum,
            epsilon: 1e-5,
            then: Activation::None,
            max_pool2: false,
        }
    }

    /// With another epsilon than 1e-5.
    pub fn with_epsilon(self, epsilon: f64) -> Self {
        BatchNorm { epsilon, ..self }
    }

    /// Followed by an activation.
    pub fn with_activation(self, then: Activation) -> Self {
        BatchNorm { then, ..self }
    }

    /// With frozen statistics, or frozen statistics, scale and shift.
    pub fn frozen(self, freeze: FreezeBatchNorm) -> Self {
        if freeze == FreezeBatchNorm::None {
            return self;
        }
        let training = self.training.with_value(false);
        let fixed = freeze == FreezeBatchNorm::All;
        let set = |param: Param<Tensor<1>>| if fixed { param.set_require_grad(false) } else { param };
        BatchNorm { gamma: set(self.gamma), beta: set(self.beta), training, ..self }
    }

    /// Adds the maximum over 2 x 2 windows of stride 2; returns false if the layer does not support it.
    pub(super) fn fuse_max_pool2(&mut self) -> bool {
        let fits = self.then == Activation::Relu && !self.max_pool2;
        self.max_pool2 |= fits;
        fits
    }

    /// `[n, c, h, w]` to the same shape.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let numbers = x.dtype();
        let statistics = self.statistics(x.device().is_autodiff());
        let x = match statistics {
            Statistics::Batch => for_sums(x),
            Statistics::Given { .. } => at_least_f32(x),
        };
        in_dtype(self.forward_by(statistics, x), numbers)
    }

    fn forward_by(&self, statistics: Statistics, x: Tensor<4>) -> Tensor<4> {
        let (gamma, beta) = (self.gamma.val(), self.beta.val());
        match statistics {
            Statistics::Batch => {
                let out = match self.max_pool2 {
                    true => gallerist_kernels::batch_norm_relu_max_pool2(x, gamma, beta, self.epsilon),
                    false => gallerist_kernels::batch_norm(x, gamma, beta, self.epsilon, self.then),
                };
                self.update([out.mean, out.variance]);
                out.output
            }
            Statistics::Given { mean, variance } => {
                let y = gallerist_kernels::batch_norm_fixed(
                    x,
                    gamma,
                    beta,
                    mean,
                    variance,
                    self.epsilon,
                    self.then,
                );
                match self.max_pool2 {
                    true => gallerist_kernels::max_pool2d(y, Pool::new(2, 2).max_options()),
                    false => y,
                }
            }
        }
    }

    /// The statistics of the normalisation: those of the batch in training (`with_gradient`), unless frozen.
    fn statistics(&self, with_gradient: bool) -> Statistics {
        if with_gradient && self.training.is_enabled() {
            return Statistics::Batch;
        }
        Statistics::Given { mean: self.running_mean.value(), variance: self.running_var.value() }
    }

    /// This layer after a convolution without bias, as a layer of a chain from `x`.
    pub(super) fn after(&self, conv: &Conv, x: &Tensor<4>) -> ConvNorm {
        ConvNorm {
            weight: as_in(&conv.weight, x),
            options: conv.options(),
            gamma: self.gamma.val(),
            beta: self.beta.val(),
            statistics: self.statistics(x.device().is_autodiff()),
            epsilon: self.epsilon,
            activation: self.then,
        }
    }

    /// Updates the running mean and variance with those of a batch.
    pub(super) fn update(&self, [mean, variance]: [Tensor<1>; 2]) {
        for (state, batch) in [(&self.running_mean, mean), (&self.running_var, variance)] {
            let new =
                state.value().mul_scalar(1.0 - self.momentum) + batch.detach().mul_scalar(self.momentum);
            state.update(new.detach());
            // The engine applies updates lazily; a checkpoint must contain this one.
            state.value_sync();
        }
    }
}

/// Linear layer `x W + b`.
#[derive(Module, Debug)]
pub struct Linear {
    /// `[inputs, outputs]`.
    pub weight: Param<Tensor<2>>,
    /// `[outputs]`.
    pub bias: Option<Param<Tensor<1>>>,
    /// Outputs whose bias is 0 and stays 0.
    #[module(skip)]
    pub without_bias: Range<usize>,
}

impl Linear {
    /// Xavier-uniform weights (Glorot & Bengio 2010): bound `sqrt(6 / (inputs + outputs))`; a bias of 0 if
    /// `bias` is set.
    pub fn new(init: &Init<'_>, path: &str, inputs: usize, outputs: usize, bias: bool) -> Self {
        let bound = (6.0 / (inputs + outputs) as f64).sqrt();
        Linear {
            weight: init.uniform(path, [inputs, outputs], bound),
            bias: bias.then(|| init.constant(0.0, outputs)),
            without_bias: 0..0,
        }
    }

    /// The bias of every output, `[outputs]`: 0 where an output is [without](Self::without_bias).
    pub fn whole_bias(&self) -> Option<Tensor<1>> {
        let bias = self.bias.as_ref()?.val();
        if self.without_bias.is_empty() {
            return Some(bias);
        }
        let factors = (0..bias.dims()[0]).map(|i| if self.without_bias.contains(&i) { 0.0 } else { 1.0 });
        let factors = Tensor::<1>::from_floats(&factors.collect::<Vec<f32>>()[..], &bias.device());
        Some(bias * factors)
    }

    /// `[n, inputs]` to `[n, outputs]`.
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let bias = self.whole_bias().map(|bias| in_dtype(bias, x.dtype()));
        let weight = as_in(&self.weight, &x);
        let y = gallerist_kernels::matmul(x, weight);
        match bias {
            Some(bias) => gallerist_kernels::add_bias(y, bias),
            None => y,
        }
    }

    /// `[n, count, inputs]` to `[n, count, outputs]`.
    pub fn forward_tokens(&self, x: Tensor<3>) -> Tensor<3> {
        let weight = as_in(&self.weight, &x);
        let bias = self.whole_bias().map(|bias| in_dtype(bias, x.dtype()));
        gallerist_kernels::linear_tokens(x, weight, bias)
    }
}

/// Generalised mean over all positions of a map (Radenović, Tolias & Chum 2019, equation 3):
/// `(mean of max(x, 1e-6)^p)^(1/p)` with one learned `p`, at first 3.
///
/// `p = 1` is the mean; the larger `p`, the nearer is the result to the maximum.
#[derive(Module, Debug)]
pub struct Gem {
    /// The exponent, `[1]`.
    pub p: Param<Tensor<1>>,
}

impl Gem {
    /// The smallest value; smaller ones are replaced by it, because the logarithm of 0 has no derivative.
    pub const LEAST: f64 = 1e-6;

    /// With the exponent 3.
    pub fn new(init: &Init<'_>) -> Self {
        Gem { p: init.constant(3.0, 1) }
    }

    /// `[n, c, h, w]` to `[n, c]`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<2> {
        let p = self.p.val();
        let [n, c, h, w] = x.dims();
        let logs = at_least_f32(x).clamp_min(Self::LEAST).log().reshape([n, c, h * w]);
        // The powers are divided by the largest one, so that none overflows or underflows.
        let scaled = logs * p.clone().reshape([1, 1, 1]);
        let largest = scaled.clone().detach().max_dim(2);
        let mean = (scaled - largest.clone()).exp().mean_dim(2).log() + largest;
        (mean.squeeze_dim::<2>(2) / p.reshape([1, 1])).exp()
    }
}
