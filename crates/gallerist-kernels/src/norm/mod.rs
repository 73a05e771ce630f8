//! Batch normalisation, alone or with what usually follows it, over values with the channels innermost.
//!
//! Sums over the batch are accumulated in blocks of 64 positions in `f32` and joined in `f64`, in an order that depends on
//! the sizes alone.

mod activation;
mod affine;
mod blocks;
mod forward;
mod gradient;
mod pool;
mod statistics;

pub use activation::Activation;
pub(crate) use activation::{Bounds, Function, InRegisters, Swish};
pub(crate) use affine::Affine;
pub(crate) use blocks::column_sums;
pub(crate) use forward::{apply, apply_rows};
pub(crate) use gradient::{
    GradientSums, Linear, add, gradient_rows, gradient_sums, input_gradient, mask_and_sum_rows,
    mask_by_result, mask_rows, scale_rows, sum_rows,
};
pub(crate) use pool::{Winners, pool_forward, pool_gradient_sums, pool_input_gradient, pooled};
pub(crate) use statistics::{Deviations, Moments, deviations, moments};
