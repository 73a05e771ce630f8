//! The operations with gradients.

use std::sync::Arc;

use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::ops::{Backward, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::{Autodiff, Flex};
use burn::tensor::ops::{AvgPoolOptions, ConvOptions, MaxPoolOptions};

use super::chain::{chain, tensors_of, track_chain};
use super::concat::track_concat;
use super::conv::{Conv2d, Conv2dWithBias, conv2d};
use super::gate::track_excite;
use super::gradients::Tracked;
use super::linear::track_linear;
use super::norm::{BatchNorm, NormState, batch_norm_train, fixed_affine};
use super::operations::{KernelOps, MAX_LAYERS, MAX_PARTS, Tail, Tensors};
use super::pool::{
    AvgPool2d, GlobalAverage, MaxPool2d, MaxPoolState, avg_pool2d, global_average, max_pool2d,
};
use super::tokens::{track_gated_silu, track_gelu, track_layer_norm, track_self_attention};
use super::unit::track_unit_rows;
use crate::chain::{LayerOptions, Shortcut};
use crate::gate::Gate;
use crate::maps::Maps;
use crate::nhwc::{Values, tensor};
use crate::norm::{self, Activation};
use crate::tokens::{Gelu, Rotary};

impl<C: CheckpointStrategy> KernelOps for Autodiff<Flex, C> {
    fn conv2d_kernel(x: Tracked, weight: Tracked, options: ConvOptions<2>) -> Tracked {
        let y = conv2d(x.primitive(), weight.primitive(), None, &options);
        match Conv2d.prepare::<C>([x.node(), weight.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut preparation) => {
                let (x, weight) = (preparation.checkpoint(&x), preparation.checkpoint(&weight));
                preparation.finish((x, weight, options), y)
            }
            OpsKind::UnTracked(preparation) => preparation.finish(y),
        }
    }

    fn conv2d_bias_kernel(x: Tracked, weight: Tracked, bias: Tracked, options: ConvOptions<2>) -> Tracked {
        let y = conv2d(x.primitive(), weight.primitive(), Some(bias.primitive()), &options);
        match Conv2dWithBias.prepare::<C>([x.node(), weight.node(), bias.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut preparation) => {
                let (x, weight) = (preparation.checkpoint(&x), preparation.checkpoint(&weight));
                preparation.finish((x, weight, options), y)
            }
            OpsKind::UnTracked(preparation) => preparation.finish(y),
        }
    }

    fn batch_norm_train_kernel(
        x: Tracked,
        gamma: Tracked,
        beta: Tracked,
        epsilon: f64,
        tail: Tail,
    ) -> (Tracked, Tracked, Tracked) {
        let result = batch_norm_train(x.primitive(), gamma.primitive(), beta.primitive(), epsilon, tail);
        let y = match BatchNorm.prepare::<C>([x.node(), gamma.node(), beta.node()]).compute_bound().stateful()
        {
            OpsKind::Tracked(mut preparation) => {
                let state = NormState {
                    x: preparation.checkpoint(&x),
                    affine: Arc::new(result.affine),
                    winners: result.winners.map(Arc::new),
                    activation: match tail {
                        Tail::Activation(activation) => activation,
                        Tail::ReluMaxPool2 => Activation::Relu,
                    },
                    batch_statistics: true,
                };
                preparation.finish(state, result.y)
            }
            OpsKind::UnTracked(preparation) => preparation.finish(result.y),
        };
        (y, Tracked::new(result.mean), Tracked::new(result.variance))
    }

    fn max_pool2d_kernel(x: Tracked, options: MaxPoolOptions<2>) -> Tracked {
        let (y, place, windows) = max_pool2d(x.primitive(), &options);
        match MaxPool2d.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(preparation) => {
                let place = Arc::new(place);
                preparation.finish(MaxPoolState { place, windows }, y)
            }
            OpsKind::UnTracked(preparation) => preparation.finish(y),
        }
    }

    fn avg_pool2d_kernel(x: Tracked, options: AvgPoolOptions<2>) -> Tracked {
        let (y, means) = avg_pool2d(x.primitive(), &options);
        match AvgPool2d.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(preparation) => preparation.finish(means, y),
            OpsKind::UnTracked(preparation) => preparation.finish(y),
        }
    }

    fn concat_kernel(parts: Tensors<Self>) -> Tracked {
        let parts = parts.0;
        match parts.len() {
            2 => track_concat::<C, 2>(parts),
            3 => track_concat::<C, 3>(parts),
            4 => track_concat::<C, 4>(parts),
            5 => track_concat::<C, 5>(parts),
            6 => track_concat::<C, 6>(parts),
            _ => unreachable!("a concatenation has 2 to {MAX_PARTS} parts"),
        }
    }

    fn global_average_kernel(x: Tracked) -> Tracked {
        let y = global_average(x.primitive());
        let maps = Maps::of(x.primitive());
        match GlobalAverage.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(preparation) => preparation.finish(maps, y),
            OpsKind::UnTracked(preparation) => preparation.finish(y),
        }
    }

    fn excite_kernel(x: Tracked, by: Tracked, gate: Gate) -> Tracked {
        track_excite::<C>(x, by, gate)
    }

    fn linear_kernel(x: Tracked, weight: Tracked) -> Tracked {
        track_linear::<C>(x, weight, None)
    }

    fn linear_bias_kernel(x: Tracked, weight: Tracked, bias: Tracked) -> Tracked {
        track_linear::<C>(x, weight, Some(bias))
    }

    fn self_attention_kernel(qkv: Tracked, heads: usize, rotary: Option<Arc<Rotary>>) -> Tracked {
        track_self_attention::<C>(qkv, heads, rotary)
    }

    fn layer_norm_kernel(x: Tracked, weight: Tracked, bias: Tracked, epsilon: f64) -> Tracked {
        track_layer_norm::<C>(x, weight, bias, epsilon)
    }

    fn gelu_kernel(x: Tracked, kind: Gelu) -> Tracked {
        track_gelu::<C>(x, kind)
    }

    fn gated_silu_kernel(x: Tracked) -> Tracked {
        track_gated_silu::<C>(x)
    }

    fn unit_rows_kernel(x: Tracked) -> Tracked {
        track_unit_rows::<C>(x)
    }

    fn chain_kernel(tensors: Tensors<Self>, layers: Vec<LayerOptions>, shortcut: Shortcut) -> Vec<Tracked> {
        let tensors = tensors.0;
        let first = if shortcut == Shortcut::Other { 2 } else { 1 };
        let mut nodes = vec![tensors[0].node(), tensors[first - 1].node()];
        let mut at = first;
        for layer in &layers {
            nodes.extend(tensors[at..at + 3].iter().map(|tensor| tensor.node()));
            at += tensors_of(layer);
        }
        let primitives: Vec<FlexTensor> = tensors.iter().map(|tensor| tensor.primitive().clone()).collect();
        let (y, moments, state) = chain(&primitives, layers, shortcut, true);
        let y = match nodes.len() {
            5 => track_chain::<C, 5>(nodes, state, y),
            8 => track_chain::<C, 8>(nodes, state, y),
            11 => track_chain::<C, 11>(nodes, state, y),
            14 => track_chain::<C, 14>(nodes, state, y),
            _ => unreachable!("a chain has 1 to {MAX_LAYERS} layers"),
        };
        std::iter::once(y).chain(moments.into_iter().map(Tracked::new)).collect()
    }

    fn batch_norm_fixed_kernel(
        x: Tracked,
        gamma: Tracked,
        beta: Tracked,
        mean: Tracked,
        variance: Tracked,
        epsilon: f64,
        activation: Activation,
    ) -> Tracked {
        let affine = fixed_affine(
            gamma.primitive(),
            beta.primitive(),
            mean.primitive(),
            variance.primitive(),
            epsilon,
        );
        let maps = Maps::of(x.primitive());
        let y = tensor(norm::apply(&Values::of(x.primitive()), &affine, None, activation), maps);
        match BatchNorm.prepare::<C>([x.node(), gamma.node(), beta.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut preparation) => {
                let state = NormState {
                    x: preparation.checkpoint(&x),
                    affine: Arc::new(affine),
                    winners: None,
                    activation,
                    batch_statistics: false,
                };
                preparation.finish(state, y)
            }
            OpsKind::UnTracked(preparation) => preparation.finish(y),
        }
    }
}
