//! Pooling over values with the channels innermost.

use burn::tensor::ops::MaxPoolOptions;
use rayon::prelude::*;

use crate::buffer::Buffer;
use crate::nhwc::Maps;
use crate::simd::vectorized;

/// Sizes of a max pooling.
#[derive(Clone, Debug)]
pub(crate) struct Windows {
    pub(crate) input: Maps,
    pub(crate) output: Maps,
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [usize; 2],
}

impl Windows {
    /// None if the kernels do not cover the options (dilation, windows of more than 255 elements,
    /// padding of more than half a window) or the result is empty.
    pub(crate) fn new(input: Maps, options: &MaxPoolOptions<2>) -> Option<Self> {
        let kernel = options.kernel_size;
        let covered = options.dilation == [1, 1]
            && kernel[0] * kernel[1] < usize::from(u8::MAX)
            && (0..2).all(|axis| {
                let (before, after) = options.padding[axis];
                before.max(after) <= kernel[axis] / 2
            });
        let [height, width] = [0, 1].map(|axis| {
            let (before, after) = options.padding[axis];
            let size = [input.height, input.width][axis] + before + after;
            let room = size.checked_sub(kernel[axis])?;
            if !options.ceil_mode {
                return Some(room / options.stride[axis] + 1);
            }
            // A window that would start behind the map has nothing to see and is left out.
            let last = room.div_ceil(options.stride[axis]);
            let outside = last * options.stride[axis] >= size - after;
            Some(last + 1 - usize::from(outside))
        });
        let output = Maps { height: height?, width: width?, ..input };
        (covered && output.len() > 0).then(|| Self {
            input,
            output,
            kernel,
            stride: options.stride,
            padding: options.padding.map(|(before, _)| before),
        })
    }

    /// Elements of an image of the input and of the output.
    fn image(&self) -> [usize; 2] {
        [self.input, self.output].map(|maps| maps.height * maps.width * maps.channels)
    }

    /// Calls `visit(tap, offset)` for the elements inside the image of the window of position
    /// `(i, j)`, where `offset` is that of the element's first channel.
    #[inline(always)]
    fn for_each_tap(&self, i: usize, j: usize, mut visit: impl FnMut(u8, usize)) {
        for a in 0..self.kernel[0] {
            let Some(row) = (i * self.stride[0] + a).checked_sub(self.padding[0]) else {
                continue;
            };
            if row >= self.input.height {
                break;
            }
            for b in 0..self.kernel[1] {
                let Some(column) = (j * self.stride[1] + b).checked_sub(self.padding[1]) else {
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
    let [input, output] = windows.image();
    let mut dx = Buffer::new(windows.input.len());
    dx.par_chunks_mut(input)
        .zip(dy.par_chunks(output).zip(place.par_chunks(output)))
        .for_each(|(dx, (dy, place))| max_gradient_image(dy, place, windows, dx));
    dx
}

vectorized! {
    fn max_gradient_image<'a>(
        dy: &'a [f32],
        place: &'a [u8],
        windows: &'a Windows,
        dx: &'a mut [f32],
    ) -> () {
        let channels = windows.input.channels;
        dx.fill(0.0);
        let pixels = dy.chunks_exact(channels).zip(place.chunks_exact(channels));
        for (pixel, (dy, place)) in pixels.enumerate() {
            let (i, j) = (pixel / windows.output.width, pixel % windows.output.width);
            windows.for_each_tap(i, j, |tap, offset| {
                add_where(dy, place, tap, &mut dx[offset..][..channels]);
            });
        }
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

/// The mean over all positions of every image, `[images, channels]`.
pub(crate) fn mean_forward(x: &[f32], maps: Maps) -> Buffer {
    let area = maps.height * maps.width;
    let mut y = Buffer::new(maps.images * maps.channels);
    y.par_chunks_mut(maps.channels)
        .zip(x.par_chunks(area * maps.channels))
        .for_each(|(y, x)| mean_image(x, y));
    y
}

vectorized! {
    fn mean_image<'a>(x: &'a [f32], y: &'a mut [f32]) -> () {
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
