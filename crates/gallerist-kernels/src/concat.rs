//! Concatenation of feature maps along the channels, and its gradients.

use rayon::prelude::*;

use crate::buffer::Buffer;
use crate::profile;

/// Pixels that a thread copies at a time.
const PIXELS: usize = 256;

/// The concatenation of all `parts` (values and number of channels of each).
pub(crate) fn forward(parts: &[(&[f32], usize)], pixels: usize) -> Buffer {
    let _measured = profile::scope("joining channels");
    let channels: usize = parts.iter().map(|(_, channels)| channels).sum();
    let mut y = Buffer::new(pixels * channels);
    y.par_chunks_mut(PIXELS * channels).enumerate().for_each(|(block, y)| {
        let mut at = 0;
        for (x, width) in parts {
            let x = x[block * PIXELS * width..].chunks_exact(*width);
            for (y, x) in y.chunks_exact_mut(channels).zip(x) {
                y[at..at + width].copy_from_slice(x);
            }
            at += width;
        }
    });
    y
}

/// The channels `from..from + width` of values with `channels` channels: the gradient of one part.
pub(crate) fn part(dy: &[f32], channels: usize, from: usize, width: usize) -> Buffer {
    let _measured = profile::scope("joining channels, gradient");
    let pixels = dy.len() / channels;
    let mut dx = Buffer::new(pixels * width);
    dx.par_chunks_mut(PIXELS * width).zip(dy.par_chunks(PIXELS * channels)).for_each(|(dx, dy)| {
        for (dx, dy) in dx.chunks_exact_mut(width).zip(dy.chunks_exact(channels)) {
            dx.copy_from_slice(&dy[from..from + width]);
        }
    });
    dx
}
