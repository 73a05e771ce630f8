//! The statistics of a batch.

use std::sync::Arc;

use gallerist_collective::Shared;
use rayon::prelude::*;

use super::blocks::{BLOCK, TASK, add_rows, split};
use crate::profile;
use gallerist_util::vectorized;

/// Mean and biased variance of every channel.
pub(crate) struct Moments {
    pub(crate) mean: Vec<f32>,
    pub(crate) variance: Vec<f32>,
    /// The ranks whose batches these are the moments of; `None`: this process alone.
    pub(crate) ranks: Option<Arc<Shared>>,
}

/// Count, mean and sum of squared deviations of every channel (Chan, Golub, LeVeque 1983).
#[derive(Clone)]
pub(crate) struct Deviations {
    count: f64,
    mean: Vec<f64>,
    squares: Vec<f64>,
}

impl Deviations {
    fn none(channels: usize) -> Self {
        Self { count: 0.0, mean: vec![0.0; channels], squares: vec![0.0; channels] }
    }

    /// Those of the positions of all ranks, joined in the order of the ranks.
    fn of_ranks(self, ranks: &Shared) -> Self {
        let channels = self.mean.len();
        let own = [vec![self.count], self.mean, self.squares].concat();
        let mut all = Self::none(channels);
        for of_rank in ranks.gather(own) {
            let (mean, squares) = of_rank[1..].split_at(channels);
            all.join(of_rank[0], mean, squares);
        }
        all
    }

    #[inline(always)]
    fn join(&mut self, count: f64, mean: &[f64], squares: &[f64]) {
        let share = count / (self.count + count);
        let weight = self.count * share;
        let others = mean.iter().zip(squares);
        for ((mean, squares), (other_mean, other_squares)) in
            self.mean.iter_mut().zip(&mut self.squares).zip(others)
        {
            let difference = other_mean - *mean;
            *mean += difference * share;
            *squares += other_squares + difference * difference * weight;
        }
        self.count += count;
    }
}

/// Mean and biased variance of every channel of `x`, `[positions, channels]`.
pub(crate) fn moments(x: &[f32], channels: usize) -> Moments {
    let _measured = profile::scope("batch norm, statistics");
    let parts = x.par_chunks(TASK * channels).map(|x| deviations(x, channels)).collect();
    Moments::join(parts, channels)
}

impl Moments {
    /// The moments of all positions from those of parts, and of the positions of all ranks.
    pub(crate) fn join(parts: Vec<Deviations>, channels: usize) -> Self {
        let mut all = Deviations::none(channels);
        for part in parts {
            all.join(part.count, &part.mean, &part.squares);
        }
        let ranks = Shared::current();
        if let Some(ranks) = &ranks {
            all = all.of_ranks(ranks);
        }
        Moments {
            mean: all.mean.iter().map(|mean| *mean as f32).collect(),
            variance: all.squares.iter().map(|squares| (squares / all.count) as f32).collect(),
            ranks,
        }
    }
}

vectorized! {
    /// Blocks are centred on their rounded mean; the deviations' own mean, close to 0, corrects it.
    /// No precision is lost, however far the values are from zero.
    pub(crate) fn deviations<'a>(x: &'a [f32], channels: usize) -> Deviations {
        let mut all = Deviations::none(channels);
        let (mut centre, mut sum) = (vec![0f32; channels], vec![0f32; channels]);
        let mut squares = vec![0f32; channels];
        let (mut mean, mut about_mean) = (vec![0f64; channels], vec![0f64; channels]);
        for block in x.chunks(BLOCK * channels) {
            let count = (block.len() / channels) as f64;
            centre.fill(0.0);
            add_rows(block, &mut centre);
            for centre in &mut centre {
                *centre /= count as f32;
            }
            sum.fill(0.0);
            squares.fill(0.0);
            add_deviations(block, &centre, &mut sum, &mut squares);
            for j in 0..channels {
                let rest = f64::from(sum[j]) / count;
                mean[j] = f64::from(centre[j]) + rest;
                about_mean[j] = f64::from(squares[j]) - rest * rest * count;
            }
            all.join(count, &mean, &about_mean);
        }
        all
    }
}

/// Accumulates `x - centre` of every position into `sums` and its square into `squares`.
#[inline(always)]
fn add_deviations(x: &[f32], centre: &[f32], sums: &mut [f32], squares: &mut [f32]) {
    let channels = sums.len();
    let mut fours = x.chunks_exact(4 * channels);
    for four in fours.by_ref() {
        add_four_deviations(split(four, channels), centre, sums, squares);
    }
    for row in fours.remainder().chunks_exact(channels) {
        let (centre, squares) = (&centre[..channels], &mut squares[..channels]);
        for j in 0..channels {
            let deviation = row[j] - centre[j];
            sums[j] += deviation;
            squares[j] += deviation * deviation;
        }
    }
}

#[inline(always)]
fn add_four_deviations([a, b, c, d]: [&[f32]; 4], centre: &[f32], sums: &mut [f32], squares: &mut [f32]) {
    let channels = sums.len();
    let (a, b, c, d) = (&a[..channels], &b[..channels], &c[..channels], &d[..channels]);
    let (centre, squares) = (&centre[..channels], &mut squares[..channels]);
    for j in 0..channels {
        let [a, b, c, d] = [a[j], b[j], c[j], d[j]].map(|x| x - centre[j]);
        sums[j] += (a + b) + (c + d);
        squares[j] += (a * a + b * b) + (c * c + d * d);
    }
}
