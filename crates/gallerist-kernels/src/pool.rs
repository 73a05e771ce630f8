//! Pooling over values with the channels innermost.

use std::ops::Range;

use burn::tensor::ops::{AvgPoolOptions, MaxPoolOptions};
use rayon::prelude::*;

use crate::buffer::Buffer;
use crate::maps::Maps;
use crate::profile;
use gallerist_util::vectorized;

/// Channels that are summed in registers.
const BLOCK: usize = 64;

/// Sizes of a pooling over windows.
#[derive(Clone, Debug)]
pub(crate) struct Windows {
    pub(crate) input: Maps,
    pub(crate) output: Maps,
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [(usize, usize); 2],
}

impl Windows {
    /// `None` if the kernels do not support the sizes (windows of more than 254 elements, padding of more
    /// than half a window) or the result is empty.
    fn new(
        input: Maps,
        kernel: [usize; 2],
        stride: [usize; 2],
        padding: [(usize, usize); 2],
        ceil: bool,
    ) -> Option<Self> {
        let covered = kernel[0] * kernel[1] < usize::from(u8::MAX)
            && (0..2).all(|axis| padding[axis].0.max(padding[axis].1) <= kernel[axis] / 2);
        let [height, width] = [0, 1].map(|axis| {
            let (before, after) = padding[axis];
            let size = [input.height, input.width][axis] + before + after;
            let room = size.checked_sub(kernel[axis])?;
            if !ceil {
                return Some(room / stride[axis] + 1);
            }
            // A window that starts after the end of the map is left out.
            let last = room.div_ceil(stride[axis]);
            let outside = last * stride[axis] >= size - after;
            Some(last + 1 - usize::from(outside))
        });
        let output = Maps { height: height?, width: width?, ..input };
        (covered && output.len() > 0).then_some(Self { input, output, kernel, stride, padding })
    }

    /// `None` if the kernels do not support the options: as [`Windows::new`], or dilation.
    pub(crate) fn of_max(input: Maps, options: &MaxPoolOptions<2>) -> Option<Self> {
        let MaxPoolOptions { kernel_size, stride, padding, dilation, ceil_mode } = *options;
        (dilation == [1, 1]).then(|| Self::new(input, kernel_size, stride, padding, ceil_mode))?
    }

    /// Elements of an image of the input and of the output.
    fn image(&self) -> [usize; 2] {
        [self.input, self.output].map(|maps| maps.height * maps.width * maps.channels)
    }

    /// For each row (axis 0) and column (1) of the result: the rows or columns of the input in its window, and 1.
    pub(crate) fn axes(&self) -> [Vec<(Range<usize>, f32)>; 2] {
        let sizes = [(self.input.height, self.output.height), (self.input.width, self.output.width)];
        [0, 1].map(|axis| {
            let (size, count) = sizes[axis];
            let inside = |i: usize| {
                let first = i * self.stride[axis];
                let clamp = |at: usize| at.saturating_sub(self.padding[axis].0).min(size);
                (clamp(first)..clamp(first + self.kernel[axis]), 1.0)
            };
            (0..count).map(inside).collect()
        })
    }

    /// The windows of an axis that contain row (axis 0) or column (1) `i` of the input.
    fn containing(&self, axis: usize, i: usize) -> Range<usize> {
        let at = i + self.padding[axis].0;
        let count = [self.output.height, self.output.width][axis];
        let first = (at + 1).saturating_sub(self.kernel[axis]).div_ceil(self.stride[axis]);
        let end = (at / self.stride[axis] + 1).min(count);
        first.min(end)..end
    }

    /// Calls `visit(tap, offset)` for the elements inside the image of the window of position
    /// `(i, j)`, where `offset` is that of the element's first channel.
    #[inline(always)]
    fn for_each_tap(&self, i: usize, j: usize, mut visit: impl FnMut(u8, usize)) {
        for a in 0..self.kernel[0] {
            let Some(row) = (i * self.stride[0] + a).checked_sub(self.padding[0].0) else {
                continue;
            };
            if row >= self.input.height {
                break;
            }
            for b in 0..self.kernel[1] {
                let Some(column) = (j * self.stride[1] + b).checked_sub(self.padding[1].0) else {
                    continue;
                };
                if column >= self.input.width {
                    break;
                }
                let tap = (a * self.kernel[1] + b) as u8;
                visit(tap, (row * self.input.width + column) * self.input.channels);
            }
        }
    }
}

/// The maximum over every window, and its place in the window (`row * kernel width + column`).
/// Of equal values the first wins; the last NaN wins over all numbers.
pub(crate) fn max_forward(x: &[f32], windows: &Windows) -> (Buffer, Vec<u8>) {
    let _measured = profile::scope("max pooling");
    let [input, output] = windows.image();
    let mut y = Buffer::new(windows.output.len());
    let mut place = vec![0u8; windows.output.len()];
    y.par_chunks_mut(output)
        .zip(place.par_chunks_mut(output))
        .zip(x.par_chunks(input))
        .for_each(|((y, place), x)| max_image(x, windows, y, place));
    (y, place)
}

vectorized! {
    fn max_image<'a>(
        x: &'a [f32],
        windows: &'a Windows,
        y: &'a mut [f32],
        place: &'a mut [u8],
    ) -> () {
        let channels = windows.input.channels;
        let pixels = y.chunks_exact_mut(channels).zip(place.chunks_exact_mut(channels));
        for (pixel, (y, place)) in pixels.enumerate() {
            let (i, j) = (pixel / windows.output.width, pixel % windows.output.width);
            let mut first = true;
            windows.for_each_tap(i, j, |tap, offset| {
                let x = &x[offset..][..channels];
                if first {
                    y.copy_from_slice(x);
                    place.fill(tap);
                    first = false;
                } else {
                    take_larger(x, tap, y, place);
                }
            });
        }
    }
}

/// The maximum over every window alone.
pub(crate) fn max_only(x: &[f32], windows: &Windows) -> Buffer {
    let _measured = profile::scope("max pooling");
    let [image, _] = windows.image();
    let Maps { height, width, channels, .. } = windows.output;
    let mut y = Buffer::new(windows.output.len());
    y.par_chunks_mut(width * channels)
        .enumerate()
        .for_each(|(row, y)| max_row(&x[row / height * image..][..image], windows, row % height, y));
    y
}

vectorized! {
    fn max_row<'a>(x: &'a [f32], windows: &'a Windows, row: usize, y: &'a mut [f32]) -> () {
        let channels = windows.input.channels;
        for (column, y) in y.chunks_exact_mut(channels).enumerate() {
            let mut first = true;
            windows.for_each_tap(row, column, |_, offset| {
                let x = &x[offset..][..channels];
                if first {
                    y.copy_from_slice(x);
                    first = false;
                } else {
                    larger(x, y);
                }
            });
        }
    }
}

#[inline(always)]
fn larger(x: &[f32], y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = if *x > *y || x.is_nan() { *x } else { *y };
    }
}

#[inline(always)]
fn take_larger(x: &[f32], tap: u8, y: &mut [f32], place: &mut [u8]) {
    let channels = y.len();
    let (x, place) = (&x[..channels], &mut place[..channels]);
    for c in 0..channels {
        let wins = x[c] > y[c] || x[c].is_nan();
        y[c] = if wins { x[c] } else { y[c] };
        place[c] = if wins { tap } else { place[c] };
    }
}

/// The gradient of the input of [`max_forward`].
pub(crate) fn max_gradient(dy: &[f32], place: &[u8], windows: &Windows) -> Buffer {
    let _measured = profile::scope("max pooling, gradient");
    let [_, output] = windows.image();
    let Maps { height, width, channels, .. } = windows.input;
    let mut dx = Buffer::new(windows.input.len());
    dx.par_chunks_mut(width * channels).enumerate().for_each(|(row, dx)| {
        let image = row / height * output;
        let (dy, place) = (&dy[image..][..output], &place[image..][..output]);
        max_gradient_row(dy, place, windows, row % height, dx);
    });
    dx
}

vectorized! {
    /// Every position of a row asks the windows that see it whether it was their maximum.
    fn max_gradient_row<'a>(
        dy: &'a [f32],
        place: &'a [u8],
        windows: &'a Windows,
        row: usize,
        dx: &'a mut [f32],
    ) -> () {
        let channels = windows.input.channels;
        let rows = windows.containing(0, row);
        for (column, dx) in dx.chunks_exact_mut(channels).enumerate() {
            let columns = windows.containing(1, column);
            in_blocks(dx, |at, dx| {
                for i in rows.clone() {
                    for j in columns.clone() {
                        let a = row + windows.padding[0].0 - i * windows.stride[0];
                        let b = column + windows.padding[1].0 - j * windows.stride[1];
                        let tap = (a * windows.kernel[1] + b) as u8;
                        let offset = (i * windows.output.width + j) * channels + at;
                        add_where(&dy[offset..][..dx.len()], &place[offset..][..dx.len()], tap, dx);
                    }
                }
            });
        }
    }
}

/// Calls `add(first channel, sums)` with sums that begin at 0 for the channels of `y`, a block at a time; those
/// of whole blocks stay in registers.
#[inline(always)]
fn in_blocks(y: &mut [f32], add: impl Fn(usize, &mut [f32])) {
    let mut at = 0;
    for y in y.chunks_mut(BLOCK) {
        match <&mut [f32; BLOCK]>::try_from(&mut *y) {
            Ok(y) => {
                let mut sums = [0.0; BLOCK];
                add(at, &mut sums);
                *y = sums;
            }
            Err(_) => {
                y.fill(0.0);
                add(at, y);
            }
        }
        at += BLOCK;
    }
}

#[inline(always)]
fn add_where(dy: &[f32], place: &[u8], tap: u8, dx: &mut [f32]) {
    let channels = dx.len();
    let (dy, place) = (&dy[..channels], &place[..channels]);
    for c in 0..channels {
        dx[c] += if place[c] == tap { dy[c] } else { 0.0 };
    }
}

/// A mean over windows: a weighted sum along the rows of weighted sums along the columns.
#[derive(Clone, Debug)]
pub(crate) struct Means {
    pub(crate) input: Maps,
    pub(crate) output: Maps,
    /// Of every position of the output, along the rows and along the columns.
    forward: [Vec<Taps>; 2],
    /// Of every position of the input: the same weights, transposed.
    gradient: [Vec<Taps>; 2],
}

/// Positions one after the other along an axis, and their weights.
#[derive(Clone, Debug, Default)]
struct Taps {
    from: usize,
    weights: Vec<f32>,
}

impl Means {
    /// None if the kernels do not cover the options, as [`Windows::new`] says.
    pub(crate) fn new(input: Maps, options: &AvgPoolOptions<2>) -> Option<Self> {
        let AvgPoolOptions { kernel_size, stride, padding, count_include_pad, ceil_mode } = *options;
        let windows = Windows::new(input, kernel_size, stride, padding, ceil_mode)?;
        let output = windows.output;
        let sizes = [(input.height, output.height), (input.width, output.width)];
        let forward = [0, 1].map(|axis| {
            let (before, after) = padding[axis];
            let (size, count) = sizes[axis];
            let taps = |i: usize| {
                let (from, to) = (i * stride[axis], i * stride[axis] + kernel_size[axis]);
                let seen = from.max(before).min(before + size)..to.clamp(before, before + size);
                let counted = match count_include_pad {
                    // What sticks out of the padding, too, counts for nothing.
                    true => to.min(before + size + after) - from,
                    false => seen.len().max(1),
                };
                Taps { from: seen.start - before, weights: vec![1.0 / counted as f32; seen.len()] }
            };
            (0..count).map(taps).collect::<Vec<_>>()
        });
        let gradient = [0, 1].map(|axis| transposed(&forward[axis], sizes[axis].0));
        Some(Self { input, output, forward, gradient })
    }

    /// For each row (axis 0) and column (1) of the result: the rows or columns of the input in its window, and the factor of
    /// their sum.
    pub(crate) fn axes(&self) -> [Vec<(Range<usize>, f32)>; 2] {
        let of_taps = |taps: &Taps| {
            let factor = taps.weights.first().copied().unwrap_or(0.0);
            (taps.from..taps.from + taps.weights.len(), factor)
        };
        [0, 1].map(|axis| self.forward[axis].iter().map(of_taps).collect())
    }
}

/// For each of `count` positions that `taps` see, who sees it: a run, as windows are in order.
fn transposed(taps: &[Taps], count: usize) -> Vec<Taps> {
    let mut seen_by = vec![Taps::default(); count];
    for (i, Taps { from, weights }) in taps.iter().enumerate() {
        for (seen, weight) in seen_by[*from..].iter_mut().zip(weights) {
            if seen.weights.is_empty() {
                seen.from = i;
            }
            seen.weights.push(*weight);
        }
    }
    seen_by
}

/// The mean over every window.
pub(crate) fn window_mean_forward(x: &[f32], means: &Means) -> Buffer {
    let _measured = profile::scope("average pooling");
    weighted_sums(x, means.input, means.output, &means.forward)
}

/// The gradient of the input of [`window_mean_forward`].
pub(crate) fn window_mean_gradient(dy: &[f32], means: &Means) -> Buffer {
    let _measured = profile::scope("average pooling, gradient");
    weighted_sums(dy, means.output, means.input, &means.gradient)
}

fn weighted_sums(x: &[f32], input: Maps, output: Maps, [rows, columns]: &[Vec<Taps>; 2]) -> Buffer {
    let image = input.height * input.width * input.channels;
    let mut y = Buffer::new(output.len());
    y.par_chunks_mut(output.width * output.channels).enumerate().for_each(|(row, y)| {
        let x = &x[row / output.height * image..][..image];
        weighted_row(x, input.width, &rows[row % output.height], columns, y);
    });
    y
}

vectorized! {
    fn weighted_row<'a>(
        x: &'a [f32],
        width: usize,
        rows: &'a Taps,
        columns: &'a [Taps],
        y: &'a mut [f32],
    ) -> () {
        let channels = y.len() / columns.len();
        for (columns, y) in columns.iter().zip(y.chunks_exact_mut(channels)) {
            in_blocks(y, |at, y| {
                for (i, row_weight) in rows.weights.iter().enumerate() {
                    for (j, column_weight) in columns.weights.iter().enumerate() {
                        let weight = row_weight * column_weight;
                        let offset = ((rows.from + i) * width + columns.from + j) * channels + at;
                        add_weighted(&x[offset..][..y.len()], weight, y);
                    }
                }
            });
        }
    }
}

#[inline(always)]
fn add_weighted(x: &[f32], weight: f32, y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += weight * x;
    }
}

/// The mean over all positions of every image, `[images, channels]`.
pub(crate) fn mean_forward(x: &[f32], maps: Maps) -> Buffer {
    let _measured = profile::scope("global average");
    let area = maps.height * maps.width;
    let mut y = Buffer::new(maps.images * maps.channels);
    y.par_chunks_mut(maps.channels)
        .zip(x.par_chunks(area * maps.channels))
        .for_each(|(y, x)| mean_image(x, y));
    y
}

vectorized! {
    pub(crate) fn mean_image<'a>(x: &'a [f32], y: &'a mut [f32]) -> () {
        let area = (x.len() / y.len()) as f32;
        y.fill(0.0);
        for x in x.chunks_exact(y.len()) {
            add(x, y);
        }
        for y in y {
            *y /= area;
        }
    }
}

#[inline(always)]
fn add(x: &[f32], y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y += x;
    }
}

/// The gradient of the input of [`mean_forward`].
pub(crate) fn mean_gradient(dy: &[f32], maps: Maps) -> Buffer {
    let _measured = profile::scope("global average, gradient");
    let area = maps.height * maps.width;
    let mut dx = Buffer::new(maps.len());
    dx.par_chunks_mut(area * maps.channels).zip(dy.par_chunks(maps.channels)).for_each(|(dx, dy)| {
        let (first, others) = dx.split_at_mut(maps.channels);
        for (dx, dy) in first.iter_mut().zip(dy) {
            *dx = dy / area as f32;
        }
        for pixel in others.chunks_exact_mut(maps.channels) {
            pixel.copy_from_slice(first);
        }
    });
    dx
}
