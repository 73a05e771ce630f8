//! Layers whose weights are drawn from a named seed and whose arithmetic goes through
//! [`gallerist_kernels`].

use burn::module::{Flag, Module, Param, RunningState};
use burn::tensor::module::max_pool2d;
use burn::tensor::ops::{ConvOptions, MaxPoolOptions};
use burn::tensor::{Device, Tensor, TensorData};
use gallerist_data::Random;

/// Draws initial weights; each parameter has a generator of its own, so that adding a layer
/// changes no other layer's weights.
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
    fn uniform<const D: usize>(&self, path: &str, shape: [usize; D], bound: f64) -> Param<Tensor<D>> {
        let mut random = Random::new(self.seed, &format!("weights/{path}"), 0, 0);
        let count = shape.iter().product();
        let values: Vec<f32> = (0..count).map(|_| random.between(-bound, bound) as f32).collect();
        self.param(TensorData::new(values, shape))
    }

    fn param<const D: usize>(&self, data: TensorData) -> Param<Tensor<D>> {
        Param::from_tensor(Tensor::from_data(data, self.device))
    }
}

/// Convolution without bias, 3 x 3 or any odd size, padded to keep the size at stride 1.
#[derive(Module, Debug)]
pub struct Conv {
    /// `[channels_out, channels_in, size, size]`.
    pub weight: Param<Tensor<4>>,
    #[module(skip)]
    stride: usize,
}

impl Conv {
    /// Kaiming-uniform weights for ReLU (He et al. 2015): bound `sqrt(6 / fan_in)`.
    pub fn new(init: &Init<'_>, path: &str, channels: [usize; 2], size: usize, stride: usize) -> Self {
        let bound = (6.0 / (channels[0] * size * size) as f64).sqrt();
        Conv { weight: init.uniform(path, [channels[1], channels[0], size, size], bound), stride }
    }

    /// `[n, channels_in, h, w]` to `[n, channels_out, ceil(h / stride), ceil(w / stride)]`.
    pub fn forward(&self, x: Tensor<4>) -> Tensor<4> {
        let weight = self.weight.val();
        let padding = weight.dims()[2] / 2;
        gallerist_kernels::conv2d(
            x,
            weight,
            None,
            ConvOptions::new([self.stride; 2], [padding; 2], [1, 1], 1),
        )
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
    momentum: f64,
    epsilon: f64,
}

impl BatchNorm {
    /// Scale 1, shift 0; `momentum` is the share of the new batch in the running statistics.
    pub fn new(init: &Init<'_>, channels: usize, momentum: f64) -> Self {
        let full = |value: f32| TensorData::new(vec![value; channels], [channels]);
        BatchNorm {
            gamma: init.param(full(1.0)),
            beta: init.param(full(0.0)),
            training: Param::from_bool(true),
            running_mean: RunningState::new(Tensor::from_data(full(0.0), init.device)),
            running_var: RunningState::new(Tensor::from_data(full(1.0), init.device)),
            momentum,
            epsilon: 1e-5,
        }
    }

    /// Batch norm followed by ReLU and, with `pool`, by the maximum over 2 x 2 windows of stride 2.
    ///
    /// `[n, c, h, w]` to the same shape or, with `pool`, to `[n, c, h / 2, w / 2]`.
    pub fn forward_relu(&self, x: Tensor<4>, pool: bool) -> Tensor<4> {
        let (gamma, beta) = (self.gamma.val(), self.beta.val());
        if x.device().is_autodiff() && self.training.is_enabled() {
            let out = if pool {
                gallerist_kernels::batch_norm_relu_max_pool2(x, gamma, beta, self.epsilon)
            } else {
                gallerist_kernels::batch_norm_relu(x, gamma, beta, self.epsilon)
            };
            self.update(&self.running_mean, out.mean);
            self.update(&self.running_var, out.variance);
            return out.output;
        }
        let (mean, variance) = (self.running_mean.value(), self.running_var.value());
        let y = gallerist_kernels::batch_norm_fixed(x, gamma, beta, mean, variance, self.epsilon, true);
        if pool { max_pool2d(y, MaxPoolOptions::new([2, 2])) } else { y }
    }

    fn update(&self, state: &RunningState<Tensor<1>>, batch: Tensor<1>) {
        let new = state.value().mul_scalar(1.0 - self.momentum) + batch.detach().mul_scalar(self.momentum);
        state.update(new.detach());
        // The engine keeps updates aside until they are asked for; a checkpoint must see this one.
        state.value_sync();
    }
}

/// Linear layer `x W + b`.
#[derive(Module, Debug)]
pub struct Linear {
    /// `[inputs, outputs]`.
    pub weight: Param<Tensor<2>>,
    /// `[outputs]`.
    pub bias: Option<Param<Tensor<1>>>,
}

impl Linear {
    /// Xavier-uniform weights (Glorot & Bengio 2010): bound `sqrt(6 / (inputs + outputs))`; a bias of 0 if
    /// asked for.
    pub fn new(init: &Init<'_>, path: &str, inputs: usize, outputs: usize, bias: bool) -> Self {
        let bound = (6.0 / (inputs + outputs) as f64).sqrt();
        Linear {
            weight: init.uniform(path, [inputs, outputs], bound),
            bias: bias.then(|| init.param(TensorData::new(vec![0f32; outputs], [outputs]))),
        }
    }

    /// `[n, inputs]` to `[n, outputs]`.
    pub fn forward(&self, x: Tensor<2>) -> Tensor<2> {
        let y = x.matmul(self.weight.val());
        match &self.bias {
            Some(bias) => y + bias.val().unsqueeze(),
            None => y,
        }
    }
}
