//! The public function of gates on the engine's tensors.

use burn::backend::Dispatch;
use burn::tensor::{Tensor, activation};

use crate::extension::KernelOps;
use crate::gate::Gate;
use crate::ops::{is_enabled, supported};

/// `x gate(by)`, where every channel of every image has a value of `by`: the second half of squeeze and excitation (Hu et
/// al. 2018).
///
/// # Shapes
///
/// - x and result: `[batch, channels, height, width]`
/// - by: `[batch, channels, 1, 1]`
///
/// # Panics
///
/// If the shapes do not fit together.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use gallerist_kernels::{Gate, excite};
///
/// let device = Device::flex();
/// let x = Tensor::<4>::from_floats([[[[1.0, 2.0]], [[3.0, 4.0]]]], &device);
/// let by = Tensor::<4>::from_floats([[[[0.0]], [[3.0]]]], &device);
/// let y = excite(x, by, Gate::HardSigmoid).into_data().try_into_vec::<f32>().unwrap();
/// assert_eq!(y, [0.5, 1.0, 3.0, 4.0]);
/// ```
pub fn excite(x: Tensor<4>, by: Tensor<4>, gate: Gate) -> Tensor<4> {
    let [n, channels, ..] = x.dims();
    assert_eq!(by.dims(), [n, channels, 1, 1], "values of the gates for {:?}", x.dims());
    if is_enabled() && supported(&x) && supported(&by) {
        return Tensor::from_dispatch(Dispatch::excite_kernel(x.into_dispatch(), by.into_dispatch(), gate));
    }
    x * gate.of(by)
}

impl Gate {
    /// Of every value, by the engine's operations.
    pub(crate) fn of<const D: usize>(self, x: Tensor<D>) -> Tensor<D> {
        match self {
            Gate::Sigmoid => activation::sigmoid(x),
            Gate::HardSigmoid => x.mul_scalar(1.0 / 6.0).add_scalar(0.5).clamp(0.0, 1.0),
        }
    }
}
