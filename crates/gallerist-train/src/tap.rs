//! An operation of the engine that gives a parameter's gradient to another thread as soon as the backward pass has it.

use std::sync::mpsc::Sender;

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::tensor::Tensor;

/// What the thread gets.
#[derive(Debug)]
pub(super) enum Given {
    /// The gradient of the parameter at this place, row by row.
    Gradient(usize, Vec<f32>),
    /// The backward pass has ended.
    End,
}

/// The place of a parameter, and where its gradient goes.
#[allow(unreachable_pub, reason = "the macro implements the trait for the engine's dispatch")]
#[derive(Clone, Debug)]
pub struct Tap {
    place: usize,
    to: Sender<Given>,
}

/// The operation; [`tap`] is its door.
#[allow(unreachable_pub, reason = "the macro implements the trait for the engine's dispatch")]
#[backend_extension(Autodiff, Flex)]
pub trait TapGradient: Backend {
    /// `x`, whose gradient is also sent to the tap.
    fn tap_gradient(x: FloatTensor<Self>, tap: Tap) -> FloatTensor<Self>;
}

impl TapGradient for Flex {
    fn tap_gradient(x: FlexTensor, _: Tap) -> FlexTensor {
        x
    }
}

#[derive(Debug)]
struct Tapped;

impl Backward<Flex, 1> for Tapped {
    type State = Tap;

    fn backward(self, ops: Ops<Tap, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<Flex>(&ops.node);
        let Tap { place, to } = ops.state;
        let contiguous = gradient.to_contiguous();
        let values = contiguous.as_slice::<f32>().expect("gradients are f32, and this one is contiguous");
        // Whoever does not listen any more needs no gradient.
        let _ = to.send(Given::Gradient(place, values.to_vec()));
        let [x] = ops.parents;
        if let Some(x) = x {
            gradients.register::<Flex>(x.id, gradient);
        }
    }
}

type Tracked = FloatTensor<Autodiff<Flex>>;

impl<C: CheckpointStrategy> TapGradient for Autodiff<Flex, C> {
    fn tap_gradient(x: Tracked, tap: Tap) -> Tracked {
        match Tapped.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(preparation) => preparation.finish(tap, x.into_primitive()),
            OpsKind::UnTracked(preparation) => preparation.finish(x.into_primitive()),
        }
    }
}

/// `x`, whose gradient is also sent to `to`, with `place`.
pub(super) fn tap<const D: usize>(x: Tensor<D>, place: usize, to: Sender<Given>) -> Tensor<D> {
    Tensor::from_dispatch(Dispatch::tap_gradient(x.into_dispatch(), Tap { place, to }))
}
