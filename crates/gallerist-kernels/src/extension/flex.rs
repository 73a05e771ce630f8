//! The operations without gradients.

use std::sync::Arc;

use burn::backend::Flex;
use burn::backend::flex::FlexTensor;
use burn::tensor::ops::{AvgPoolOptions, ConvOptions, MaxPoolOptions};

use super::chain::chain;
use super::concat::join;
use super::conv::conv2d;
use super::gate::excite;
use super::linear::linear;
use super::norm::{batch_norm_train, fixed_affine};
use super::operations::{KernelOps, Tail, Tensors};
use super::pool::{avg_pool2d, global_average, max_pool2d};
use super::tokens::{activated, gated_silu, normalized, self_attention};
use super::unit::unit_rows;
use crate::chain::{LayerOptions, Shortcut};
use crate::gate::Gate;
use crate::maps::Maps;
use crate::nhwc::{Values, tensor};
use crate::norm::{self, Activation};
use crate::tokens::{Gelu, Rotary};

impl KernelOps for Flex {
    fn conv2d_kernel(x: FlexTensor, weight: FlexTensor, options: ConvOptions<2>) -> FlexTensor {
        conv2d(&x, &weight, None, &options)
    }

    fn conv2d_bias_kernel(
        x: FlexTensor,
        weight: FlexTensor,
        bias: FlexTensor,
        options: ConvOptions<2>,
    ) -> FlexTensor {
        conv2d(&x, &weight, Some(&bias), &options)
    }

    fn batch_norm_train_kernel(
        x: FlexTensor,
        gamma: FlexTensor,
        beta: FlexTensor,
        epsilon: f64,
        tail: Tail,
    ) -> (FlexTensor, FlexTensor, FlexTensor) {
        let result = batch_norm_train(&x, &gamma, &beta, epsilon, tail);
        (result.y, result.mean, result.variance)
    }

    fn max_pool2d_kernel(x: FlexTensor, options: MaxPoolOptions<2>) -> FlexTensor {
        max_pool2d(&x, &options).0
    }

    fn avg_pool2d_kernel(x: FlexTensor, options: AvgPoolOptions<2>) -> FlexTensor {
        avg_pool2d(&x, &options).0
    }

    fn concat_kernel(parts: Tensors<Flex>) -> FlexTensor {
        join(&parts.0.iter().collect::<Vec<_>>())
    }

    fn global_average_kernel(x: FlexTensor) -> FlexTensor {
        global_average(&x)
    }

    fn excite_kernel(x: FlexTensor, by: FlexTensor, gate: Gate) -> FlexTensor {
        excite(&x, &by, gate)
    }

    fn linear_kernel(x: FlexTensor, weight: FlexTensor) -> FlexTensor {
        linear(&x, &weight, None)
    }

    fn linear_bias_kernel(x: FlexTensor, weight: FlexTensor, bias: FlexTensor) -> FlexTensor {
        linear(&x, &weight, Some(&bias))
    }

    fn self_attention_kernel(qkv: FlexTensor, heads: usize, rotary: Option<Arc<Rotary>>) -> FlexTensor {
        self_attention(&qkv, heads, rotary.as_deref())
    }

    fn layer_norm_kernel(x: FlexTensor, weight: FlexTensor, bias: FlexTensor, epsilon: f64) -> FlexTensor {
        normalized(&x, &weight, &bias, epsilon)
    }

    fn gelu_kernel(x: FlexTensor, kind: Gelu) -> FlexTensor {
        activated(&x, kind)
    }

    fn gated_silu_kernel(x: FlexTensor) -> FlexTensor {
        gated_silu(&x)
    }

    fn unit_rows_kernel(x: FlexTensor) -> FlexTensor {
        unit_rows(&x).0
    }

    fn chain_kernel(
        tensors: Tensors<Flex>,
        layers: Vec<LayerOptions>,
        shortcut: Shortcut,
    ) -> Vec<FlexTensor> {
        let (y, moments, _) = chain(&tensors.0, layers, shortcut, false);
        std::iter::once(y).chain(moments).collect()
    }

    fn batch_norm_fixed_kernel(
        x: FlexTensor,
        gamma: FlexTensor,
        beta: FlexTensor,
        mean: FlexTensor,
        variance: FlexTensor,
        epsilon: f64,
        activation: Activation,
    ) -> FlexTensor {
        let affine = fixed_affine(&gamma, &beta, &mean, &variance, epsilon);
        tensor(norm::apply(&Values::of(&x), &affine, None, activation), Maps::of(&x))
    }
}
