//! Convolution and its two gradients, over values with the channels innermost.
//!
//! All three are one product ([`crate::product`]) that reads its left operand in place:
//!
//! * forward: a row is an output position, its terms are the window (taps x input channels), the right operand is the
//!   weight;
//! * input gradient: the same with output gradient and mirrored weight. A stride splits the input positions into
//!   `stride x stride` interleaved grids, each with taps of its own;
//! * weight gradient: a row is an element of the window, its terms are the output positions, the right operand is the
//!   output gradient.
//!
//! Where a window extends beyond the image, the kernels read a copy of a few images, or of some rows of one, with a
//! border of zeros. The copy fits the second-level cache.

mod both_gradients;
mod correlate;
mod forward;
mod input_gradient;
mod inverted_residual;
mod order;
mod pack;
mod prepared;
mod source;
mod weight_gradient;
mod windows;
mod winograd;

#[cfg(test)]
mod tests;

pub(crate) use both_gradients::both_gradients;
pub(crate) use correlate::{After, Place};
pub(crate) use forward::forward;
pub(crate) use input_gradient::input_gradient;
pub(crate) use inverted_residual::{InvertedResidual, Layer};
pub(crate) use prepared::Prepared;
pub(crate) use source::Source;
pub(crate) use weight_gradient::weight_gradient;
