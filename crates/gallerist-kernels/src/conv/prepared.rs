//! A convolution whose weight is packed once, with what follows it.

use super::correlate::{Ending, Place, Target, correlate};
use super::order::Order;
use super::pack::{Packed, Weights};
use super::source::Source;
use super::windows::Windows;
use super::winograd::{self, Transformed};
use crate::geometry::Geometry;
use crate::maps::Maps;
use crate::norm::Activation;
use crate::product::{Choice, MAX_PANEL, Precision, Products};
use crate::profile;

/// `activation(convolution + bias)`, or `activation(convolution + bias + other maps)`.
pub(crate) struct Prepared {
    weights: Weights,
    /// The same for Winograd's algorithm, for sizes at which it is faster.
    transformed: Option<Weights>,
    bias: Vec<f32>,
    activation: Activation,
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
        let Choice { precision, winograd: allowed } = products.choice(sizes.is_of_rows());
        let order = Order::of_forward(sizes);
        let transformed = (allowed && activation.gate().is_none() && winograd::fits(sizes))
            .then(|| Transformed::new(weight, &order));
        let transformed = transformed.map(Weights::Transformed);
        let weights = Weights::Packed(Packed::pack(weight, &order, precision));
        Self { weights, transformed, bias: padded(bias), activation }
    }

    /// Whether such a convolution reads copies of parts of its input, with a border of zeros.
    pub(crate) fn reads_copy(sizes: &Geometry) -> bool {
        !Windows::forward(sizes).inside()
    }

    /// Writes the result for `x`, plus `add`, maps of the result's channels and positions. A depthwise convolution adds
    /// nothing.
    pub(crate) fn run(&self, x: &Source<'_>, sizes: &Geometry, add: Option<&[f32]>, place: Place<'_>) {
        let _measured = profile::convolution("convolution", sizes, 1);
        let transformed = self.transformed.as_ref().filter(|_| winograd::pays_if_prepared(sizes));
        self.run_with(transformed.unwrap_or(&self.weights), x, sizes, add, place);
    }

    /// Whether it costs less to multiply the weight of such a convolution by a factor for each channel of its input than to
    /// multiply the input.
    pub(crate) fn scales_weight(sizes: &Geometry, products: Products) -> bool {
        let Geometry { input, output, .. } = sizes;
        sizes.is_pointwise()
            && input.height * input.width >= output.channels
            && products.choice(sizes.is_of_rows()).precision == Precision::F32
    }

    /// [`run`](Self::run) of one image whose channels are multiplied by `factors` first. The weight is multiplied instead:
    /// [`scales_weight`](Self::scales_weight).
    pub(crate) fn run_scaled(
        &self,
        x: &[f32],
        factors: &[f32],
        sizes: &Geometry,
        add: Option<&[f32]>,
        y: &mut [f32],
    ) {
        let _measured = profile::convolution("excitation and convolution", sizes, 1);
        let Weights::Packed(Packed::Panels(panels)) = &self.weights else {
            panic!("a convolution of all channels")
        };
        let weights = Weights::Packed(Packed::Panels(panels.times_factors(factors)));
        let place = Place { values: y, pitch: sizes.output.channels, channel: 0 };
        self.run_with(&weights, &Source::Values(x), sizes, add, place);
    }

    fn run_with(
        &self,
        weights: &Weights,
        x: &Source<'_>,
        sizes: &Geometry,
        add: Option<&[f32]>,
        place: Place<'_>,
    ) {
        let ending = Ending { bias: &self.bias, add, activation: self.activation };
        let Place { values, pitch, channel } = place;
        let target = Target {
            maps: Maps { channels: pitch, ..sizes.output },
            first: [0, 0],
            step: [1, 1],
            channels: channel..channel + sizes.output.channels,
        };
        let windows = Windows::forward(sizes);
        correlate::<()>(&windows, sizes.groups, x, weights, &target, values, false, Some(ending), None);
    }
}

/// A bias as products read it: with [`MAX_PANEL`] more values, which are not used.
pub(super) fn padded(bias: &[f32]) -> Vec<f32> {
    [bias, &[0.0; MAX_PANEL]].concat()
}
