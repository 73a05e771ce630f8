//! A convolution whose weight is packed once, with what follows it.

use super::correlate::{Ending, Place, Target, correlate};
use super::pack::Weights;
use super::source::Source;
use super::windows::Windows;
use super::winograd::Winograd;
use crate::geometry::Geometry;
use crate::maps::Maps;
use crate::norm::{Activation, Bounds};
use crate::prepared::Products;
use crate::product::{MAX_PANEL, Precision};
use crate::profile;

/// `activation(convolution + bias)`, or `activation(convolution + bias + other maps)`.
pub(crate) struct Prepared {
    weights: Weights,
    winograd: Option<Winograd>,
    bias: Vec<f32>,
    bounds: Bounds,
}

impl Prepared {
    /// Packs a contiguous weight `[channels out, channels in / groups, height, width]`. `sizes` are those of any number of
    /// images. Layers of rows, of a single position, are always computed in f32.
    pub(crate) fn new(
        weight: &[f32],
        bias: &[f32],
        sizes: &Geometry,
        activation: Activation,
        products: Products,
    ) -> Self {
        let mut bias = bias.to_vec();
        bias.resize(bias.len() + MAX_PANEL, 0.0);
        let is_row = sizes.output.height * sizes.output.width == 1;
        let precision = products.precision(is_row);
        let allowed = products != Products::F32Direct && precision == Precision::F32;
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
