//! Rows scaled to length 1, and their gradient: one pass over the memory each.

use std::ops::{AddAssign, Div, DivAssign, Mul, Sub};

use gallerist_util::simd::{Work, vectorize};
use rayon::prelude::*;

use crate::buffer::Buffer;
use crate::profile;

/// Elements of a task.
const PART: usize = 16 * 1024;

/// Partial results of a sum, added in a fixed order: the bits do not depend on the width of the vectors.
const LANES: usize = 16;

/// `f32` or `f64`: the values of [`scale_rows`].
pub trait RowValue:
    Copy
    + Default
    + PartialOrd
    + AddAssign
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + DivAssign
    + Send
    + Sync
{
    /// The smallest normal value.
    const LEAST: Self;
    /// 1.
    const UNIT: Self;
    /// The absolute value.
    fn magnitude(self) -> Self;
    /// The square root.
    fn root(self) -> Self;
}

macro_rules! row_value {
    ($($float:ident),*) => {$(
        impl RowValue for $float {
            const LEAST: $float = $float::MIN_POSITIVE;
            const UNIT: $float = 1.0;

            #[inline(always)]
            fn magnitude(self) -> $float {
                self.abs()
            }

            #[inline(always)]
            fn root(self) -> $float {
                self.sqrt()
            }
        }
    )*};
}

row_value!(f32, f64);

fn task_rows(width: usize) -> usize {
    (PART / width).max(1)
}

/// The rows of length 1, and for each row the factor by which it was multiplied; 0 for a row of zeros.
pub(crate) fn forward(x: &[f32], width: usize) -> (Buffer, Vec<f32>) {
    let _measured = profile::scope("rows of length 1");
    let mut y = Buffer::new(x.len());
    let mut factors = vec![0.0; x.len() / width];
    scale_rows(x, &mut y, &mut factors, width);
    (y, factors)
}

/// Writes the rows `x` of `width` values, scaled to length 1, to `y`, and the factor of each row; 0 for a row of zeros,
/// which stays so. A value that is not finite makes its row NaN.
///
/// # Panics
///
/// If `x`, `y` and `factors` disagree about the number of rows.
pub fn scale_rows<T: RowValue>(x: &[T], y: &mut [T], factors: &mut [T], width: usize) {
    assert!(
        x.len() == y.len() && x.len() == factors.len() * width,
        "{} and {} values in {} rows of {width}",
        x.len(),
        y.len(),
        factors.len()
    );
    let rows = task_rows(width);
    y.par_chunks_mut(rows * width)
        .zip(x.par_chunks(rows * width))
        .zip(factors.par_chunks_mut(rows))
        .for_each(|((y, x), factors)| vectorize(Scale { x, y, factors, width }));
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

struct Scale<'a, T> {
    x: &'a [T],
    y: &'a mut [T],
    factors: &'a mut [T],
    width: usize,
}

impl<T: RowValue> Work for Scale<'_, T> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (row, factor) in self.factors.iter_mut().enumerate() {
            let x = &self.x[row * self.width..][..self.width];
            let y = &mut self.y[row * self.width..][..self.width];
            // The entries are divided by the largest one first, so that no square overflows or underflows.
            let largest = largest(x);
            let scale = T::UNIT / if largest > T::LEAST { largest } else { T::LEAST };
            for k in 0..y.len() {
                y[k] = x[k] * scale;
            }
            let length = dot(y, y).root();
            // A value that is not a number makes the whole row so.
            if length == T::default() {
                *factor = T::default();
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
            dx.copy_from_slice(dy);
            project_row(dx, y, factor);
        }
    }
}

/// Turns the gradient by a row of length 1 into that by the row before it was scaled: takes out the part along the row
/// `y`, and multiplies with the row's factor of [`scale_rows`].
#[inline(always)]
pub fn project_row<T: RowValue>(gradient: &mut [T], y: &[T], factor: T) {
    assert!(gradient.len() == y.len(), "a gradient of {} values by {}", gradient.len(), y.len());
    let along = dot(gradient, y);
    for k in 0..gradient.len() {
        gradient[k] = factor * (gradient[k] - along * y[k]);
    }
}

/// The largest absolute value, NaN left out.
#[inline(always)]
fn largest<T: RowValue>(x: &[T]) -> T {
    let mut lanes = [T::default(); LANES];
    let (chunks, rest) = x.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            let value = chunk[lane].magnitude();
            lanes[lane] = if value > lanes[lane] { value } else { lanes[lane] };
        }
    }
    for lane in 0..rest.len() {
        let value = rest[lane].magnitude();
        lanes[lane] = if value > lanes[lane] { value } else { lanes[lane] };
    }
    let mut all = T::default();
    for lane in lanes {
        all = if lane > all { lane } else { all };
    }
    all
}

/// The sum of `a b` over the values of `a`; `b` has at least as many.
#[inline(always)]
pub(crate) fn dot<T: RowValue>(a: &[T], b: &[T]) -> T {
    let b = &b[..a.len()];
    let mut lanes = [T::default(); LANES];
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<LANES>(), b.as_chunks::<LANES>());
    for chunk in 0..a.len() {
        for lane in 0..LANES {
            lanes[lane] += a[chunk][lane] * b[chunk][lane];
        }
    }
    for lane in 0..a_rest.len() {
        lanes[lane] += a_rest[lane] * b_rest[lane];
    }
    let mut total = T::default();
    for lane in lanes {
        total += lane;
    }
    total
}
