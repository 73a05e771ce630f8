//! The public functions on the engine's tensors. Only this file and [`crate::token_ops`] choose between the kernels and the
//! engine.

use std::sync::atomic::{AtomicBool, Ordering};

use burn::backend::{Dispatch, DispatchDevice};
use burn::tensor::activation;
use burn::tensor::module::BatchNormTrainOutput;
use burn::tensor::ops::{AvgPoolOptions, ConvOptions, MaxPoolOptions};
use burn::tensor::{DType, Tensor, module};
use gallerist_collective::Shared;

use crate::chain::{self, LayerOptions};
use crate::extension::{KernelOps, MAX_LAYERS, MAX_PARTS, Tail, Tensors};
use crate::gate::Gate;
use crate::geometry::Geometry;
use crate::maps::Maps;
use crate::norm::Activation;
use crate::pool::{Means, Windows};

static ENABLED: AtomicBool = AtomicBool::new(true);

/// Turns the kernels of this crate on (the default) or off for the whole process.
///
/// When they are off, every function calls the engine's own operations. Use this to find out whether a kernel is the cause
/// of a problem.
pub fn set_enabled(enabled: bool) {
    ENABLED.store(enabled, Ordering::Relaxed);
}

/// Whether the kernels are in use.
pub fn is_enabled() -> bool {
    ENABLED.load(Ordering::Relaxed)
}

/// Whether the kernels support this tensor: `f32`, on the CPU backend, not empty.
pub(crate) fn supported<const D: usize>(tensor: &Tensor<D>) -> bool {
    let device = tensor.device();
    let on_cpu = match device.as_dispatch() {
        DispatchDevice::Flex(_) => true,
        DispatchDevice::Autodiff(device) => matches!(device.clone().inner(), DispatchDevice::Flex(_)),
        #[allow(unreachable_patterns, reason = "other backends are compiled in by features")]
        _ => false,
    };
    on_cpu && tensor.dtype() == DType::F32 && tensor.dims().iter().all(|size| *size > 0)
}

/// Whether the kernels are in use and support these tensors.
fn eligible<const D: usize>(x: &Tensor<4>, others: &[&Tensor<D>]) -> bool {
    is_enabled() && supported(x) && others.iter().all(|tensor| supported(tensor))
}

fn maps(x: &Tensor<4>) -> Maps {
    let [images, channels, height, width] = x.dims();
    Maps { images, height, width, channels }
}

/// Convolution: `y[n, o, i, j] = bias[o] + sum over c, a, b of
/// weight[o, c, a, b] * x[n, c, i * stride + a * dilation - padding, j * stride + ...]`.
///
/// Any kernel size, stride, padding, dilation and number of groups.
///
/// # Shapes
///
/// - x: `[batch, channels_in, height, width]`
/// - weight: `[channels_out, channels_in / groups, kernel_height, kernel_width]`
/// - bias: `[channels_out]`
/// - result: `[batch, channels_out, height_out, width_out]`
///
/// # Panics
///
/// As the engine's convolution, if the sizes do not fit together.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor, ops::ConvOptions};
///
/// let device = Device::flex();
/// let x = Tensor::<4>::ones([1, 1, 3, 3], &device);
/// let weight = Tensor::<4>::ones([2, 1, 3, 3], &device);
/// let y = gallerist_kernels::conv2d(x, weight, None, ConvOptions::new([1, 1], [1, 1], [1, 1], 1));
/// assert_eq!(y.dims(), [1, 2, 3, 3]);
/// assert_eq!(y.slice([0..1, 0..1, 1..2, 1..2]).into_scalar::<f32>(), 9.0);
/// ```
pub fn conv2d(
    x: Tensor<4>,
    weight: Tensor<4>,
    bias: Option<Tensor<1>>,
    options: impl Into<ConvOptions<2>>,
) -> Tensor<4> {
    let options = options.into();
    let fits = eligible(&x, &[&weight])
        && bias.as_ref().is_none_or(|bias| eligible(&x, &[bias]) && bias.dims()[0] == weight.dims()[0])
        && Geometry::new(maps(&x), weight.dims(), &options).is_some();
    if !fits {
        #[cfg(feature = "cuda")]
        if is_enabled()
            && let Some(y) = crate::cuda::conv2d(&x, &weight, &options)
        {
            return match bias {
                Some(bias) => {
                    let [n, c, h, w] = y.dims();
                    let rows = y.permute([0, 2, 3, 1]).reshape([n * h * w, c]);
                    add_bias(rows, bias).reshape([n, h, w, c]).permute([0, 3, 1, 2])
                }
                None => y,
            };
        }
        return module::conv2d(x, weight, bias, options);
    }
    let (x, weight) = (x.into_dispatch(), weight.into_dispatch());
    Tensor::from_dispatch(match bias {
        None => Dispatch::conv2d_kernel(x, weight, options),
        Some(bias) => Dispatch::conv2d_bias_kernel(x, weight, bias.into_dispatch(), options),
    })
}

impl Activation {
    /// Applies the activation by the engine's operations.
    pub fn apply<const D: usize>(self, x: Tensor<D>) -> Tensor<D> {
        match self {
            Activation::None => x,
            Activation::Relu => activation::relu(x),
            Activation::Relu6 => activation::relu(x).clamp_max(6.0),
            Activation::Silu => x.clone() * Gate::Sigmoid.of(x),
            Activation::HardSwish => x.clone() * Gate::HardSigmoid.of(x),
        }
    }
}

fn normalise(
    x: Tensor<4>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    epsilon: f64,
    tail: Tail,
) -> BatchNormTrainOutput<4> {
    let channels = x.dims()[1];
    let fits = eligible(&x, &[&gamma, &beta])
        && gamma.dims() == [channels]
        && beta.dims() == [channels]
        && (tail != Tail::ReluMaxPool2 || x.dims()[2..].iter().all(|size| *size >= 2));
    if !fits {
        if let Some(ranks) = Shared::current() {
            ranks.refuse("batch norm of tensors that are not f32 on the CPU");
        }
        #[cfg(feature = "cuda")]
        if is_enabled() {
            let now = match tail {
                Tail::Activation(activation) => activation,
                Tail::ReluMaxPool2 => Activation::Relu,
            };
            if let Some(mut result) = crate::cuda::batch_norm(&x, None, [&gamma, &beta], epsilon, now) {
                if tail == Tail::ReluMaxPool2 {
                    result.output = module::max_pool2d(result.output, MaxPoolOptions::new([2, 2]));
                }
                return result;
            }
        }
        let mut result = module::batch_norm_train(x, gamma, beta, epsilon);
        result.output = match tail {
            Tail::Activation(activation) => activation.apply(result.output),
            Tail::ReluMaxPool2 => {
                let options = MaxPoolOptions::new([2, 2]);
                module::max_pool2d(activation::relu(result.output), options)
            }
        };
        return result;
    }
    let (output, mean, variance) = Dispatch::batch_norm_train_kernel(
        x.into_dispatch(),
        gamma.into_dispatch(),
        beta.into_dispatch(),
        epsilon,
        tail,
    );
    BatchNormTrainOutput {
        output: Tensor::from_dispatch(output),
        mean: Tensor::from_dispatch(mean),
        variance: Tensor::from_dispatch(variance),
    }
}

/// Batch normalisation by the statistics of the batch (Ioffe and Szegedy 2015, algorithm 1):
/// `y = gamma * (x - mean) / sqrt(variance + epsilon) + beta` per channel, then an activation in the same pass.
///
/// The gradient passes through mean and variance. The returned mean and variance, for running averages, carry no gradient.
/// The variance is biased.
///
/// Within [`Shared::within`], each rank of a distributed run normalises its part of a batch by mean and variance of the whole
/// batch ("synchronised batch norm"), with one exchange in the forward pass and one in the backward pass. Gradients with
/// respect to gamma and beta are those of the rank's images: their sums over the ranks are the gradients of the whole batch.
///
/// # Shapes
///
/// - x and result: `[batch, channels, height, width]`
/// - gamma, beta, mean, variance: `[channels]`
///
/// # Panics
///
/// As the engine's `batch_norm_train`, if the sizes do not fit together.
pub fn batch_norm(
    x: Tensor<4>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    epsilon: f64,
    activation: Activation,
) -> BatchNormTrainOutput<4> {
    normalise(x, gamma, beta, epsilon, Tail::Activation(activation))
}

/// [`batch_norm`] with ReLU, followed by the maximum over 2 x 2 windows with stride 2, in one pass.
///
/// The result is `[batch, channels, height / 2, width / 2]`; an odd last row or column counts for
/// the statistics but is in no window. Of equal values in a window the first takes the gradient.
///
/// # Panics
///
/// As the engine's operations, if the sizes do not fit together.
pub fn batch_norm_relu_max_pool2(
    x: Tensor<4>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    epsilon: f64,
) -> BatchNormTrainOutput<4> {
    normalise(x, gamma, beta, epsilon, Tail::ReluMaxPool2)
}

/// Batch normalisation by given statistics, as at evaluation or with frozen layers:
/// `y = gamma * (x - mean) / sqrt(variance + epsilon) + beta` per channel, then an activation.
///
/// Gradients reach `x`, `gamma` and `beta`; `mean` and `variance` are constants.
///
/// # Shapes
///
/// - x and result: `[batch, channels, height, width]`
/// - gamma, beta, mean, variance: `[channels]`
///
/// # Panics
///
/// As the engine's `batch_norm`, if the sizes do not fit together.
pub fn batch_norm_fixed(
    x: Tensor<4>,
    gamma: Tensor<1>,
    beta: Tensor<1>,
    mean: Tensor<1>,
    variance: Tensor<1>,
    epsilon: f64,
    activation: Activation,
) -> Tensor<4> {
    let (mean, variance) = (mean.detach(), variance.detach());
    let channels = x.dims()[1];
    let vectors = [&gamma, &beta, &mean, &variance];
    if !eligible(&x, &vectors) || vectors.iter().any(|vector| vector.dims() != [channels]) {
        let y = module::batch_norm(x, gamma, beta, mean, variance, epsilon);
        return activation.apply(y);
    }
    Tensor::from_dispatch(Dispatch::batch_norm_fixed_kernel(
        x.into_dispatch(),
        gamma.into_dispatch(),
        beta.into_dispatch(),
        mean.into_dispatch(),
        variance.into_dispatch(),
        epsilon,
        activation,
    ))
}

/// A matrix with `bias` added to every row.
///
/// # Shapes
///
/// - x and result: `[rows, width]`
/// - bias: `[width]`
pub fn add_bias(x: Tensor<2>, bias: Tensor<1>) -> Tensor<2> {
    #[cfg(feature = "cuda")]
    if is_enabled()
        && let Some(y) = crate::cuda::add_bias(&x, &bias)
    {
        return y;
    }
    x + bias.unsqueeze()
}

/// Whether [`batch_norm`] by the statistics of a batch, [`layer_norm`](crate::layer_norm) and
/// [`self_attention`](crate::self_attention) of such a tensor sum in f32: it is f32, or on an NVIDIA GPU. Others must be cast
/// first.
pub fn sums_in_f32<const D: usize>(x: &Tensor<D>) -> bool {
    #[cfg(feature = "cuda")]
    if is_enabled() && crate::cuda::supported(x) {
        return true;
    }
    x.dtype() == DType::F32
}

/// Products of matrices.
///
/// # Shapes
///
/// - left: `[.., m, k]`
/// - right: `[.., k, n]`, with the same sides before the last two
/// - result: `[.., m, n]`
///
/// # Panics
///
/// As the engine's `matmul`, if the sizes do not fit together.
pub fn matmul<const D: usize>(left: Tensor<D>, right: Tensor<D>) -> Tensor<D> {
    #[cfg(feature = "cuda")]
    if is_enabled()
        && let Some(y) = crate::cuda::matmul(&left, &right)
    {
        return y;
    }
    left.matmul(right)
}

/// Maximum over windows. Of equal values the first takes the gradient; NaN wins over all numbers.
///
/// # Shapes
///
/// - x: `[batch, channels, height, width]`
/// - result: `[batch, channels, height_out, width_out]`
///
/// # Panics
///
/// As the engine's max pooling, if the window does not fit.
pub fn max_pool2d(x: Tensor<4>, options: MaxPoolOptions<2>) -> Tensor<4> {
    if !eligible::<4>(&x, &[]) || Windows::of_max(maps(&x), &options).is_none() {
        return module::max_pool2d(x, options);
    }
    Tensor::from_dispatch(Dispatch::max_pool2d_kernel(x.into_dispatch(), options))
}

/// Mean over windows.
///
/// With `ceil_mode`, a last window that extends beyond the padded map is divided by the number of its elements inside the
/// map, as in PyTorch.
///
/// # Shapes
///
/// - x: `[batch, channels, height, width]`
/// - result: `[batch, channels, height_out, width_out]`
///
/// # Panics
///
/// As the engine's average pooling, if the window does not fit.
pub fn avg_pool2d(x: Tensor<4>, options: AvgPoolOptions<2>) -> Tensor<4> {
    if !eligible::<4>(&x, &[]) || Means::new(maps(&x), &options).is_none() {
        return module::avg_pool2d(x, options);
    }
    Tensor::from_dispatch(Dispatch::avg_pool2d_kernel(x.into_dispatch(), options))
}

/// Concatenation of feature maps along the channels.
///
/// # Shapes
///
/// - parts: `[batch, channels_i, height, width]`
/// - result: `[batch, sum of channels_i, height, width]`
///
/// # Panics
///
/// If there is no part; as the engine's `cat`, if the sizes do not fit together.
pub fn concat_channels(parts: Vec<Tensor<4>>) -> Tensor<4> {
    let fits = (2..=MAX_PARTS).contains(&parts.len()) && {
        let first = maps(&parts[0]);
        parts.iter().all(|part| {
            eligible(&parts[0], &[part]) && Maps { channels: first.channels, ..maps(part) } == first
        })
    };
    if !fits {
        return Tensor::cat(parts, 1);
    }
    let parts = parts.into_iter().map(Tensor::into_dispatch).collect();
    Tensor::from_dispatch(Dispatch::concat_kernel(Tensors(parts)))
}

/// Mean over all positions of every map.
///
/// # Shapes
///
/// - x: `[batch, channels, height, width]`
/// - result: `[batch, channels]`
pub fn global_average_pool(x: Tensor<4>) -> Tensor<2> {
    if !eligible::<4>(&x, &[]) {
        return x.flatten::<3>(2, 3).mean_dim(2).squeeze_dim(2);
    }
    Tensor::from_dispatch(Dispatch::global_average_kernel(x.into_dispatch()))
}

/// Rows scaled to length 1. A row of zeros stays zero and gets no gradient; a row with a value that is not finite becomes
/// NaN.
///
/// # Shapes
///
/// - x and result: `[rows, columns]`
pub fn unit_rows(x: Tensor<2>) -> Tensor<2> {
    if is_enabled() && supported(&x) {
        return Tensor::from_dispatch(Dispatch::unit_rows_kernel(x.into_dispatch()));
    }
    // The entries are divided by the largest one first, so that no square overflows or underflows.
    let largest = x.clone().detach().abs().max_dim(1);
    let zero = largest.clone().equal_scalar(0.0);
    let scale = largest.mask_fill(zero.clone(), 1.0).recip().mask_fill(zero.clone(), 0.0);
    let x = x * scale;
    let norm = x.clone().square().sum_dim(1).mask_fill(zero, 1.0).sqrt();
    x / norm
}

/// A layer of [`conv_norm_chain`]: a convolution without bias, batch norm, and an activation.
#[derive(Clone, Debug)]
pub struct ConvNorm {
    /// `[channels_out, channels_in / groups, kernel_height, kernel_width]`.
    pub weight: Tensor<4>,
    /// Stride, padding, dilation and groups.
    pub options: ConvOptions<2>,
    /// Scale, `[channels_out]`.
    pub gamma: Tensor<1>,
    /// Shift, `[channels_out]`.
    pub beta: Tensor<1>,
    /// The mean and variance of the normalisation.
    pub statistics: Statistics,
    /// Added to the variance.
    pub epsilon: f64,
    /// Applied after the normalisation.
    pub activation: Activation,
}

/// The mean and variance by which a batch norm normalises.
#[allow(clippy::large_enum_variant, reason = "one per layer, moved a few times")]
#[derive(Clone, Debug)]
pub enum Statistics {
    /// The mean and biased variance of the batch; gradients pass through them.
    Batch,
    /// Constants, `[channels]` each.
    Given {
        /// Mean.
        mean: Tensor<1>,
        /// Variance.
        variance: Tensor<1>,
    },
}

/// The maps that [`conv_norm_chain`] adds to the result of its last batch norm, before the activation.
#[allow(clippy::large_enum_variant, reason = "one per layer, moved a few times")]
#[derive(Clone, Debug)]
pub enum Shortcut {
    /// Nothing.
    None,
    /// The chain's input.
    Input,
    /// Maps of the result's shape.
    Maps(Tensor<4>),
}

/// Result of [`conv_norm_chain`].
#[derive(Clone, Debug)]
pub struct ChainOutput {
    /// The maps after the last activation.
    pub output: Tensor<4>,
    /// Mean and biased variance, without gradient, for every layer with [`Statistics::Batch`].
    pub moments: Vec<Option<[Tensor<1>; 2]>>,
}

/// A chain of convolutions, each followed by batch norm and an activation, as one operation. The normalised maps between
/// them are never written to memory.
///
/// The chain may have any length; more than four layers are computed as several chains.
///
/// # Shapes
///
/// - x: `[batch, channels_in, height, width]`
/// - result: `[batch, channels_out, height_out, width_out]`, those of the last convolution
///
/// # Panics
///
/// If there is no layer; as the engine's operations, if the sizes do not fit together.
pub fn conv_norm_chain(x: Tensor<4>, mut layers: Vec<ConvNorm>, shortcut: Shortcut) -> ChainOutput {
    assert!(!layers.is_empty(), "a chain without layers");
    if layers.len() > MAX_LAYERS {
        let shortcut = match shortcut {
            Shortcut::Input => Shortcut::Maps(x.clone()),
            other => other,
        };
        let rest = layers.split_off(MAX_LAYERS);
        let first = conv_norm_chain(x, layers, Shortcut::None);
        let mut last = conv_norm_chain(first.output, rest, shortcut);
        last.moments.splice(..0, first.moments);
        return last;
    }
    if !chain_fits(&x, &layers, &shortcut) {
        return chain_by_layers(x, layers, shortcut);
    }
    let mut tensors = vec![x];
    let kind = match shortcut {
        Shortcut::None => chain::Shortcut::None,
        Shortcut::Input => chain::Shortcut::Input,
        Shortcut::Maps(maps) => {
            tensors.push(maps);
            chain::Shortcut::Other
        }
    };
    let mut tensors: Vec<_> = tensors.into_iter().map(Tensor::into_dispatch).collect();
    let mut options = Vec::with_capacity(layers.len());
    for layer in layers {
        tensors.push(layer.weight.into_dispatch());
        tensors.extend([layer.gamma, layer.beta].map(Tensor::into_dispatch));
        let batch_statistics = matches!(layer.statistics, Statistics::Batch);
        if let Statistics::Given { mean, variance } = layer.statistics {
            tensors.extend([mean, variance].map(|tensor| tensor.detach().into_dispatch()));
        }
        options.push(LayerOptions {
            convolution: layer.options,
            epsilon: layer.epsilon,
            activation: layer.activation,
            batch_statistics,
        });
    }
    let of_batch: Vec<bool> = options.iter().map(|layer| layer.batch_statistics).collect();
    let mut results = Dispatch::chain_kernel(Tensors(tensors), options, kind).into_iter();
    let output = Tensor::from_dispatch(results.next().expect("the result comes first"));
    let mut next = || Tensor::from_dispatch(results.next().expect("mean and variance of every such layer"));
    let moments = of_batch.into_iter().map(|of_batch| of_batch.then(|| [next(), next()])).collect();
    ChainOutput { output, moments }
}

fn chain_fits(x: &Tensor<4>, layers: &[ConvNorm], shortcut: &Shortcut) -> bool {
    let mut sizes = maps(x);
    for layer in layers {
        let Some(geometry) = Geometry::new(sizes, layer.weight.dims(), &layer.options) else { return false };
        sizes = geometry.output;
        let mut vectors = vec![&layer.gamma, &layer.beta];
        if let Statistics::Given { mean, variance } = &layer.statistics {
            vectors.extend([mean, variance]);
        }
        let fits = eligible(x, &[&layer.weight])
            && eligible(x, &vectors)
            && vectors.iter().all(|vector| vector.dims() == [sizes.channels]);
        if !fits {
            return false;
        }
    }
    // The gradient of an activation after a sum is made from its result, which does not tell that of a gate.
    let gated = layers.last().is_some_and(|layer| layer.activation.gate().is_some());
    match shortcut {
        Shortcut::None => true,
        _ if gated => false,
        Shortcut::Input => maps(x) == sizes,
        Shortcut::Maps(other) => eligible(x, &[other]) && maps(other) == sizes,
    }
}

/// [`conv_norm_chain`] as separate operations.
fn chain_by_layers(x: Tensor<4>, layers: Vec<ConvNorm>, shortcut: Shortcut) -> ChainOutput {
    let shortcut = match shortcut {
        Shortcut::None => None,
        Shortcut::Input => Some(x.clone()),
        Shortcut::Maps(maps) => Some(maps),
    };
    let (mut output, mut moments, count) = (x, Vec::new(), layers.len());
    for (index, layer) in layers.into_iter().enumerate() {
        let ConvNorm { weight, options, gamma, beta, statistics, epsilon, activation } = layer;
        let added = shortcut.as_ref().filter(|_| index + 1 == count).cloned();
        let now = if added.is_some() { Activation::None } else { activation };
        output = conv2d(output, weight, None, options);
        #[cfg(feature = "cuda")]
        if let (Some(added), Statistics::Batch, true) = (&added, &statistics, is_enabled())
            && let Some(result) =
                crate::cuda::batch_norm(&output, Some(added), [&gamma, &beta], epsilon, activation)
        {
            output = result.output;
            moments.push(Some([result.mean, result.variance]));
            continue;
        }
        match statistics {
            Statistics::Batch => {
                let result = batch_norm(output, gamma, beta, epsilon, now);
                output = result.output;
                moments.push(Some([result.mean, result.variance]));
            }
            Statistics::Given { mean, variance } => {
                let dtype = output.dtype();
                let wide = if dtype == DType::F32 { output } else { output.cast(DType::F32) };
                let y = batch_norm_fixed(wide, gamma, beta, mean, variance, epsilon, now);
                output = if dtype == DType::F32 { y } else { y.cast(dtype) };
                moments.push(None);
            }
        }
        if let Some(added) = added {
            output = activation.apply(output + added);
        }
    }
    ChainOutput { output, moments }
}
