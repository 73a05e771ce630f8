//! The layers that preparation does not change.

use rayon::prelude::*;

use super::step::Fixed;
use crate::buffer::Buffer;
use crate::gate::swish_in_place;
use crate::maps::Maps;
use crate::norm::Activation;
use crate::pool::{self, Means, Windows};
use crate::tokens::{attention, gated, gelu, layer_norm};
use crate::transpose::transpose;
use gallerist_util::vectorized;

/// Elements of a task.
const PART: usize = 16 * 1024;

impl Fixed {
    /// The sizes of the result.
    ///
    /// # Panics
    ///
    /// If the layer does not fit its input.
    pub(super) fn output(&self, x: Maps) -> Maps {
        let row = |channels: usize| Maps { height: 1, width: 1, channels, ..x };
        match self {
            Fixed::MaxPool(options) => {
                Windows::of_max(x, options).unwrap_or_else(|| panic!("no window fits {x:?}")).output
            }
            Fixed::AveragePool(options) => {
                Means::new(x, options).unwrap_or_else(|| panic!("no window fits {x:?}")).output
            }
            Fixed::GlobalAverage | Fixed::GlobalMax | Fixed::Gem { .. } | Fixed::FirstToken => {
                row(x.channels)
            }
            Fixed::MeanOfTokens { after } => {
                assert!(*after < x.width, "{after} tokens before the others of {x:?}");
                row(x.channels)
            }
            Fixed::Flatten => row(x.height * x.width * x.channels),
            Fixed::Tokens { prefix, positions } => {
                assert_eq!(positions.len(), x.height * x.width * x.channels, "positions for {x:?}");
                assert!(prefix.len().is_multiple_of(x.channels), "tokens before the others of {x:?}");
                Maps { height: 1, width: prefix.len() / x.channels + x.height * x.width, ..x }
            }
            Fixed::LayerNorm { weight, bias, .. } => {
                assert_eq!([weight.len(), bias.len()], [x.channels; 2], "layer norm of {x:?}");
                x
            }
            Fixed::Attention { heads, .. } => {
                assert!(*heads > 0 && x.channels.is_multiple_of(3 * heads), "{heads} heads of {x:?}");
                Maps { channels: x.channels / 3, ..x }
            }
            Fixed::Gelu(_) => x,
            Fixed::GatedSilu => {
                assert!(x.channels.is_multiple_of(2), "two halves of {x:?}");
                Maps { channels: x.channels / 2, ..x }
            }
        }
    }

    /// The result for `x` of these sizes.
    pub(super) fn run(&self, x: &[f32], maps: Maps) -> Buffer {
        let area = maps.height * maps.width;
        let [image, channels] = [area * maps.channels, maps.channels];
        match self {
            Fixed::MaxPool(options) => {
                pool::max_only(x, &Windows::of_max(maps, options).expect("the sizes were checked"))
            }
            Fixed::AveragePool(options) => {
                pool::window_mean_forward(x, &Means::new(maps, options).expect("the sizes were checked"))
            }
            Fixed::GlobalAverage => pool::mean_forward(x, maps),
            Fixed::GlobalMax => of_images(x, image, channels, |x, y| {
                y.fill(f32::NEG_INFINITY);
                largest(x, y);
            }),
            Fixed::Gem { p, least } => of_images(x, image, channels, |x, y| gem(x, *p, *least, y)),
            Fixed::Flatten => of_images(x, image, image, |x, y| transpose(x, area, channels, y)),
            Fixed::Tokens { prefix, positions } => of_images(x, image, prefix.len() + image, |x, y| {
                y[..prefix.len()].copy_from_slice(prefix);
                sum(x, positions, &mut y[prefix.len()..]);
            }),
            Fixed::LayerNorm { weight, bias, epsilon } => layer_norm::forward(x, weight, bias, *epsilon),
            Fixed::Attention { heads, rotary } => {
                let sizes = attention::Sizes {
                    images: maps.images,
                    tokens: area,
                    heads: *heads,
                    channels: channels / (3 * heads),
                };
                attention::forward(x, sizes, rotary.as_deref())
            }
            Fixed::Gelu(kind) => gelu::forward(x, *kind),
            Fixed::GatedSilu => gated::forward(x, channels / 2),
            Fixed::FirstToken => of_images(x, image, channels, |x, y| y.copy_from_slice(&x[..channels])),
            Fixed::MeanOfTokens { after } => {
                of_images(x, image, channels, |x, y| pool::mean_image(&x[after * channels..], y))
            }
        }
    }
}

/// A buffer of `to` elements for each image, from `from` elements each.
fn of_images(x: &[f32], from: usize, to: usize, work: impl Fn(&[f32], &mut [f32]) + Sync) -> Buffer {
    let mut y = Buffer::new(x.len() / from * to);
    y.par_chunks_mut(to).zip(x.par_chunks(from)).for_each(|(y, x)| work(x, y));
    y
}

/// The sum of two results.
pub(super) fn add(x: &[f32], y: &[f32]) -> Buffer {
    let mut z = Buffer::new(x.len());
    z.par_chunks_mut(PART)
        .zip(x.par_chunks(PART).zip(y.par_chunks(PART)))
        .for_each(|(z, (x, y))| sum(x, y, z));
    z
}

/// The activation of every value.
pub(super) fn activated(x: &[f32], channels: usize, activation: Activation) -> Buffer {
    let Some(gate) = activation.gate() else {
        let bounds = activation.bounds();
        return by_channel(x, channels, |x, _| bounds.value(x));
    };
    let mut y = Buffer::new(x.len());
    y.par_chunks_mut(PART).zip(x.par_chunks(PART)).for_each(|(y, x)| {
        y.copy_from_slice(x);
        swish_in_place(y, gate);
    });
    y
}

/// `f` of every value and its channel.
pub(super) fn by_channel(x: &[f32], channels: usize, f: impl Fn(f32, usize) -> f32 + Sync) -> Buffer {
    let mut y = Buffer::new(x.len());
    y.par_chunks_mut(channels).zip(x.par_chunks(channels)).with_min_len(64).for_each(|(y, x)| {
        for (channel, (y, x)) in y.iter_mut().zip(x).enumerate() {
            *y = f(*x, channel);
        }
    });
    y
}

vectorized! {
    fn sum<'a>(x: &'a [f32], y: &'a [f32], z: &'a mut [f32]) -> () {
        for (z, (x, y)) in z.iter_mut().zip(x.iter().zip(y)) {
            *z = x + y;
        }
    }
}

vectorized! {
    /// The largest value of every channel and of `y`; NaN wins over all numbers.
    fn largest<'a>(x: &'a [f32], y: &'a mut [f32]) -> () {
        for x in x.chunks_exact(y.len()) {
            for (y, x) in y.iter_mut().zip(x) {
                *y = if *x > *y || x.is_nan() { *x } else { *y };
            }
        }
    }
}

/// The generalised mean of every channel: the powers are divided by the largest one, so that none overflows or underflows.
fn gem(x: &[f32], p: f32, least: f32, y: &mut [f32]) {
    let (channels, count) = (y.len(), (x.len() / y.len()) as f32);
    for (channel, y) in y.iter_mut().enumerate() {
        let scaled = |x: f32| {
            let x = if x < least { least } else { x };
            x.ln() * p
        };
        let values = || x[channel..].iter().step_by(channels).map(|&x| scaled(x));
        let largest = values().fold(f32::NEG_INFINITY, f32::max);
        let mean = values().map(|x| (x - largest).exp()).sum::<f32>() / count;
        *y = ((mean.ln() + largest) / p).exp();
    }
}
