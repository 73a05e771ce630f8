//! Rows scaled to length 1, and their gradient: one pass over the memory each.

use gallerist_util::simd::{Work, vectorize};
use rayon::prelude::*;

use crate::buffer::Buffer;
use crate::profile;

/// Elements of a task.
const PART: usize = 16 * 1024;

/// Partial results of a sum, added in a fixed order: the bits do not depend on the width of the vectors.
const LANES: usize = 16;

fn task_rows(width: usize) -> usize {
    (PART / width).max(1)
}

/// The rows of length 1, and for each row the factor by which it was multiplied; 0 for a row of zeros.
pub(crate) fn forward(x: &[f32], width: usize) -> (Buffer, Vec<f32>) {
    let _measured = profile::scope("rows of length 1");
    let mut y = Buffer::new(x.len());
    let mut factors = vec![0.0; x.len() / width];
    let rows = task_rows(width);
    y.par_chunks_mut(rows * width)
        .zip(x.par_chunks(rows * width))
        .zip(factors.par_chunks_mut(rows))
        .for_each(|((y, x), factors)| vectorize(Scale { x, y, factors, width }));
    (y, factors)
}

/// The gradient by the rows, from that by the rows of length 1 `y`.
pub(crate) fn gradient(dy: &[f32], y: &[f32], factors: &[f32], width: usize) -> Buffer {
    let _measured = profile::scope("rows of length 1, gradient");
    let mut dx = Buffer::new(dy.len());
    let rows = task_rows(width);
    dx.par_chunks_mut(rows * width)
        .zip(dy.par_chunks(rows * width))
        .zip(y.par_chunks(rows * width))
        .zip(factors.par_chunks(rows))
        .for_each(|(((dx, dy), y), factors)| vectorize(Project { dy, y, factors, dx, width }));
    dx
}

struct Scale<'a> {
    x: &'a [f32],
    y: &'a mut [f32],
    factors: &'a mut [f32],
    width: usize,
}

impl Work for Scale<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (row, factor) in self.factors.iter_mut().enumerate() {
            let x = &self.x[row * self.width..][..self.width];
            let y = &mut self.y[row * self.width..][..self.width];
            // The entries are divided by the largest one first, so that no square overflows or underflows.
            let scale = 1.0 / largest(x).max(f32::MIN_POSITIVE);
            for k in 0..y.len() {
                y[k] = x[k] * scale;
            }
            let length = dot(y, y).sqrt();
            // A value that is not a number makes the whole row so.
            if length == 0.0 {
                *factor = 0.0;
                continue;
            }
            for value in &mut *y {
                *value /= length;
            }
            *factor = scale / length;
        }
    }
}

/// Takes the part along the row out of a gradient, and scales it.
struct Project<'a> {
    dy: &'a [f32],
    y: &'a [f32],
    factors: &'a [f32],
    dx: &'a mut [f32],
    width: usize,
}

impl Work for Project<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (row, &factor) in self.factors.iter().enumerate() {
            let dy = &self.dy[row * self.width..][..self.width];
            let y = &self.y[row * self.width..][..self.width];
            let dx = &mut self.dx[row * self.width..][..self.width];
            let along = dot(dy, y);
            for k in 0..dx.len() {
                dx[k] = factor * (dy[k] - along * y[k]);
            }
        }
    }
}

/// The largest absolute value, NaN left out.
#[inline(always)]
fn largest(x: &[f32]) -> f32 {
    let mut lanes = [0f32; LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            let value = chunk[lane].abs();
            lanes[lane] = if value > lanes[lane] { value } else { lanes[lane] };
        }
    }
    for lane in 0..rest.len() {
        let value = rest[lane].abs();
        lanes[lane] = if value > lanes[lane] { value } else { lanes[lane] };
    }
    let mut all = 0f32;
    for lane in lanes {
        all = if lane > all { lane } else { all };
    }
    all
}

#[inline(always)]
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut lanes = [0f32; LANES];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for chunk in 0..a.len() {
        for lane in 0..LANES {
            lanes[lane] += a[chunk][lane] * b[chunk][lane];
        }
    }
    for lane in 0..a_rest.len() {
        lanes[lane] += a_rest[lane] * b_rest[lane];
    }
    let mut total = 0f32;
    for lane in lanes {
        total += lane;
    }
    total
}
