//! The kernels as operations of the tensor engine: their implementation for the CPU backend and their nodes in its
//! gradient graph. One file for each operation holds its forward pass and its backward node.

mod autodiff;
mod chain;
mod concat;
mod conv;
mod flex;
mod gate;
mod gradients;
mod linear;
mod norm;
mod operations;
mod pool;
mod tokens;
mod unit;

pub(crate) use operations::{KernelOps, MAX_LAYERS, MAX_PARTS, Tail, Tensors};
