//! A convolution whose weight is packed once, with what follows it.

use std::sync::atomic::{AtomicBool, Ordering};

use super::correlate::{Ending, Place, Target, correlate};
use super::pack::Weights;
use super::source::Source;
use super::windows::Windows;
use super::winograd::Winograd;
use crate::geometry::Geometry;
use crate::maps::Maps;
use crate::norm::{Activation, Bounds};
use crate::product::{MAX_PANEL, Precision};
use crate::profile;

static WINOGRAD: AtomicBool = AtomicBool::new(true);

/// Turns Winograd's algorithm for 3 x 3 convolutions on (the default) or off for the networks that this process prepares
/// from now on.
///
/// It takes a quarter of the multiplications. Its rounding errors are larger: below 5e-5 of the root mean square of a
/// convolution's results.
pub fn set_winograd(enabled: bool) {
    WINOGRAD.store(enabled, Ordering::Relaxed);
}

/// `activation(convolution + bias)`, or `activation(convolution + bias + other maps)`.
pub(crate) struct Prepared {
    weights: Weights,
    winograd: Option<Winograd>,
    bias: Vec<f32>,
    bounds: Bounds,
}

impl Prepared {
    /// Packs a contiguous weight `[channels out, channels in / groups, height, width]`. `sizes` are those of any number of
    /// images.
    pub(crate) fn new(weight: &[f32], bias: &[f32], sizes: &Geometry, activation: Activation) -> Self {
        let mut bias = bias.to_vec();
        bias.resize(bias.len() + MAX_PANEL, 0.0);
        let precision = Precision::current();
        let allowed = WINOGRAD.load(Ordering::Relaxed) && precision == Precision::F32;
        let winograd = if allowed { Winograd::new(weight, sizes) } else { None };
        let weights = Weights::of_forward(weight, sizes, precision);
        Self { weights, winograd, bias, bounds: activation.bounds() }
    }

    /// Writes the result for `x`, plus `add`, maps of the result's channels and positions. A depthwise convolution adds
    /// nothing.
    pub(crate) fn run(&self, x: &[f32], sizes: &Geometry, add: Option<&[f32]>, place: Place<'_>) {
        let _measured = profile::convolution("convolution", sizes, 1);
        let ending = Ending { bias: &self.bias, add, bounds: self.bounds };
        if let Some(winograd) = self.winograd.as_ref().filter(|winograd| winograd.suits(sizes)) {
            return winograd.run(x, sizes, &ending, place);
        }
        let Place { values, pitch, channel } = place;
        let target = Target {
            maps: Maps { channels: pitch, ..sizes.output },
            first: [0, 0],
            step: [1, 1],
            channels: channel..channel + sizes.output.channels,
        };
        let (windows, source) = (Windows::forward(sizes), Source::Values(x));
        correlate::<()>(
            &windows,
            sizes.groups,
            &source,
            &self.weights,
            &target,
            values,
            false,
            Some(ending),
            None,
        );
    }
}
