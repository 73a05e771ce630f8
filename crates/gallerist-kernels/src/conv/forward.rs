//! The forward pass.

use super::correlate::{After, Ending, Target, correlate};
use super::order::Order;
use super::pack::Weights;
use super::prepared::padded;
use super::source::Source;
use super::windows::Windows;
use crate::buffer::Buffer;
use crate::geometry::Geometry;
use crate::norm::Activation;
use crate::profile;

/// The convolution `y[n, o, i, j] = sum over taps and channels of x * weight (+ bias[o])`, and the results of `after` for
/// its parts.
///
/// `weight` is a contiguous `[channels out, channels in / groups, height, width]`; `x` and the result have the channels
/// innermost.
pub(crate) fn forward<T: Send>(
    x: &Source<'_>,
    weight: &[f32],
    bias: Option<&[f32]>,
    sizes: &Geometry,
    after: Option<After<'_, T>>,
) -> (Buffer, Vec<T>) {
    let _measured = profile::convolution("convolution", sizes, 1);
    let weights = Weights::of_step(weight, &Order::of_forward(sizes), sizes);
    let mut y = Buffer::new(sizes.output.len());
    let target =
        Target { maps: sizes.output, first: [0, 0], step: [1, 1], channels: 0..sizes.output.channels };
    let windows = Windows::forward(sizes);
    let bias = bias.map(padded);
    let ending = bias.as_deref().map(|bias| Ending { bias, add: None, activation: Activation::None });
    let parts = correlate(&windows, sizes.groups, x, &weights, &target, &mut y, false, ending, after);
    (y, parts)
}
