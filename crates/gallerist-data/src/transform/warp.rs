//! Sampling an image through an affine map.

use std::cell::RefCell;

use super::{Border, Size};
use crate::image::Image;

/// Pixel (column, row) of the output looks at `x + dx . (column, row)`,
/// `y + dy . (column, row)` of the stored image, where whole numbers are the
/// centres of pixels.
pub(super) struct Map {
    pub(super) x: f64,
    pub(super) y: f64,
    pub(super) dx: [f64; 2],
    pub(super) dy: [f64; 2],
}

thread_local! {
    /// Buffers kept between calls.
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::default());
}

#[derive(Default)]
struct Scratch {
    /// The stored image as floats with its border.
    padded: Vec<f32>,
    /// One row of samples.
    row: Vec<Sample>,
    /// One row of sums over the samples of a pixel, channels interleaved.
    sums: Vec<f32>,
}

/// Where a sample lies: offset of its upper left pixel in the frame, and how
/// far it is on the way to the next, across and down.
#[derive(Clone, Copy, Default)]
struct Sample {
    at: u32,
    across: f32,
    down: f32,
}

/// Samples a stored image of `C` channels through a map.
///
/// The image is copied into a frame of one border pixel on each side (two at
/// the far end, so that the right neighbour of the last position exists).
/// Positions are clamped to the frame: everything beyond it is border, the edge
/// is blended with it, and the loop has no case distinctions.
pub(super) fn warp<const C: usize>(
    stored: &Image,
    map: &Map,
    border: Border,
    size: Size,
    normal: &[(f32, f32)],
    out: &mut [f32],
) {
    let (width, height) = (stored.width(), stored.height());
    let stride = ((width + 3) * C) as u32;
    let (max_x, max_y) = ((width + 1) as f32, (height + 1) as f32);
    // A sample reaches one pixel to each side, so that samples up to 4/3 of a
    // pixel apart miss nothing that matters.
    let count = |step: f64| ((step * 0.75).ceil() as usize).clamp(1, 16);
    let across = count(map.dx[0].hypot(map.dy[0]));
    let down = count(map.dx[1].hypot(map.dy[1]));
    let share = 1.0 / (across * down) as f32;
    let (dx, dy) = (map.dx[0] as f32, map.dy[0] as f32);
    let area = size.area();
    SCRATCH.with_borrow_mut(|Scratch { padded, row, sums }| {
        pad::<C>(stored, border, padded);
        row.resize(size.width, Sample::default());
        sums.resize(size.width * C, 0.0);
        for y in 0..size.height {
            sums.fill(0.0);
            // The samples of a pixel are spread evenly over it.
            for sample in 0..across * down {
                let u = ((sample % across) as f64 + 0.5) / across as f64 - 0.5;
                let v = y as f64 + ((sample / across) as f64 + 0.5) / down as f64 - 0.5;
                // +1 for the frame. The start of a row in f64, the rest in f32:
                // an error of 1e-4 pixels at most for a side of 1,000.
                let x0 = (map.x + map.dx[0] * u + map.dx[1] * v + 1.0) as f32;
                let y0 = (map.y + map.dy[0] * u + map.dy[1] * v + 1.0) as f32;
                for (column, place) in row.iter_mut().enumerate() {
                    let column = column as u32 as f32;
                    let sx = (x0 + dx * column).clamp(0.0, max_x);
                    let sy = (y0 + dy * column).clamp(0.0, max_y);
                    let (ix, iy) = (sx as u32, sy as u32);
                    // The frame has at most 16,387^2 x 3 values, which is below 2^32.
                    let at = iy.wrapping_mul(stride).wrapping_add(ix.wrapping_mul(C as u32));
                    *place = Sample { at, across: sx - ix as f32, down: sy - iy as f32 };
                }
                for (place, sum) in row.iter().zip(sums.as_chunks_mut::<C>().0) {
                    let upper = &padded[place.at as usize..][..2 * C];
                    let lower = &padded[place.at.wrapping_add(stride) as usize..][..2 * C];
                    for c in 0..C {
                        let top = upper[c] + place.across * (upper[C + c] - upper[c]);
                        let bottom = lower[c] + place.across * (lower[C + c] - lower[c]);
                        sum[c] += top + place.down * (bottom - top);
                    }
                }
            }
            for (c, &(factor, offset)) in normal.iter().enumerate() {
                let start = c * area + y * size.width;
                let line = &mut out[start..start + size.width];
                for (value, sum) in line.iter_mut().zip(sums.as_chunks::<C>().0) {
                    *value = sum[c] * (factor * share) + offset;
                }
            }
        }
    });
}

/// The image as floats, one border pixel before and two after each side.
fn pad<const C: usize>(stored: &Image, border: Border, padded: &mut Vec<f32>) {
    let (width, height) = (stored.width(), stored.height());
    let stride = (width + 3) * C;
    padded.clear();
    let fill = match border {
        Border::Value(v) => v * 255.0,
        Border::Replicate => 0.0,
    };
    padded.resize(stride * (height + 3), fill);
    let rows = stored.pixels().chunks_exact(width * C);
    for (row, padded) in rows.zip(padded[stride..].chunks_exact_mut(stride)) {
        for (value, &v) in padded[C..].iter_mut().zip(row) {
            *value = f32::from(v);
        }
        if border == Border::Replicate {
            for c in 0..C {
                let last = padded[width * C + c];
                padded[c] = padded[C + c];
                padded[(width + 1) * C + c] = last;
                padded[(width + 2) * C + c] = last;
            }
        }
    }
    if border == Border::Replicate {
        padded.copy_within(stride..2 * stride, 0);
        padded.copy_within(height * stride..(height + 1) * stride, (height + 1) * stride);
        padded.copy_within(height * stride..(height + 1) * stride, (height + 2) * stride);
    }
}
