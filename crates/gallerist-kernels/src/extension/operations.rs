//! The trait of the operations.

use std::sync::Arc;

use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Backend, BackendTensor, Dispatch, DispatchAutodiffContext, DispatchTensor, DispatchTensorKind,
    ExtensionType, backend_extension,
};
use burn::tensor::ops::{AvgPoolOptions, ConvOptions, MaxPoolOptions};

use crate::chain::{LayerOptions, Shortcut};
use crate::gate::Gate;
use crate::norm::Activation;
use crate::tokens::{Gelu, Rotary};

/// Most layers of a chain.
pub(crate) const MAX_LAYERS: usize = 4;

/// Most parts of a concatenation.
pub(crate) const MAX_PARTS: usize = 6;

/// What follows the normalisation in the same operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// An activation.
    Activation(Activation),
    /// ReLU, then the maximum over 2 x 2 windows with stride 2.
    ReluMaxPool2,
}

/// Tensors of an operation that takes any number of them.
pub(crate) struct Tensors<B: Backend>(pub(crate) Vec<FloatTensor<B>>);

impl<B: Backend> ExtensionType<B> for Tensors<B> {
    type Target = Tensors<Dispatch>;

    fn map_to_dispatch<F>(self, map_kind: F, autodiff: DispatchAutodiffContext) -> Self::Target
    where
        F: Fn(BackendTensor<B>) -> DispatchTensorKind,
    {
        let wrap = |tensor| DispatchTensor { kind: map_kind(BackendTensor::Float(tensor)), autodiff };
        Tensors(self.0.into_iter().map(wrap).collect())
    }

    fn map_from_dispatch<F>(target: Self::Target, unwrap_kind: F) -> Self
    where
        F: Fn(DispatchTensor) -> BackendTensor<B>,
    {
        Tensors(target.0.into_iter().map(|tensor| unwrap_kind(tensor).float()).collect())
    }

    fn routing_tensor(target: &Self::Target) -> Option<&DispatchTensor> {
        target.0.first()
    }

    fn routing_float_tensor(target: &Self::Target) -> Option<&DispatchTensor> {
        target.0.first()
    }

    fn autodiff_context(target: &Self::Target) -> DispatchAutodiffContext {
        let none = DispatchAutodiffContext::Disabled;
        target.0.iter().fold(none, |context, tensor| context.merge(tensor.autodiff))
    }
}

/// The operations. [`crate::ops`] calls them only where they can run: `f32` tensors on the CPU backend, of rank 4 unless
/// noted, of sizes that fit together.
#[backend_extension(Autodiff, Flex)]
pub(crate) trait KernelOps: Backend {
    /// Convolution without bias.
    fn conv2d_kernel(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        options: ConvOptions<2>,
    ) -> FloatTensor<Self>;

    /// Convolution with bias.
    fn conv2d_bias_kernel(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        options: ConvOptions<2>,
    ) -> FloatTensor<Self>;

    /// Batch normalisation by the statistics of the batch: result, mean, biased variance.
    fn batch_norm_train_kernel(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f64,
        tail: Tail,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);

    /// Maximum over windows.
    fn max_pool2d_kernel(x: FloatTensor<Self>, options: MaxPoolOptions<2>) -> FloatTensor<Self>;

    /// Mean over windows.
    fn avg_pool2d_kernel(x: FloatTensor<Self>, options: AvgPoolOptions<2>) -> FloatTensor<Self>;

    /// Concatenation of 2 to [`MAX_PARTS`] tensors along the channels.
    fn concat_kernel(#[extension_type] parts: Tensors<Self>) -> FloatTensor<Self>;

    /// Mean over all positions, `[batch, channels]`.
    fn global_average_kernel(x: FloatTensor<Self>) -> FloatTensor<Self>;

    /// `x gate(by)` with a value of `by`, `[batch, channels, 1, 1]`, for each channel of each image.
    fn excite_kernel(x: FloatTensor<Self>, by: FloatTensor<Self>, gate: Gate) -> FloatTensor<Self>;

    /// A linear layer of tokens without bias: of a tensor of rank 3, with a weight of rank 2.
    fn linear_kernel(x: FloatTensor<Self>, weight: FloatTensor<Self>) -> FloatTensor<Self>;

    /// A linear layer of tokens with bias.
    fn linear_bias_kernel(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
    ) -> FloatTensor<Self>;

    /// Self-attention of queries, keys and values; of a tensor of rank 3.
    fn self_attention_kernel(
        qkv: FloatTensor<Self>,
        heads: usize,
        rotary: Option<Arc<Rotary>>,
    ) -> FloatTensor<Self>;

    /// Layer norm over the last dimension, of a tensor of any rank.
    fn layer_norm_kernel(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        epsilon: f64,
    ) -> FloatTensor<Self>;

    /// The activation of an MLP, of a tensor of any rank.
    fn gelu_kernel(x: FloatTensor<Self>, kind: Gelu) -> FloatTensor<Self>;

    /// The gate of an MLP, of a tensor of rank 3.
    fn gated_silu_kernel(x: FloatTensor<Self>) -> FloatTensor<Self>;

    /// Rows of length 1; of a tensor of rank 2.
    fn unit_rows_kernel(x: FloatTensor<Self>) -> FloatTensor<Self>;

    /// A chain of convolutions with batch norm ([`crate::chain`]). `tensors` are the input, the shortcut if it is
    /// [`Shortcut::Other`], and for every layer weight, gamma, beta and, with fixed statistics, mean and variance. Returns
    /// the result, then mean and variance of every layer that computes them from the batch.
    fn chain_kernel(
        #[extension_type] tensors: Tensors<Self>,
        layers: Vec<LayerOptions>,
        shortcut: Shortcut,
    ) -> Vec<FloatTensor<Self>>;

    /// Batch normalisation by given statistics, then an activation.
    fn batch_norm_fixed_kernel(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        mean: FloatTensor<Self>,
        variance: FloatTensor<Self>,
        epsilon: f64,
        activation: Activation,
    ) -> FloatTensor<Self>;
}
