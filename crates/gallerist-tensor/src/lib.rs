//! Shared parts of the crates that use the tensor engine: devices ([`device`]), boxed modules ([`dynamic`]), parameters by name
//! ([`params`]), pairwise numerics ([`pairwise`]) and linear discriminant analysis ([`discriminant`]).
#![recursion_limit = "256"]

pub mod device;
pub mod discriminant;
pub mod dynamic;
mod error;
#[cfg(any(feature = "cuda", feature = "wgpu"))]
pub mod kernel_times;
pub mod pairwise;
pub mod params;

pub use burn;
pub use error::{Error, Result};
