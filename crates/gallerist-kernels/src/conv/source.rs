//! The feature maps that a convolution or its gradients read.

use crate::buffer::with_scratch;
use crate::norm::{Activation, Affine, Linear, apply_rows, gradient_rows, scale_rows};
use crate::product::MAX_PANEL;
use crate::transpose::transpose_columns;

/// Feature maps as they are in memory, or as a function of maps that is computed for a tile when the tile is read, so
/// that its result is never written as a whole.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// The values themselves.
    Values(&'a [f32]),
    /// Images `[images, channels, area]`, whose channels are outermost.
    Images { x: &'a [f32], channels: usize, area: usize },
    /// `activation(affine(x))`.
    Activated { x: &'a [f32], affine: &'a Affine, activation: Activation },
    /// The gradient of `x` from the gradient `dy` of `activation(affine(x))`; `linear` is that of the affine map.
    Gradient { x: &'a [f32], dy: &'a [f32], linear: &'a Linear<'a>, activation: Activation },
    /// The same for fixed statistics, without activation.
    Scaled { dy: &'a [f32], affine: &'a Affine },
}

impl<'a> Source<'a> {
    pub(super) fn len(&self) -> usize {
        match self {
            Source::Values(x) | Source::Images { x, .. } | Source::Activated { x, .. } => x.len(),
            Source::Gradient { dy, .. } | Source::Scaled { dy, .. } => dy.len(),
        }
    }

    /// The elements from `first` on, if they are in memory.
    pub(super) fn values(&self, first: usize) -> Option<&'a [f32]> {
        match self {
            Source::Values(x) => Some(&x[first..]),
            _ => None,
        }
    }

    /// Writes positions of `channels` elements, from element `first` on, to `to`, where they are `pitch` elements apart.
    pub(super) fn copy_with_pitch(&self, first: usize, channels: usize, pitch: usize, to: &mut [f32]) {
        if pitch == channels {
            return self.copy(first, to);
        }
        for (position, to) in to.chunks_mut(pitch).enumerate() {
            self.copy(first + position * channels, &mut to[..channels]);
        }
    }

    /// Writes the elements from `first` on, whole positions, to `to`.
    fn copy(&self, first: usize, to: &mut [f32]) {
        let count = to.len();
        match *self {
            Source::Values(x) => to.copy_from_slice(&x[first..][..count]),
            Source::Images { x, channels, area } => copy_of_images(x, channels, area, first, to),
            Source::Activated { x, affine, activation } => {
                apply_rows(&x[first..][..count], affine, to, activation);
            }
            Source::Gradient { x, dy, linear, activation } => {
                gradient_rows(linear, &x[first..][..count], &dy[first..][..count], to, activation);
            }
            Source::Scaled { dy, affine } => scale_rows(affine, &dy[first..][..count], to),
        }
    }
}

/// Writes positions of images `[images, channels, area]`, with the channels innermost, from element `first` of these on.
fn copy_of_images(x: &[f32], channels: usize, area: usize, first: usize, mut to: &mut [f32]) {
    let mut position = first / channels;
    while !to.is_empty() {
        let (image, in_image) = (position / area, position % area);
        let count = (area - in_image).min(to.len() / channels);
        let (some, rest) = to.split_at_mut(count * channels);
        transpose_columns(&x[image * channels * area + in_image..], area, channels, count, some);
        (position, to) = (position + count, rest);
    }
}

/// The elements from one position of a copy to the next. Positions half a kilobyte or a multiple of it apart fall into
/// few sets of the first-level cache, and a column of them evicts itself.
pub(super) fn pitch(channels: usize) -> usize {
    if channels.is_multiple_of(128) { channels + 16 } else { channels }
}

/// Calls `work` with `positions` of `channels` elements of `source`, from element `first` on, and their pitch. They are
/// read in place or copied to scratch memory `slot`. At least [`MAX_PANEL`] more elements follow them.
pub(super) fn with_positions<R>(
    source: &Source<'_>,
    slot: usize,
    first: usize,
    [positions, channels]: [usize; 2],
    work: impl FnOnce(&[f32], usize) -> R,
) -> R {
    let pitch = pitch(channels);
    if let Some(values) = source.values(first)
        && pitch == channels
        && values.len() >= positions * channels + MAX_PANEL
    {
        return work(values, channels);
    }
    with_scratch(slot, positions * pitch + MAX_PANEL, |copy| {
        source.copy_with_pitch(first, channels, pitch, &mut copy[..positions * pitch]);
        work(copy, pitch)
    })
}
