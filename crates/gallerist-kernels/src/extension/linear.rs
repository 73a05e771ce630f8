//! A linear layer of tokens.

use burn::backend::Flex;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;

use super::conv::gradients_of;
use super::gradients::{Tracked, vector};
use crate::conv::{self, Source};
use crate::geometry::Geometry;
use crate::maps::Maps;
use crate::nhwc::{Contiguous, contiguous_tensor};
use crate::norm;

/// Tokens are maps of one row.
fn geometry(x: &FlexTensor, weight: &FlexTensor) -> Geometry {
    let [images, width, channels]: [usize; 3] = x.layout().shape().dims();
    let [_, outputs]: [usize; 2] = weight.layout().shape().dims();
    Geometry::linear(Maps { images, height: 1, width, channels }, outputs)
        .expect("the caller of the operation has checked the sizes")
}

fn tokens(values: crate::buffer::Buffer, maps: Maps) -> FlexTensor {
    contiguous_tensor(values, [maps.images, maps.width, maps.channels])
}

pub(super) fn linear(x: &FlexTensor, weight: &FlexTensor, bias: Option<&FlexTensor>) -> FlexTensor {
    let sizes = geometry(x, weight);
    let (x, weight, bias) = (Contiguous::of(x), Contiguous::of(weight), bias.map(Contiguous::of));
    let (y, _) = conv::forward::<()>(&Source::Values(&x), &weight, bias.as_deref(), &sizes, None);
    tokens(y, sizes.output)
}

/// `N` parents: tokens, weight and, if there is one, bias; the state are the nodes of the first two.
#[derive(Debug)]
struct Linear<const N: usize>;

impl<const N: usize> Backward<Flex, N> for Linear<N> {
    type State = [NodeId; 2];

    fn backward(self, ops: Ops<Self::State, N>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let dy = gradients.consume::<Flex>(&ops.node);
        let [x, weight] = ops.state.map(|node| checkpointer.retrieve_node_output::<FlexTensor>(node));
        let sizes = geometry(&x, &weight);
        let (x, weight, dy) = (Contiguous::of(&x), Contiguous::of(&weight), Contiguous::of(&dy));
        let nodes = ops.parents.each_ref().map(|node| node.as_ref().map(|node| node.id));
        let wanted = [nodes[0].is_some(), nodes[1].is_some()];
        let (dx, dw) = gradients_of(&x, &weight, &dy, &sizes, wanted);
        if let Some((node, dw)) = nodes[1].zip(dw) {
            let shape = [sizes.input.channels, sizes.output.channels];
            gradients.register::<Flex>(node, contiguous_tensor(dw, shape));
        }
        if let Some(Some(node)) = nodes.get(2) {
            let sums = norm::column_sums(&dy, sizes.output.channels);
            gradients.register::<Flex>(*node, vector(&sums));
        }
        if let Some((node, dx)) = nodes[0].zip(dx) {
            gradients.register::<Flex>(node, tokens(dx, sizes.input));
        }
    }
}

/// Adds the operation to the gradient graph.
pub(super) fn track_linear<C: CheckpointStrategy>(
    x: Tracked,
    weight: Tracked,
    bias: Option<Tracked>,
) -> Tracked {
    let y = linear(x.primitive(), weight.primitive(), bias.as_ref().map(Tracked::primitive));
    match bias {
        Some(bias) => {
            let nodes = [x.node(), weight.node(), bias.node()];
            match Linear::<3>.prepare::<C>(nodes).compute_bound().stateful() {
                OpsKind::Tracked(mut preparation) => {
                    let state = [preparation.checkpoint(&x), preparation.checkpoint(&weight)];
                    preparation.finish(state, y)
                }
                OpsKind::UnTracked(preparation) => preparation.finish(y),
            }
        }
        None => match Linear::<2>.prepare::<C>([x.node(), weight.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut preparation) => {
                let state = [preparation.checkpoint(&x), preparation.checkpoint(&weight)];
                preparation.finish(state, y)
            }
            OpsKind::UnTracked(preparation) => preparation.finish(y),
        },
    }
}
