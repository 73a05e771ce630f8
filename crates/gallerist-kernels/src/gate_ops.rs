//! The public functions of gates on the engine's tensors.

use burn::backend::Dispatch;
use burn::tensor::{Tensor, activation};

use crate::extension::KernelOps;
use crate::gate::Gate;
use crate::ops::{is_enabled, supported};

/// `x gate(x)` of every value: with [`Gate::Sigmoid`] SiLU (swish; Ramachandran et al. 2017), with [`Gate::HardSigmoid`]
/// hard-swish (Howard et al. 2019).
///
/// # Shapes
///
/// - x and result: `[batch, channels, height, width]`
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use gallerist_kernels::{Gate, swish};
///
/// let x = Tensor::<4>::from_floats([[[[-4.0, 0.0, 1.5, 4.0]]]], &Device::flex());
/// let y = swish(x, Gate::HardSigmoid).into_data().try_into_vec::<f32>().unwrap();
/// assert_eq!(y, [0.0, 0.0, 1.125, 4.0]);
/// ```
pub fn swish(x: Tensor<4>, gate: Gate) -> Tensor<4> {
    if is_enabled() && supported(&x) {
        return Tensor::from_dispatch(Dispatch::swish_kernel(x.into_dispatch(), gate));
    }
    x.clone() * gate.of(x)
}

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
    fn of(self, x: Tensor<4>) -> Tensor<4> {
        match self {
            Gate::Sigmoid => activation::sigmoid(x),
            Gate::HardSigmoid => x.mul_scalar(1.0 / 6.0).add_scalar(0.5).clamp(0.0, 1.0),
        }
    }
}
