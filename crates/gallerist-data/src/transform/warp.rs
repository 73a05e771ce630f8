//! Sampling an image through an affine map.

use std::cell::RefCell;

use super::affine::AffineMap;
use super::border::Border;
use super::planes::separate;
use crate::image::Image;
use crate::size::Size;
use gallerist_util::vectorized;

thread_local! {
    /// Buffers kept between calls.
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::default());
}

#[derive(Default)]
struct Scratch {
    /// The stored image, or one row of it, as floats with its border.
    padded: Vec<f32>,
    /// The samples of one row; for an upright map, one entry per horizontal sample of each pixel.
    row: Vec<Sample>,
    /// For an upright map: two rows of the image, interpolated horizontally at the samples.
    across: [Vec<f32>; 2],
    /// One row of sums over the samples of a pixel, channels interleaved.
    sums: Vec<f32>,
}

/// The position of a sample: the offset of its upper left pixel in the frame, and its distance from that pixel,
/// horizontally and vertically, from 0 to 1.
#[derive(Clone, Copy, Default)]
struct Sample {
    at: u32,
    across: f32,
    down: f32,
}

/// Samples a stored image of 1 or 3 channels through a map.
///
/// The image is copied into a frame with one border pixel before each side and two after it, so that the last position
/// has a right neighbour. Positions are clamped to the frame, so the loop needs no branches: positions outside get the
/// border, and positions at the edge are interpolated between image and border.
pub(super) fn warp(
    stored: &Image,
    map: &AffineMap,
    border: Border,
    size: Size,
    normal: &[(f32, f32)],
    out: &mut [f32],
) {
    let grid = Grid::new(map);
    // The factor includes the division by the number of samples per pixel.
    let share = 1.0 / (grid.across * grid.down) as f32;
    let mut shared = [(0.0, 0.0); 3];
    for (shared, &(factor, offset)) in shared.iter_mut().zip(normal) {
        *shared = (factor * share, offset);
    }
    let task = Task { stored, map, border, size, normal: &shared[..normal.len()], grid };
    // Without rotation and shear, each row of samples reads two rows of the image.
    let upright = map.dx[1] == 0.0 && map.dy[0] == 0.0;
    SCRATCH.with_borrow_mut(|scratch| match (stored.channels(), upright) {
        // A pixel of three channels is read as a vector of four floats; the last one belongs to the next pixel.
        (1, true) => warp_upright::<1, 1>(&task, scratch, out),
        (1, false) => warp_tilted::<1, 1>(&task, scratch, out),
        (_, true) => warp_upright::<3, 4>(&task, scratch, out),
        (_, false) => warp_tilted::<3, 4>(&task, scratch, out),
    });
}

struct Task<'a> {
    stored: &'a Image,
    map: &'a AffineMap,
    border: Border,
    size: Size,
    normal: &'a [(f32, f32)],
    grid: Grid,
}

/// The numbers of samples per pixel, horizontally and vertically. Samples are evenly spaced.
struct Grid {
    across: usize,
    down: usize,
}

impl Grid {
    fn new(map: &AffineMap) -> Grid {
        // Bilinear interpolation weights the pixels up to one pixel away, so a distance of up to 4/3 pixels between
        // samples leaves no visible gaps.
        let count = |step: f64| ((step * 0.75).ceil() as usize).clamp(1, 16);
        Grid { across: count(map.dx[0].hypot(map.dy[0])), down: count(map.dx[1].hypot(map.dy[1])) }
    }

    /// The position of sample `i` of `count` in its pixel, whose centre is 0.
    #[inline(always)]
    fn place(i: usize, count: usize) -> f64 {
        (i as f64 + 0.5) / count as f64 - 0.5
    }
}

/// Whole and fraction of a position, clamped to the frame.
#[inline(always)]
fn split(position: f32, most: f32) -> (u32, f32) {
    let clamped = position.clamp(0.0, most);
    // Through a signed integer, because this conversion is one instruction.
    let whole = clamped as i32 as u32;
    (whole, clamped - whole as f32)
}

#[inline(always)]
fn interpolated<const L: usize>(from: &[f32; L], to: &[f32; L], share: f32) -> [f32; L] {
    std::array::from_fn(|c| from[c] + share * (to[c] - from[c]))
}

/// The `L` values from `at` on.
#[inline(always)]
fn lanes<const L: usize>(values: &[f32], at: usize) -> &[f32; L] {
    values[at..].first_chunk().expect("the frame has a margin")
}

vectorized! {
    fn warp_tilted<'a, const C: usize, const L: usize>(
        task: &'a Task<'a>,
        scratch: &'a mut Scratch,
        out: &'a mut [f32],
    ) -> () {
        let Task { stored, map, border, size, normal, grid } = task;
        let Scratch { padded, row, sums, .. } = scratch;
        let (width, height) = (stored.width(), stored.height());
        let stride = (width + 3) * C;
        let (max_x, max_y) = ((width + 1) as f32, (height + 1) as f32);
        let (dx, dy) = (map.dx[0] as f32, map.dy[0] as f32);
        pad::<C>(stored, *border, padded);
        let frame = &padded[..];
        row.resize(size.width, Sample::default());
        sums.resize(size.width * L, 0.0);
        for y in 0..size.height {
            sums.fill(0.0);
            for sample in 0..grid.across * grid.down {
                let u = Grid::place(sample % grid.across, grid.across);
                let v = y as f64 + Grid::place(sample / grid.across, grid.down);
                // +1 for the frame. The start of a row is computed in f64 and the rest in f32; the error is at most
                // 1e-4 pixels for sides of 1,000.
                let x0 = (map.x + map.dx[0] * u + map.dx[1] * v + 1.0) as f32;
                let y0 = (map.y + map.dy[0] * u + map.dy[1] * v + 1.0) as f32;
                for (column, place) in row.iter_mut().enumerate() {
                    let column = column as u32 as f32;
                    let (ix, across) = split(x0 + dx * column, max_x);
                    let (iy, down) = split(y0 + dy * column, max_y);
                    // The frame has at most 16,387^2 x 3 values, which is below 2^32.
                    let at = iy.wrapping_mul(stride as u32).wrapping_add(ix.wrapping_mul(C as u32));
                    *place = Sample { at, across, down };
                }
                for (place, sum) in row.iter().zip(sums.as_chunks_mut::<L>().0) {
                    let (upper, lower) = (place.at as usize, place.at as usize + stride);
                    let top = interpolated::<L>(lanes(frame, upper), lanes(frame, upper + C), place.across);
                    let bottom = interpolated::<L>(lanes(frame, lower), lanes(frame, lower + C), place.across);
                    for (sum, value) in sum.iter_mut().zip(interpolated(&top, &bottom, place.down)) {
                        *sum += value;
                    }
                }
            }
            separate(sums.as_chunks::<L>().0, normal, (size.area(), y * size.width), out);
        }
    }
}

vectorized! {
    /// The result of [`warp_tilted`], bit for bit. All rows have the same horizontal positions, so each row of the image
    /// is interpolated horizontally once.
    fn warp_upright<'a, const C: usize, const L: usize>(
        task: &'a Task<'a>,
        scratch: &'a mut Scratch,
        out: &'a mut [f32],
    ) -> () {
        let Task { stored, map, border, size, normal, grid } = task;
        let Scratch { padded, row, across: interpolated_rows, sums } = scratch;
        let (width, height) = (stored.width(), stored.height());
        let dx = map.dx[0] as f32;
        row.clear();
        for sample in 0..grid.across {
            let x0 = (map.x + map.dx[0] * Grid::place(sample, grid.across) + 1.0) as f32;
            row.extend((0..size.width).map(|column| {
                let (ix, across) = split(x0 + dx * column as u32 as f32, (width + 1) as f32);
                Sample { at: ix * C as u32, across, down: 0.0 }
            }));
        }
        let span = size.width * C;
        sums.resize(span, 0.0);
        // The vector of the last pixel ends after the pixel.
        interpolated_rows.iter_mut().for_each(|values| values.resize(grid.across * span + L, 0.0));
        // The rows of the frame that `interpolated_rows` holds: an even one and an odd one.
        let mut rows = [usize::MAX; 2];
        for y in 0..size.height {
            sums.fill(0.0);
            for sample in 0..grid.down {
                let v = y as f64 + Grid::place(sample, grid.down);
                let y0 = (map.y + map.dy[1] * v + 1.0) as f32;
                let (iy, down) = split(y0, (height + 1) as f32);
                let iy = iy as usize;
                for wanted in [iy, iy + 1] {
                    if rows[wanted % 2] != wanted {
                        rows[wanted % 2] = wanted;
                        pad_row::<C>(stored, *border, wanted, padded);
                        let (frame, values) = (&padded[..], &mut interpolated_rows[wanted % 2][..]);
                        for (place, at) in row.iter().zip((0..).step_by(C)) {
                            let left = place.at as usize;
                            let value = interpolated::<L>(lanes(frame, left), lanes(frame, left + C), place.across);
                            values[at..at + L].copy_from_slice(&value);
                        }
                    }
                }
                let (top, bottom) = (&interpolated_rows[iy % 2], &interpolated_rows[(iy + 1) % 2]);
                for (top, bottom) in top.chunks_exact(span).zip(bottom.chunks_exact(span)).take(grid.across) {
                    for (sum, (top, bottom)) in sums.iter_mut().zip(top.iter().zip(bottom)) {
                        *sum += top + down * (bottom - top);
                    }
                }
            }
            separate(sums.as_chunks::<C>().0, normal, (size.area(), y * size.width), out);
        }
    }
}

/// Values after the last pixel, because the vector of a pixel is longer than the pixel.
const MARGIN: usize = 1;

/// The image as floats, with one border pixel before each side and two after it.
#[inline(always)]
fn pad<const C: usize>(stored: &Image, border: Border, padded: &mut Vec<f32>) {
    let (width, height) = (stored.width(), stored.height());
    let stride = (width + 3) * C;
    padded.resize(stride * (height + 3) + MARGIN, 0.0);
    for (row, padded) in padded.chunks_exact_mut(stride).enumerate() {
        fill_row::<C>(stored, border, row, padded);
    }
}

/// One row of the same frame.
#[inline(always)]
fn pad_row<const C: usize>(stored: &Image, border: Border, row: usize, padded: &mut Vec<f32>) {
    let stride = (stored.width() + 3) * C;
    padded.resize(stride + MARGIN, 0.0);
    fill_row::<C>(stored, border, row, &mut padded[..stride]);
}

#[inline(always)]
fn fill_row<const C: usize>(stored: &Image, border: Border, row: usize, padded: &mut [f32]) {
    let (width, height) = (stored.width(), stored.height());
    let inside = (1..=height).contains(&row);
    if let (Border::Value(v), false) = (border, inside) {
        return padded.fill(v * 255.0);
    }
    let y = row.clamp(1, height) - 1;
    let pixels = &stored.pixels()[y * width * C..(y + 1) * width * C];
    let (before, rest) = padded.split_at_mut(C);
    let (middle, after) = rest.split_at_mut(width * C);
    for (value, &v) in middle.iter_mut().zip(pixels) {
        *value = f32::from(v);
    }
    match border {
        Border::Value(v) => {
            before.fill(v * 255.0);
            after.fill(v * 255.0);
        }
        Border::Replicate => {
            before.copy_from_slice(&middle[..C]);
            after.chunks_exact_mut(C).for_each(|pixel| pixel.copy_from_slice(&middle[(width - 1) * C..]));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gallerist_util::random::Random;

    #[test]
    fn rows_computed_once_give_the_same_bits_as_samples_taken_one_by_one() {
        let mut random = Random::new(1, "warp", 0, 0);
        for case in 0..200 {
            let channels = [1, 3][case % 2];
            let (width, height) = (1 + random.below(40), 1 + random.below(40));
            let pixels = (0..width * height * channels).map(|_| random.below(256) as u8).collect();
            let stored = Image::new(width, height, channels, pixels);
            let size = Size { height: 1 + random.below(30), width: 1 + random.below(30) };
            // Enlarged and reduced, mirrored, and partly beyond the image.
            let mut step = || random.between(0.1, 4.0) * if random.chance(0.5) { 1.0 } else { -1.0 };
            let (dx, dy) = ([step(), 0.0], [0.0, step()]);
            let map = AffineMap { x: random.between(-9.0, 40.0), y: random.between(-9.0, 40.0), dx, dy };
            let border = if random.chance(0.5) { Border::Replicate } else { Border::Value(0.3) };
            let normal = &[(0.02, -1.5), (0.01, 0.5), (1.0, 0.0)][..channels];
            let task = Task { stored: &stored, map: &map, border, size, normal, grid: Grid::new(&map) };
            let mut results = [const { Vec::new() }; 2];
            for (upright, out) in [true, false].into_iter().zip(&mut results) {
                out.resize(size.area() * channels, 0.0f32);
                let mut scratch = Scratch::default();
                match (channels, upright) {
                    (1, true) => warp_upright::<1, 1>(&task, &mut scratch, out),
                    (1, false) => warp_tilted::<1, 1>(&task, &mut scratch, out),
                    (_, true) => warp_upright::<3, 4>(&task, &mut scratch, out),
                    (_, false) => warp_tilted::<3, 4>(&task, &mut scratch, out),
                }
            }
            let [upright, tilted] = results.map(|out| out.iter().map(|v| v.to_bits()).collect::<Vec<_>>());
            assert_eq!(upright, tilted, "case {case}");
        }
    }
}
