//! The public functions of transformers on the engine's tensors. This file chooses between these kernels and the engine, as
//! [`crate::ops`] does for the others.

use std::sync::Arc;

use burn::backend::Dispatch;
use burn::tensor::module::{attention, layer_norm as engine_layer_norm};
use burn::tensor::ops::AttentionModuleOptions;
use burn::tensor::{Tensor, TensorData, activation};

use crate::extension::KernelOps;
use crate::ops::{add_bias, is_enabled, matmul, supported};
use crate::tokens::{Gelu, Rotary};

/// Self-attention: `softmax(q k^T / sqrt(d)) v` for each head of `d = width / heads` channels, where queries, keys and values
/// are one after the other in `x`. `rotary` turns queries and keys.
///
/// The matrices `[tokens, tokens]` are not stored for the backward pass, which computes them again, one head at a time. A
/// token whose scores have NaN becomes NaN.
///
/// # Shapes
///
/// - x: `[batch, tokens, 3 width]`
/// - result: `[batch, tokens, width]`
///
/// # Panics
///
/// If the width is not a multiple of the heads, or `rotary` is for another number of tokens or channels.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
///
/// // Equal scores: each token becomes the mean of the values.
/// let x = Tensor::<3>::from_floats([[[0.0, 0.0, 1.0], [0.0, 0.0, 3.0]]], &Device::flex());
/// let y = gallerist_kernels::self_attention(x, 1, None);
/// assert_eq!(y.into_data().try_into_vec::<f32>().unwrap(), [2.0, 2.0]);
/// ```
pub fn self_attention(x: Tensor<3>, heads: usize, rotary: Option<&Arc<Rotary>>) -> Tensor<3> {
    let [n, count, triple] = x.dims();
    assert!(
        heads > 0 && triple.is_multiple_of(3 * heads),
        "{triple} channels of queries, keys and values for {heads} heads"
    );
    let width = triple / 3;
    if let Some(rotary) = rotary {
        let fits = [count, width / heads];
        assert_eq!([rotary.tokens(), rotary.channels()], fits, "tokens and channels of rotary positions");
    }
    if is_enabled() && supported(&x) {
        let rotary = rotary.cloned();
        return Tensor::from_dispatch(Dispatch::self_attention_kernel(x.into_dispatch(), heads, rotary));
    }
    #[cfg(feature = "cuda")]
    if is_enabled()
        && rotary.is_none()
        && let Some(y) = crate::cuda::self_attention(&x, heads)
    {
        return y;
    }
    let parts = x.reshape([n, count, 3, heads, width / heads]).permute([2, 0, 3, 1, 4]);
    let part = |i: usize| parts.clone().narrow(0, i, 1).squeeze_dim::<4>(0);
    let (mut query, mut key) = (part(0), part(1));
    if let Some(rotary) = rotary {
        (query, key) = turned(query, key, rotary);
    }
    let y = attention(query, key, part(2), None, None, AttentionModuleOptions::default());
    y.swap_dims(1, 2).reshape([n, count, width])
}

/// Queries and keys `[batch, heads, tokens, channels]` turned by the engine's operations.
fn turned(query: Tensor<4>, key: Tensor<4>, rotary: &Rotary) -> (Tensor<4>, Tensor<4>) {
    let (tokens, channels) = (rotary.tokens(), rotary.channels());
    let [cos, sin] = rotary.tables().map(|table| {
        let data = TensorData::new(table, [1, 1, tokens, channels]);
        Tensor::<4>::from_data(data, &query.device()).cast(query.dtype())
    });
    let turn = |x: Tensor<4>| {
        let [left, right] = [0, channels / 2].map(|from| x.clone().narrow(3, from, channels / 2));
        x * cos.clone() + Tensor::cat(vec![-right, left], 3) * sin.clone()
    };
    (turn(query), turn(key))
}

/// Layer norm over the last dimension: `(x - mean) / sqrt(variance + epsilon) * weight + bias` with the biased variance.
///
/// # Shapes
///
/// - x and result: `[.., width]`
/// - weight, bias: `[width]`
pub fn layer_norm<const D: usize>(
    x: Tensor<D>,
    weight: Tensor<1>,
    bias: Tensor<1>,
    epsilon: f64,
) -> Tensor<D> {
    let width = x.dims()[D - 1];
    let fits = [&weight, &bias].into_iter().all(|vector| supported(vector) && vector.dims() == [width]);
    if is_enabled() && supported(&x) && fits {
        let (x, weight, bias) = (x.into_dispatch(), weight.into_dispatch(), bias.into_dispatch());
        return Tensor::from_dispatch(Dispatch::layer_norm_kernel(x, weight, bias, epsilon));
    }
    #[cfg(feature = "cuda")]
    if is_enabled()
        && let Some(y) = crate::cuda::layer_norm(&x, [&weight, &bias], epsilon)
    {
        return y;
    }
    engine_layer_norm(x, weight, Some(bias), epsilon)
}

/// The activation between the two layers of an MLP, of every value.
pub fn gelu<const D: usize>(x: Tensor<D>, kind: Gelu) -> Tensor<D> {
    if is_enabled() && supported(&x) {
        return Tensor::from_dispatch(Dispatch::gelu_kernel(x.into_dispatch(), kind));
    }
    #[cfg(feature = "cuda")]
    if is_enabled()
        && let Some(y) = crate::cuda::gelu(&x, kind)
    {
        return y;
    }
    match kind {
        Gelu::Exact => activation::gelu(x),
        Gelu::Tanh => activation::gelu_approximate(x),
        Gelu::Quick => x.clone() * activation::sigmoid(x.mul_scalar(1.702)),
    }
}

/// The gate of an MLP with two first layers, `silu(a) b` with `silu(a) = a sigmoid(a)`, where `a` and `b` are one after the
/// other in `x` (Shazeer 2020, SwiGLU).
///
/// # Shapes
///
/// - x: `[batch, tokens, 2 width]`
/// - result: `[batch, tokens, width]`
///
/// # Panics
///
/// If the last side is odd or 0.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
///
/// let x = Tensor::<3>::from_floats([[[0.0, 1.0, 5.0, 2.0]]], &Device::flex());
/// let y = gallerist_kernels::gated_silu(x).into_data().try_into_vec::<f32>().unwrap();
/// assert!(y[0] == 0.0 && (y[1] - 2.0 / (1.0 + (-1.0f32).exp())).abs() < 1e-6);
/// ```
pub fn gated_silu(x: Tensor<3>) -> Tensor<3> {
    let double = x.dims()[2];
    assert!(double > 0 && double.is_multiple_of(2), "{double} channels of two halves");
    if is_enabled() && supported(&x) {
        return Tensor::from_dispatch(Dispatch::gated_silu_kernel(x.into_dispatch()));
    }
    let [a, b] = [0, double / 2].map(|from| x.clone().narrow(2, from, double / 2));
    activation::silu(a) * b
}

/// A linear layer of tokens, `x weight + bias`. The products are those of [`with_products`](crate::with_products).
///
/// # Shapes
///
/// - x: `[batch, tokens, inputs]`
/// - weight: `[inputs, outputs]`
/// - bias: `[outputs]`
/// - result: `[batch, tokens, outputs]`
pub fn linear_tokens(x: Tensor<3>, weight: Tensor<2>, bias: Option<Tensor<1>>) -> Tensor<3> {
    let ([n, count, inputs], [_, outputs]) = (x.dims(), weight.dims());
    let fits = bias.as_ref().is_none_or(|bias| supported(bias) && bias.dims() == [outputs]);
    if is_enabled() && supported(&x) && supported(&weight) && weight.dims()[0] == inputs && fits {
        let (x, weight) = (x.into_dispatch(), weight.into_dispatch());
        return Tensor::from_dispatch(match bias {
            Some(bias) => Dispatch::linear_bias_kernel(x, weight, bias.into_dispatch()),
            None => Dispatch::linear_kernel(x, weight),
        });
    }
    let y = matmul(x.reshape([n * count, inputs]), weight);
    let y = match bias {
        Some(bias) => add_bias(y, bias),
        None => y,
    };
    y.reshape([n, count, outputs])
}
