//! Rows of length 1.

use std::sync::Arc;

use burn::backend::Flex;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;

use super::gradients::Tracked;
use crate::nhwc::{Contiguous, contiguous_tensor};
use crate::unit;

/// The rows of length 1, and the factor of each row.
pub(super) fn unit_rows(x: &FlexTensor) -> (FlexTensor, Vec<f32>) {
    let dims: [usize; 2] = x.layout().shape().dims();
    let (y, factors) = unit::forward(&Contiguous::of(x), dims[1]);
    (contiguous_tensor(y, dims), factors)
}

#[derive(Clone, Debug)]
pub(super) struct UnitState {
    y: FlexTensor,
    factors: Arc<Vec<f32>>,
}

#[derive(Debug)]
struct UnitRows;

impl Backward<Flex, 1> for UnitRows {
    type State = UnitState;

    fn backward(self, ops: Ops<UnitState, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let UnitState { y, factors } = ops.state;
        let dy = gradients.consume::<Flex>(&ops.node);
        let [x] = ops.parents;
        if let Some(x) = x {
            let dims: [usize; 2] = y.layout().shape().dims();
            let dx = unit::gradient(&Contiguous::of(&dy), &Contiguous::of(&y), &factors, dims[1]);
            gradients.register::<Flex>(x.id, contiguous_tensor(dx, dims));
        }
    }
}

/// Adds the operation to the gradient graph.
pub(super) fn track_unit_rows<C: CheckpointStrategy>(x: Tracked) -> Tracked {
    let (y, factors) = unit_rows(x.primitive());
    match UnitRows.prepare::<C>([x.node()]).compute_bound().stateful() {
        OpsKind::Tracked(preparation) => {
            preparation.finish(UnitState { y: y.clone(), factors: Arc::new(factors) }, y)
        }
        OpsKind::UnTracked(preparation) => preparation.finish(y),
    }
}
