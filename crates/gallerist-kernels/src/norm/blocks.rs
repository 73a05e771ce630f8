//! Sums over positions, in blocks.

use rayon::prelude::*;

use crate::profile;
use gallerist_util::vectorized;

/// Positions whose sum is taken in `f32`.
pub(super) const BLOCK: usize = 64;

/// Positions of one task.
pub(super) const TASK: usize = 32 * BLOCK;

/// Accumulates `f32` sums of blocks into `f64` sums.
pub(super) struct BlockSums {
    pub(super) block: [Vec<f32>; 2],
    pub(super) all: [Vec<f64>; 2],
}

impl BlockSums {
    pub(super) fn new(channels: usize) -> Self {
        Self {
            block: [vec![0.0; channels], vec![0.0; channels]],
            all: [vec![0.0; channels], vec![0.0; channels]],
        }
    }

    #[inline(always)]
    pub(super) fn end_block(&mut self) {
        for (all, block) in self.all.iter_mut().zip(&mut self.block) {
            for (all, block) in all.iter_mut().zip(block) {
                *all += f64::from(*block);
                *block = 0.0;
            }
        }
    }
}

/// Accumulates the values of every position into `sums`, four positions at a time.
#[inline(always)]
pub(super) fn add_rows(x: &[f32], sums: &mut [f32]) {
    let channels = sums.len();
    let mut fours = x.chunks_exact(4 * channels);
    for four in fours.by_ref() {
        add_four(split(four, channels), sums);
    }
    for row in fours.remainder().chunks_exact(channels) {
        for (sum, x) in sums.iter_mut().zip(row) {
            *sum += x;
        }
    }
}

#[inline(always)]
fn add_four([a, b, c, d]: [&[f32]; 4], sums: &mut [f32]) {
    let channels = sums.len();
    let (a, b, c, d) = (&a[..channels], &b[..channels], &c[..channels], &d[..channels]);
    for j in 0..channels {
        sums[j] += (a[j] + b[j]) + (c[j] + d[j]);
    }
}

/// The four rows of `four`.
#[inline(always)]
pub(super) fn split(four: &[f32], channels: usize) -> [&[f32]; 4] {
    let (ab, cd) = four.split_at(2 * channels);
    let ((a, b), (c, d)) = (ab.split_at(channels), cd.split_at(channels));
    [a, b, c, d]
}

/// The sum of every column of `x`, `[positions, channels]`.
pub(crate) fn column_sums(x: &[f32], channels: usize) -> Vec<f32> {
    let _measured = profile::scope("bias gradient");
    let parts: Vec<Vec<f64>> = x.par_chunks(TASK * channels).map(|x| sum_columns(x, channels)).collect();
    (0..channels).map(|channel| parts.iter().map(|part| part[channel]).sum::<f64>() as f32).collect()
}

vectorized! {
    fn sum_columns<'a>(x: &'a [f32], channels: usize) -> Vec<f64> {
        let mut sums = BlockSums::new(channels);
        for block in x.chunks(BLOCK * channels) {
            add_rows(block, &mut sums.block[0]);
            sums.end_block();
        }
        let [sums, _] = sums.all;
        sums
    }
}
