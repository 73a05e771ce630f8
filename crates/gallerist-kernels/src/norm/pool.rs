//! Batch normalisation with ReLU and the maximum over 2 x 2 windows.

use rayon::prelude::*;

use super::affine::Affine;
use super::blocks::{BLOCK, BlockSums, TASK};
use super::gradient::{GradientSums, Linear};
use crate::buffer::Buffer;
use crate::maps::Maps;
use crate::profile;
use gallerist_util::vectorized;

/// The code of a window none of whose values is positive: ReLU lets no gradient through.
const NONE: u8 = 4;

/// What the backward pass of [`pool_forward`] needs of every window.
pub(crate) struct Winners {
    /// Place of the largest value in the window (2 * row + column), or [`NONE`].
    place: Vec<u8>,
    /// The input there.
    x: Buffer,
}

/// The maps after 2 x 2 windows with stride 2; an odd last row or column is in no window.
pub(crate) fn pooled(maps: Maps) -> Maps {
    Maps { height: maps.height / 2, width: maps.width / 2, ..maps }
}

/// `max over 2 x 2 windows of relu(affine(x))`. Of equal values the first wins; NaN wins always.
pub(crate) fn pool_forward(x: &[f32], maps: Maps, affine: &Affine) -> (Buffer, Winners) {
    let _measured = profile::scope("batch norm with max pooling");
    let out = pooled(maps);
    let mut y = Buffer::new(out.len());
    let mut winner_x = Buffer::new(out.len());
    let mut place = vec![0u8; out.len()];
    let row = out.width * out.channels;
    let image = maps.height * maps.width * maps.channels;
    if row > 0 {
        y.par_chunks_mut(row)
            .zip(winner_x.par_chunks_mut(row))
            .zip(place.par_chunks_mut(row))
            .enumerate()
            .with_min_len(4)
            .for_each(|(index, ((y, winner_x), place))| {
                let (n, i) = (index / out.height, index % out.height);
                let from = n * image + 2 * i * maps.width * maps.channels;
                let two_rows = &x[from..][..2 * maps.width * maps.channels];
                pool_windows(two_rows, affine, y, winner_x, place);
            });
    }
    (y, Winners { place, x: winner_x })
}

vectorized! {
    /// A row of windows from two rows of positions.
    fn pool_windows<'a>(
        two_rows: &'a [f32],
        affine: &'a Affine,
        y: &'a mut [f32],
        winner: &'a mut [f32],
        place: &'a mut [u8],
    ) -> () {
        let channels = affine.mean.len();
        let (upper, lower) = two_rows.split_at(two_rows.len() / 2);
        let outputs = y
            .chunks_exact_mut(channels)
            .zip(winner.chunks_exact_mut(channels))
            .zip(place.chunks_exact_mut(channels));
        let windows = upper
            .chunks_exact(2 * channels)
            .zip(lower.chunks_exact(2 * channels));
        for (((y, winner), place), (upper, lower)) in outputs.zip(windows) {
            let (a, b) = upper.split_at(channels);
            let (c, d) = lower.split_at(channels);
            affine.pool_window([a, b, c, d], y, winner, place);
        }
    }
}

impl Affine {
    #[inline(always)]
    fn pool_window(&self, [a, b, c, d]: [&[f32]; 4], y: &mut [f32], winner: &mut [f32], place: &mut [u8]) {
        let channels = y.len();
        let (a, b, c, d) = (&a[..channels], &b[..channels], &c[..channels], &d[..channels]);
        let (scale, beta) = (&self.scale[..channels], &self.beta[..channels]);
        let mean = &self.mean[..channels];
        let (winner, place) = (&mut winner[..channels], &mut place[..channels]);
        for j in 0..channels {
            let value = |x: f32| (x - mean[j]) * scale[j] + beta[j];
            let (mut best, mut best_x, mut best_place) = (value(a[j]), a[j], 0u32);
            for (code, x) in [(1, b[j]), (2, c[j]), (3, d[j])] {
                let value = value(x);
                let wins = value > best || value.is_nan();
                best = if wins { value } else { best };
                best_x = if wins { x } else { best_x };
                best_place = if wins { code } else { best_place };
            }
            let dead = best <= 0.0;
            y[j] = if dead { 0.0 } else { best };
            winner[j] = best_x;
            place[j] = if dead { u32::from(NONE) } else { best_place } as u8;
        }
    }
}

/// The sums for [`pool_forward`] from the gradient of its result.
pub(crate) fn pool_gradient_sums(winners: &Winners, dy: &[f32], maps: Maps, affine: &Affine) -> GradientSums {
    let _measured = profile::scope("batch norm with max pooling, sums of the gradient");
    let channels = affine.mean.len();
    let parts = winners
        .x
        .par_chunks(TASK * channels)
        .zip(dy.par_chunks(TASK * channels))
        .zip(winners.place.par_chunks(TASK * channels))
        .map(|((x, dy), place)| sum_winners(x, dy, place, &affine.mean))
        .collect();
    GradientSums::join(parts, affine, maps.pixels())
}

vectorized! {
    fn sum_winners<'a>(
        x: &'a [f32],
        dy: &'a [f32],
        place: &'a [u8],
        mean: &'a [f32],
    ) -> [Vec<f64>; 2] {
        let channels = mean.len();
        let mut sums = BlockSums::new(channels);
        let blocks = x
            .chunks(BLOCK * channels)
            .zip(dy.chunks(BLOCK * channels))
            .zip(place.chunks(BLOCK * channels));
        for ((x, dy), place) in blocks {
            let rows = x
                .chunks_exact(channels)
                .zip(dy.chunks_exact(channels))
                .zip(place.chunks_exact(channels));
            for ((x, dy), place) in rows {
                let [sum, product] = &mut sums.block;
                add_winners(x, dy, place, mean, sum, product);
            }
            sums.end_block();
        }
        sums.all
    }
}

#[inline(always)]
fn add_winners(x: &[f32], dy: &[f32], place: &[u8], mean: &[f32], sum: &mut [f32], product: &mut [f32]) {
    let channels = sum.len();
    let (x, dy, place) = (&x[..channels], &dy[..channels], &place[..channels]);
    let (mean, product) = (&mean[..channels], &mut product[..channels]);
    for j in 0..channels {
        let dy = if place[j] == NONE { 0.0 } else { dy[j] };
        sum[j] += dy;
        product[j] += dy * (x[j] - mean[j]);
    }
}

/// The gradient of the input of [`pool_forward`].
pub(crate) fn pool_input_gradient(
    x: &[f32],
    maps: Maps,
    winners: &Winners,
    dy: &[f32],
    affine: &Affine,
    sums: &GradientSums,
) -> Buffer {
    let _measured = profile::scope("batch norm with max pooling, input gradient");
    let out = pooled(maps);
    let linear = Linear::new(affine, Some(sums));
    let mut dx = Buffer::new(maps.len());
    let row = maps.width * maps.channels;
    // Pairs of rows never cross an image: an odd last row is a chunk of its own.
    dx.par_chunks_mut(maps.height * row).zip(x.par_chunks(maps.height * row)).enumerate().for_each(
        |(n, (dx, x))| {
            let pairs = dx.chunks_mut(2 * row).zip(x.chunks(2 * row)).enumerate();
            for (i, (dx, x)) in pairs {
                let windows = if i < out.height {
                    (n * out.height + i) * out.width * out.channels
                        ..(n * out.height + i + 1) * out.width * out.channels
                } else {
                    0..0
                };
                let (place, dy) = (&winners.place[windows.clone()], &dy[windows]);
                pool_gradient_rows(&linear, x, place, dy, dx, row);
            }
        },
    );
    dx
}

vectorized! {
    /// One row of windows: `x` and `dx` are its two rows of positions, or one row in no window.
    fn pool_gradient_rows<'a>(
        linear: &'a Linear<'a>,
        x: &'a [f32],
        place: &'a [u8],
        dy: &'a [f32],
        dx: &'a mut [f32],
        row: usize,
    ) -> () {
        let channels = linear.affine.mean.len();
        for (r, (dx, x)) in dx.chunks_exact_mut(row).zip(x.chunks_exact(row)).enumerate() {
            let positions = dx.chunks_exact_mut(channels).zip(x.chunks_exact(channels));
            for (column, (dx, x)) in positions.enumerate() {
                let first = column / 2 * channels;
                let window = (first + channels <= place.len())
                    .then(|| (&place[first..][..channels], &dy[first..][..channels]));
                linear.pool_row(x, window, (2 * r + column % 2) as u8, dx);
            }
        }
    }
}

impl Linear<'_> {
    /// One position, at place `code` of its window. `window` is the places of the winners and the gradients of the
    /// window; `None` if the position is in no window.
    #[inline(always)]
    fn pool_row(&self, x: &[f32], window: Option<(&[u8], &[f32])>, code: u8, dx: &mut [f32]) {
        let channels = dx.len();
        let x = &x[..channels];
        let (mean, scale) = (&self.affine.mean[..channels], &self.affine.scale[..channels]);
        let (constant, slope) = (&self.constant[..channels], &self.slope[..channels]);
        if let Some((place, dy)) = window {
            let (place, dy) = (&place[..channels], &dy[..channels]);
            for j in 0..channels {
                let dy = if place[j] == code { dy[j] } else { 0.0 };
                dx[j] = scale[j] * dy - constant[j] - slope[j] * (x[j] - mean[j]);
            }
        } else {
            for j in 0..channels {
                dx[j] = -constant[j] - slope[j] * (x[j] - mean[j]);
            }
        }
    }
}
