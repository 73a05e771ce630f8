//! Networks that only embed: a list of layers that is prepared once and run many times on the CPU.
//!
//! [`Builder`] takes the layers in order. [`Builder::finish`] turns them into a [`Plan`]:
//!
//! 1. Batch norms and other factors per channel become part of the weights of the convolution before them. Activations,
//!    sums with a shortcut and the bias become the end of the convolution's product, which computes them in registers.
//! 2. A convolution whose only user joins channels writes its result where the joined maps are.
//! 3. The convolutions of an inverted residual block (expansion, depthwise, projection) are computed together, some rows at a time. With
//!    squeeze and excitation, its factors multiply the weight of the projection, where that costs less than to multiply the maps.
//! 4. The weights are packed in the order in which the products read them, for the wanted [`Products`](crate::Products). The weights of 3 x 3
//!    convolutions of stride 1 are also packed for Winograd's algorithm.
//!
//! [`Builder::finish_int8`] makes a plan whose maps between the convolutions are bytes, in [`Ranges`] that were measured on images
//! ([`Builder::measure`]).
//!
//! Results differ from those of the single layers by rounding only. Every value is `[height, width, channels]` for each
//! image: tokens are maps of one row, rows are maps of one position.
//!
//! # Example
//!
//! ```
//! use gallerist_kernels::prepared::{Builder, Convolution};
//! use gallerist_kernels::{Activation, Products};
//!
//! // 2 x the image, minus 1, at least 0; then the mean over all positions.
//! let (mut b, image) = Builder::new([1, 2, 2]);
//! let weight = (vec![2.0], [1, 1, 1, 1]);
//! let x = b.conv(image, Convolution { weight, bias: vec![-1.0], stride: 1, padding: [(0, 0); 2], groups: 1 });
//! let x = b.activation(x, Activation::Relu);
//! let mean = b.global_average(x);
//! let plan = b.finish(&[mean], Products::F32);
//! assert_eq!(plan.run(&[0.0, 1.0, 2.0, 3.0], 1, &[true]), [Some(vec![(0.0 + 1.0 + 3.0 + 5.0) / 4.0])]);
//! ```

mod blocks;
mod builder;
mod bytes;
mod equalize;
mod fuse;
mod layer;
mod measurement;
mod plan;
mod ranges;
mod step;

pub use builder::{Builder, Node};
pub use measurement::Measurement;
pub use plan::Plan;
pub use ranges::Ranges;
pub use step::Convolution;

#[cfg(test)]
mod tests;
