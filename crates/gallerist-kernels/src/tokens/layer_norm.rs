//! Layer norm over the last dimension: one pass over the memory each way.

use gallerist_util::simd::{Work, vectorize};
use rayon::prelude::*;

use super::lanes::{dot_centred, squares, sum};
use crate::buffer::Buffer;
use crate::profile;

/// Elements of a task.
const PART: usize = 32 * 1024;

/// The rows of a task: they depend on the width alone, so that sums have the same bits for any number of threads.
fn task_rows(width: usize) -> usize {
    (PART / width).max(1)
}

/// `(x - mean) / sqrt(variance + epsilon) * weight + bias` of every row, with the biased variance.
pub(crate) fn forward(x: &[f32], weight: &[f32], bias: &[f32], epsilon: f64) -> Buffer {
    let _measured = profile::scope("layer norm");
    let width = weight.len();
    let mut y = Buffer::new(x.len());
    let part = task_rows(width) * width;
    y.par_chunks_mut(part)
        .zip(x.par_chunks(part))
        .for_each(|(y, x)| vectorize(Forward { x, y, weight, bias, epsilon: epsilon as f32 }));
    y
}

/// The gradients by the rows, the weight and the bias.
pub(crate) struct Gradients {
    pub(crate) dx: Buffer,
    pub(crate) weight: Vec<f32>,
    pub(crate) bias: Vec<f32>,
}

/// The gradients from that by the result.
pub(crate) fn gradient(x: &[f32], dy: &[f32], weight: &[f32], epsilon: f64) -> Gradients {
    let _measured = profile::scope("layer norm, gradient");
    let width = weight.len();
    let mut dx = Buffer::new(x.len());
    let part = task_rows(width) * width;
    let parts: Vec<Vec<f32>> = dx
        .par_chunks_mut(part)
        .zip(x.par_chunks(part))
        .zip(dy.par_chunks(part))
        .map(|((dx, x), dy)| {
            let mut sums = vec![0.0; 2 * width];
            let (of_weight, of_bias) = sums.split_at_mut(width);
            vectorize(Backward { x, dy, dx, weight, of_weight, of_bias, epsilon: epsilon as f32 });
            sums
        })
        .collect();
    let mut sums = vec![0.0; 2 * width];
    for part in parts {
        sums.iter_mut().zip(part).for_each(|(sum, value)| *sum += value);
    }
    let bias = sums.split_off(width);
    Gradients { dx, weight: sums, bias }
}

/// The mean of a row, and the reciprocal of its deviation.
#[inline(always)]
fn statistics(row: &[f32], epsilon: f32) -> (f32, f32) {
    let share = 1.0 / row.len() as f32;
    let mean = sum(row) * share;
    (mean, 1.0 / (squares(row, mean) * share + epsilon).sqrt())
}

struct Forward<'a> {
    x: &'a [f32],
    y: &'a mut [f32],
    weight: &'a [f32],
    bias: &'a [f32],
    epsilon: f32,
}

impl Work for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let width = self.weight.len();
        let (weight, bias) = (self.weight, &self.bias[..width]);
        for (y, x) in self.y.chunks_exact_mut(width).zip(self.x.chunks_exact(width)) {
            let (mean, scale) = statistics(x, self.epsilon);
            for i in 0..width {
                y[i] = (x[i] - mean) * scale * weight[i] + bias[i];
            }
        }
    }
}

struct Backward<'a> {
    x: &'a [f32],
    dy: &'a [f32],
    dx: &'a mut [f32],
    weight: &'a [f32],
    of_weight: &'a mut [f32],
    of_bias: &'a mut [f32],
    epsilon: f32,
}

impl Work for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let width = self.weight.len();
        let share = 1.0 / width as f32;
        let weight = self.weight;
        let (of_weight, of_bias) = (&mut self.of_weight[..width], &mut self.of_bias[..width]);
        let rows = self.x.chunks_exact(width).zip(self.dy.chunks_exact(width));
        for (dx, (x, dy)) in self.dx.chunks_exact_mut(width).zip(rows) {
            let (mean, scale) = statistics(x, self.epsilon);
            // dx holds the gradient by the normalised row meanwhile.
            for i in 0..width {
                of_weight[i] += dy[i] * ((x[i] - mean) * scale);
                of_bias[i] += dy[i];
                dx[i] = dy[i] * weight[i];
            }
            let constant = sum(dx) * share;
            let along = dot_centred(dx, x, mean) * share * scale;
            for i in 0..width {
                dx[i] = scale * (dx[i] - constant - (x[i] - mean) * scale * along);
            }
        }
    }
}
