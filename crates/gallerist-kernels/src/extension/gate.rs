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

pub(super) fn excite(x: &FlexTensor, by: &FlexTensor, gate: Gate) -> FlexTensor {
    let maps = Maps::of(x);
    tensor(gate::excite(&Values::of(x), &Values::of(by), maps, gate), maps)
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
