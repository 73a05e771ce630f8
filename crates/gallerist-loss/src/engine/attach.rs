//! An operation of the engine whose gradient is known already.

use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Dispatch, Flex, backend_extension};
use burn::tensor::{Tensor, TensorData};

/// The operation; [`attach`] is its door.
#[allow(unreachable_pub, reason = "the macro implements the trait for the engine's dispatch")]
#[backend_extension(Autodiff, Flex)]
pub trait AttachGradient: Backend {
    /// `value`, with `gradient` as its derivative with respect to `x`.
    fn attach_gradient(
        x: FloatTensor<Self>,
        value: FloatTensor<Self>,
        gradient: FloatTensor<Self>,
    ) -> FloatTensor<Self>;
}

impl AttachGradient for Flex {
    fn attach_gradient(_: FlexTensor, value: FlexTensor, _: FlexTensor) -> FlexTensor {
        value
    }
}

#[derive(Debug)]
struct Attached;

impl Backward<Flex, 1> for Attached {
    type State = FlexTensor;

    fn backward(self, ops: Ops<FlexTensor, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let outer = gradients.consume::<Flex>(&ops.node);
        let outer = outer.as_slice::<f32>().expect("the gradient of one number is contiguous")[0];
        let [x] = ops.parents;
        if let Some(x) = x {
            let mut gradient = ops.state;
            if outer != 1.0 {
                // Copied first if the graph holds it twice.
                gradient.storage_mut::<f32>().iter_mut().for_each(|value| *value *= outer);
            }
            gradients.register::<Flex>(x.id, gradient);
        }
    }
}

type Tracked = FloatTensor<Autodiff<Flex>>;

impl<C: CheckpointStrategy> AttachGradient for Autodiff<Flex, C> {
    fn attach_gradient(x: Tracked, value: Tracked, gradient: Tracked) -> Tracked {
        let value = value.into_primitive();
        match Attached.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(preparation) => preparation.finish(gradient.into_primitive(), value),
            OpsKind::UnTracked(preparation) => preparation.finish(value),
        }
    }
}

/// `[1]` holding `value`, whose derivative with respect to `x` is `gradient` (row by row, as many
/// values as `x`).
pub(super) fn attach(x: Tensor<2>, value: f64, gradient: Vec<f32>) -> Tensor<1> {
    let dims = x.dims();
    assert_eq!(gradient.len(), dims[0] * dims[1], "{} values of gradient for {dims:?}", gradient.len());
    let device = x.device();
    let value = Tensor::<1>::from_floats([value as f32], &device);
    let gradient = Tensor::<2>::from_data(TensorData::new(gradient, dims), &device);
    Tensor::from_dispatch(Dispatch::attach_gradient(
        x.into_dispatch(),
        value.into_dispatch(),
        gradient.into_dispatch(),
    ))
}
