//! Attention, layer norm and the activations of transformers.

use std::sync::Arc;

use burn::backend::Flex;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::{FlexTensor, Layout};
use burn::tensor::DType;

use super::gradients::{Tracked, vector};
use crate::buffer::Buffer;
use crate::nhwc::{Contiguous, contiguous_tensor};
use crate::tokens::attention::{self, Sizes};
use crate::tokens::{Gelu, Rotary, gated, gelu, layer_norm};

/// A contiguous tensor of the shape of `x`.
fn like(values: Buffer, x: &FlexTensor) -> FlexTensor {
    FlexTensor::new(values.into_bytes(), Layout::contiguous(x.layout().shape().clone()), DType::F32)
}

fn sizes(qkv: &FlexTensor, heads: usize) -> Sizes {
    let [images, tokens, triple]: [usize; 3] = qkv.layout().shape().dims();
    Sizes { images, tokens, heads, channels: triple / 3 / heads }
}

pub(super) fn self_attention(qkv: &FlexTensor, heads: usize, rotary: Option<&Rotary>) -> FlexTensor {
    let sizes = sizes(qkv, heads);
    let shape = [sizes.images, sizes.tokens, heads * sizes.channels];
    contiguous_tensor(attention::forward(&Contiguous::of(qkv), sizes, rotary), shape)
}

pub(super) fn normalized(x: &FlexTensor, weight: &FlexTensor, bias: &FlexTensor, epsilon: f64) -> FlexTensor {
    let (values, weight, bias) = (Contiguous::of(x), Contiguous::of(weight), Contiguous::of(bias));
    like(layer_norm::forward(&values, &weight, &bias, epsilon), x)
}

pub(super) fn activated(x: &FlexTensor, kind: Gelu) -> FlexTensor {
    like(gelu::forward(&Contiguous::of(x), kind), x)
}

pub(super) fn gated_silu(x: &FlexTensor) -> FlexTensor {
    let [images, tokens, double]: [usize; 3] = x.layout().shape().dims();
    contiguous_tensor(gated::forward(&Contiguous::of(x), double / 2), [images, tokens, double / 2])
}

#[derive(Debug)]
struct SelfAttention;

impl Backward<Flex, 1> for SelfAttention {
    type State = (NodeId, usize, Option<Arc<Rotary>>);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let [parent] = ops.parents;
        let dy = gradients.consume::<Flex>(&ops.node);
        let (qkv, heads, rotary) = ops.state;
        let qkv = checkpointer.retrieve_node_output::<FlexTensor>(qkv);
        if let Some(node) = parent {
            let (values, dy) = (Contiguous::of(&qkv), Contiguous::of(&dy));
            let dx = attention::gradient(&values, &dy, sizes(&qkv, heads), rotary.as_deref());
            gradients.register::<Flex>(node.id, like(dx, &qkv));
        }
    }
}

#[derive(Debug)]
struct LayerNorm;

impl Backward<Flex, 3> for LayerNorm {
    type State = (NodeId, FlexTensor, f64);

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let [x_node, weight_node, bias_node] = ops.parents;
        let dy = gradients.consume::<Flex>(&ops.node);
        let (x, weight, epsilon) = ops.state;
        let x = checkpointer.retrieve_node_output::<FlexTensor>(x);
        let values = [&x, &dy, &weight].map(Contiguous::of);
        let found = layer_norm::gradient(&values[0], &values[1], &values[2], epsilon);
        if let Some(node) = x_node {
            gradients.register::<Flex>(node.id, like(found.dx, &x));
        }
        if let Some(node) = weight_node {
            gradients.register::<Flex>(node.id, vector(&found.weight));
        }
        if let Some(node) = bias_node {
            gradients.register::<Flex>(node.id, vector(&found.bias));
        }
    }
}

#[derive(Debug)]
struct Activate;

impl Backward<Flex, 1> for Activate {
    type State = (NodeId, Gelu);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let [parent] = ops.parents;
        let dy = gradients.consume::<Flex>(&ops.node);
        let (x, kind) = ops.state;
        let x = checkpointer.retrieve_node_output::<FlexTensor>(x);
        if let Some(node) = parent {
            let dx = gelu::gradient(&Contiguous::of(&x), &Contiguous::of(&dy), kind);
            gradients.register::<Flex>(node.id, like(dx, &x));
        }
    }
}

#[derive(Debug)]
struct GatedSilu;

impl Backward<Flex, 1> for GatedSilu {
    type State = NodeId;

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let [parent] = ops.parents;
        let dy = gradients.consume::<Flex>(&ops.node);
        let x = checkpointer.retrieve_node_output::<FlexTensor>(ops.state);
        if let Some(node) = parent {
            let [_, _, double]: [usize; 3] = x.layout().shape().dims();
            let dx = gated::gradient(&Contiguous::of(&x), &Contiguous::of(&dy), double / 2);
            gradients.register::<Flex>(node.id, like(dx, &x));
        }
    }
}

/// Adds the operation to the gradient graph.
pub(super) fn track_self_attention<C: CheckpointStrategy>(
    qkv: Tracked,
    heads: usize,
    rotary: Option<Arc<Rotary>>,
) -> Tracked {
    let y = self_attention(qkv.primitive(), heads, rotary.as_deref());
    match SelfAttention.prepare::<C>([qkv.node()]).compute_bound().stateful() {
        OpsKind::Tracked(mut preparation) => {
            let state = (preparation.checkpoint(&qkv), heads, rotary);
            preparation.finish(state, y)
        }
        OpsKind::UnTracked(preparation) => preparation.finish(y),
    }
}

/// Adds the operation to the gradient graph.
pub(super) fn track_layer_norm<C: CheckpointStrategy>(
    x: Tracked,
    weight: Tracked,
    bias: Tracked,
    epsilon: f64,
) -> Tracked {
    let y = normalized(x.primitive(), weight.primitive(), bias.primitive(), epsilon);
    match LayerNorm.prepare::<C>([x.node(), weight.node(), bias.node()]).compute_bound().stateful() {
        OpsKind::Tracked(mut preparation) => {
            let state = (preparation.checkpoint(&x), weight.primitive().clone(), epsilon);
            preparation.finish(state, y)
        }
        OpsKind::UnTracked(preparation) => preparation.finish(y),
    }
}

/// Adds the operation to the gradient graph.
pub(super) fn track_gelu<C: CheckpointStrategy>(x: Tracked, kind: Gelu) -> Tracked {
    let y = activated(x.primitive(), kind);
    match Activate.prepare::<C>([x.node()]).compute_bound().stateful() {
        OpsKind::Tracked(mut preparation) => {
            let state = (preparation.checkpoint(&x), kind);
            preparation.finish(state, y)
        }
        OpsKind::UnTracked(preparation) => preparation.finish(y),
    }
}

/// Adds the operation to the gradient graph.
pub(super) fn track_gated_silu<C: CheckpointStrategy>(x: Tracked) -> Tracked {
    let y = gated_silu(x.primitive());
    match GatedSilu.prepare::<C>([x.node()]).compute_bound().stateful() {
        OpsKind::Tracked(mut preparation) => {
            let state = preparation.checkpoint(&x);
            preparation.finish(state, y)
        }
        OpsKind::UnTracked(preparation) => preparation.finish(y),
    }
}
