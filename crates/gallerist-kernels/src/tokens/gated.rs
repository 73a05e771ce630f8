//! The gate of an MLP with two first layers (Shazeer 2020, SwiGLU).

use gallerist_util::simd::run;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use crate::buffer::Buffer;
use crate::math::{sigmoid_and_slope, times_sigmoid};
use crate::profile;

/// Elements of a task.
const PART: usize = 16 * 1024;

/// `silu(a) b` for the two halves `a`, `b` of each row of `2 half` values.
pub(crate) fn forward(x: &[f32], half: usize) -> Buffer {
    let _measured = profile::scope("gated silu");
    let mut y = Buffer::new(x.len() / 2);
    y.par_chunks_mut(half)
        .zip(x.par_chunks(2 * half))
        .with_min_len(rows(half))
        .for_each(|(y, x)| run(Gated { x, y }));
    y
}

/// The gradient by `x`, from that by the result.
pub(crate) fn gradient(x: &[f32], dy: &[f32], half: usize) -> Buffer {
    let _measured = profile::scope("gated silu, gradient");
    let mut dx = Buffer::new(x.len());
    dx.par_chunks_mut(2 * half)
        .zip(x.par_chunks(2 * half))
        .zip(dy.par_chunks(half))
        .with_min_len(rows(half))
        .for_each(|((dx, x), dy)| run(GatedGradient { x, dy, dx }));
    dx
}

/// Rows of a task.
fn rows(half: usize) -> usize {
    (PART / (2 * half)).max(1)
}

struct Gated<'a> {
    x: &'a [f32],
    y: &'a mut [f32],
}

impl WithSimd for Gated<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { x, y } = self;
        let (a, b) = x.split_at(y.len());
        let b = &b[..y.len()];
        for i in 0..y.len() {
            y[i] = times_sigmoid::<S>(a[i], a[i]) * b[i];
        }
    }
}

struct GatedGradient<'a> {
    x: &'a [f32],
    dy: &'a [f32],
    dx: &'a mut [f32],
}

impl WithSimd for GatedGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { x, dy, dx } = self;
        let half = dy.len();
        let (a, b) = x.split_at(half);
        let (da, db) = dx.split_at_mut(half);
        let (b, db) = (&b[..half], &mut db[..half]);
        for i in 0..half {
            let (s, slope) = sigmoid_and_slope::<S>(a[i]);
            da[i] = dy[i] * b[i] * (s + a[i] * slope);
            db[i] = dy[i] * (a[i] * s);
        }
    }
}
