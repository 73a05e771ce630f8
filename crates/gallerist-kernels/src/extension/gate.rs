//! Gates of feature maps.

use burn::backend::Flex;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;

use super::gradients::{Tracked, add_maps};
use crate::gate::{self, Gate};
use crate::maps::Maps;
use crate::nhwc::{Values, tensor};

pub(super) fn swish(x: &FlexTensor, gate: Gate) -> FlexTensor {
    tensor(gate::swish(&Values::of(x), gate), Maps::of(x))
}

pub(super) fn excite(x: &FlexTensor, by: &FlexTensor, gate: Gate) -> FlexTensor {
    let maps = Maps::of(x);
    tensor(gate::excite(&Values::of(x), &Values::of(by), maps, gate), maps)
}

#[derive(Debug)]
struct Swish;

impl Backward<Flex, 1> for Swish {
    type State = (NodeId, Gate);

    fn backward(self, ops: Ops<Self::State, 1>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let dy = gradients.consume::<Flex>(&ops.node);
        let (x, gate) = ops.state;
        let x = checkpointer.retrieve_node_output::<FlexTensor>(x);
        let [parent] = ops.parents;
        if parent.is_some() {
            let dx = gate::swish_gradient(&Values::of(&x), &Values::of(&dy), gate);
            add_maps!(gradients, parent, Some(tensor(dx, Maps::of(&x))));
        }
    }
}

#[derive(Debug)]
struct Excite;

impl Backward<Flex, 2> for Excite {
    type State = (NodeId, NodeId, Gate);

    fn backward(self, ops: Ops<Self::State, 2>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let dy = gradients.consume::<Flex>(&ops.node);
        let (x, by, gate) = ops.state;
        let [x, by] = [x, by].map(|node| checkpointer.retrieve_node_output::<FlexTensor>(node));
        let [of_x, of_by] = [&x, &by].map(Maps::of);
        let [dx, dby] =
            gate::excite_gradient(&Values::of(&x), &Values::of(&by), &Values::of(&dy), of_x, gate);
        let [x_node, by_node] = ops.parents;
        add_maps!(gradients, x_node, Some(tensor(dx, of_x)));
        add_maps!(gradients, by_node, Some(tensor(dby, of_by)));
    }
}

/// Adds the operation to the gradient graph.
pub(super) fn track_swish<C: CheckpointStrategy>(x: Tracked, gate: Gate) -> Tracked {
    let y = swish(x.primitive(), gate);
    match Swish.prepare::<C>([x.node()]).compute_bound().stateful() {
        OpsKind::Tracked(mut preparation) => {
            let state = (preparation.checkpoint(&x), gate);
            preparation.finish(state, y)
        }
        OpsKind::UnTracked(preparation) => preparation.finish(y),
    }
}

/// Adds the operation to the gradient graph.
pub(super) fn track_excite<C: CheckpointStrategy>(x: Tracked, by: Tracked, gate: Gate) -> Tracked {
    let y = excite(x.primitive(), by.primitive(), gate);
    match Excite.prepare::<C>([x.node(), by.node()]).compute_bound().stateful() {
        OpsKind::Tracked(mut preparation) => {
            let state = (preparation.checkpoint(&x), preparation.checkpoint(&by), gate);
            preparation.finish(state, y)
        }
        OpsKind::UnTracked(preparation) => preparation.finish(y),
    }
}
