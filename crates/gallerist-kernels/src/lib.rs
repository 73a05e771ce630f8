//! CPU kernels for training, as extensions of the tensor engine.
//!
//! The engine's CPU backend computes the gradients of a convolution and batch normalisation in many
//! generic passes. The functions here compute the same values in few. They take and return the
//! engine's tensors and can be used in any module in place of the engine's functions.
//!
//! On tensors of another backend, of another type than `f32`, of sizes no kernel covers, or after
//! [`set_enabled`]`(false)` they call the engine's own operations.
//!
//! Results have the layout `[batch, channels, height, width]` with the channels next to each other
//! in memory; every operation of the engine accepts that, and the kernels run fastest on it.
//!
//! The values depend on the inputs and on whether the processor has fused multiply-add, not on the
//! number of threads nor on the width of the vector unit. Products of rounded factors ([`with_bf16_products`])
//! depend on the unit that computes them, too.

// All pointer arithmetic is in `simd`, `bf16`, `conv`, `depthwise`, `buffer` and `transpose`, whose unit tests run under
// Miri, except for the instructions of one processor (the modules `x86`):
//
//     MIRIFLAGS="-Zmiri-tree-borrows -Zmiri-ignore-leaks -Zmiri-disable-isolation" \
//         cargo +nightly miri test -p gallerist-kernels --lib
//
// (Tree Borrows because of rayon's epochs, leaks because of its threads.)

mod bf16;
mod buffer;
mod chain;
mod concat;
mod conv;
mod depthwise;
mod extension;
mod nhwc;
mod norm;
mod ops;
mod pool;
pub mod profile;
mod shared;
mod simd;
mod transpose;
mod update;
mod worker;

pub use bf16::{bf16_unit, with_bf16_products};
pub use buffer::release_memory;
pub use norm::Activation;
pub use ops::{
    ChainOutput, ConvNorm, Shortcut, Statistics, avg_pool2d, batch_norm, batch_norm_fixed,
    batch_norm_relu_max_pool2, concat_channels, conv_norm_chain, conv2d, global_average_pool, is_enabled,
    max_pool2d, set_enabled,
};
pub use update::{AdamW, Sgd, square_sum};
pub use worker::on_worker;
