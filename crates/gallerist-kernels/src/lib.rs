//! Kernels for training, as extensions of the tensor engine: for the CPU, and with the feature `cuda` for NVIDIA GPUs.
//!
//! The engine's CPU backend computes convolutions, batch normalisation and their gradients in many generic passes over
//! memory. The functions here compute the same values in fewer passes. They take and return the engine's tensors; any
//! module can call them instead of the engine's functions.
//!
//! They call the engine's own operations for tensors of another backend, on the CPU also of another dtype than `f32`, for sizes
//! that no kernel supports, and after [`set_enabled`]`(false)`.
//!
//! Results of layers have the shape `[batch, channels, height, width]` with the channels innermost in memory (stride 1). Every
//! operation of the engine accepts these strides, and the kernels are fastest with them.
//!
//! The values depend on the inputs and on whether the CPU has fused multiply-add. They do not depend on the number of
//! threads or on the width of the vectors. bf16 products ([`with_products`]) also depend on the instructions that
//! compute them.

// Unsafe code is in `product`, `conv`, `depthwise`, `gate`, `quantized`, `prepared::bytes`, `disjoint`, `buffer` and `transpose`. Their unit tests run under Miri
// (`cargo xtask check miri`), except for the instructions of x86 CPUs (the modules `x86`). That of `cuda` calls NVIDIA's libraries; it runs
// on a GPU only (`bench/gpu.sh`).

mod buffer;
mod chain;
mod concat;
mod conv;
#[cfg(feature = "cuda")]
pub mod cuda;
mod depthwise;
mod disjoint;
mod extension;
mod gate;
mod gate_ops;
mod geometry;
mod gradient_sums;
mod maps;
mod math;
mod nhwc;
mod norm;
mod ops;
mod pool;
mod positions;
pub mod prepared;
mod product;
pub mod profile;
mod quantized;
mod shares;
mod token_ops;
mod tokens;
mod transpose;
mod unit;
mod update;
mod update_rules;
mod worker;

pub use buffer::release_memory;
pub use gate::Gate;
pub use gate_ops::excite;
pub use norm::Activation;
pub use ops::{
    ChainOutput, ConvNorm, Shortcut, Statistics, add_bias, avg_pool2d, batch_norm, batch_norm_fixed,
    batch_norm_relu_max_pool2, concat_channels, conv_norm_chain, conv2d, global_average_pool, is_enabled,
    matmul, max_pool2d, set_enabled, sums_in_f32, unit_rows,
};
pub use product::{Products, bf16_unit, with_products};
pub use quantized::int8_unit;
pub use token_ops::{gated_silu, gelu, layer_norm, linear_tokens, self_attention};
pub use tokens::{Gelu, Rotary};
pub use unit::{RowValue, project_row, scale_rows};
pub use update::{AdamW, Sgd, finite_mark, is_finite, square_sum};
pub use worker::on_worker;
