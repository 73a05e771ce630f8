//! Channels of similar size, so that one scale fits all of them: cross-layer equalization (Nagel et al. 2019, section 4.1).
//!
//! A convolution whose result goes through a ReLU into another convolution may have each of its channels divided by a factor if
//! the weights of the other one are multiplied by it.

use super::ranges::LayerValues;
use super::step::{Layer, Step};
use crate::norm::Activation;

/// The least factor: what images show that were not measured still fits.
const LEAST: f32 = 1.0 / 64.0;

/// Equalizes the channels between step `first` and the convolution `second`, its only user.
pub(super) fn equalize(steps: &mut [Step], values: &mut [LayerValues], first: usize, second: usize) {
    let LayerValues { range: [_, high], highs, means } = &mut values[first];
    let (before, after) = steps.split_at_mut(second);
    let (Layer::Conv(producer, then), Layer::Conv(user, _)) = (&mut before[first].layer, &mut after[0].layer)
    else {
        return;
    };
    if *then == Activation::None || then.gate().is_some() || *high <= 0.0 || before[first].inputs.len() > 1 {
        return;
    }
    let channels = highs.len();
    let is_depthwise = user.groups > 1;
    let (weight, [.., height, width]) = &mut user.weight;
    // A weight belongs to an input channel: the output channel's own one if the convolution is depthwise.
    let area = *height * *width;
    let channel_of = |i: usize| i / area % channels;
    // The largest weight of each channel.
    let mut weights = vec![0f32; channels];
    for (i, weight) in weight.iter().enumerate() {
        let largest = &mut weights[channel_of(i)];
        *largest = largest.max(weight.abs());
    }
    let largest = weights.iter().copied().fold(f32::MIN_POSITIVE, f32::max);
    let factor = |channel: usize| {
        let part = (highs[channel] / *high).clamp(LEAST, 1.0);
        // Weights that are multiplied with each other's channels have one scale: it is shared between both.
        let shared = (part / (weights[channel] / largest).max(LEAST)).sqrt();
        if is_depthwise { part } else { shared.clamp(part, 1.0) }
    };
    let factors: Vec<f32> = (0..channels).map(factor).collect();

    let per_output = producer.weight.0.len() / channels;
    for (channel, weight) in producer.weight.0.chunks_exact_mut(per_output).enumerate() {
        weight.iter_mut().for_each(|weight| *weight /= factors[channel]);
        producer.bias[channel] /= factors[channel];
        means[channel] /= factors[channel];
    }
    // No channel has a bound at 6 any more; the bytes end at the largest value.
    *then = Activation::Relu;
    for (i, weight) in weight.iter_mut().enumerate() {
        *weight *= factors[channel_of(i)];
    }
}
