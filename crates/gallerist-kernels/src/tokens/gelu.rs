//! The activations of MLPs.

use gallerist_util::simd::run;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use crate::buffer::Buffer;
use crate::math::{erf, exp, sigmoid_and_slope, times_sigmoid};
use crate::profile;

/// Elements of a task.
const PART: usize = 16 * 1024;

/// The activation between the two layers of an MLP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gelu {
    /// `x P(X <= x)` for a normal X.
    Exact,
    /// Its approximation by tanh.
    Tanh,
    /// `x sigmoid(1.702 x)`.
    Quick,
}

/// Of every value.
pub(crate) fn forward(x: &[f32], kind: Gelu) -> Buffer {
    let _measured = profile::scope("gelu");
    let mut y = Buffer::new(x.len());
    y.par_chunks_mut(PART).zip(x.par_chunks(PART)).for_each(|(y, x)| run(Forward { x, y, kind }));
    y
}

/// The gradient by `x`, from that by the result.
pub(crate) fn gradient(x: &[f32], dy: &[f32], kind: Gelu) -> Buffer {
    let _measured = profile::scope("gelu, gradient");
    let mut dx = Buffer::new(x.len());
    dx.par_chunks_mut(PART)
        .zip(x.par_chunks(PART))
        .zip(dy.par_chunks(PART))
        .for_each(|((dx, x), dy)| run(Backward { x, dy, dx, kind }));
    dx
}

const ROOT_HALF: f32 = std::f32::consts::FRAC_1_SQRT_2;
/// 1 / sqrt(2 pi).
const DENSITY: f32 = 0.398_942_3;
/// sqrt(2 / pi), and the factor of the cube, of the approximation by tanh.
const TANH: [f32; 2] = [0.797_884_6, 0.044_715];
const QUICK: f32 = 1.702;

struct Forward<'a> {
    x: &'a [f32],
    y: &'a mut [f32],
    kind: Gelu,
}

impl WithSimd for Forward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { x, y, kind } = self;
        let y = &mut y[..x.len()];
        match kind {
            Gelu::Exact => {
                for i in 0..x.len() {
                    y[i] = 0.5 * x[i] * (1.0 + erf::<S>(x[i] * ROOT_HALF));
                }
            }
            Gelu::Tanh => {
                for i in 0..x.len() {
                    let x = x[i];
                    // (1 + tanh(u)) / 2 = sigmoid(2 u)
                    y[i] = times_sigmoid::<S>(x, 2.0 * TANH[0] * (x + TANH[1] * x * x * x));
                }
            }
            Gelu::Quick => {
                for i in 0..x.len() {
                    y[i] = times_sigmoid::<S>(x[i], QUICK * x[i]);
                }
            }
        }
    }
}

struct Backward<'a> {
    x: &'a [f32],
    dy: &'a [f32],
    dx: &'a mut [f32],
    kind: Gelu,
}

impl WithSimd for Backward<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        let Self { x, dy, dx, kind } = self;
        let (dy, dx) = (&dy[..x.len()], &mut dx[..x.len()]);
        match kind {
            Gelu::Exact => {
                for i in 0..x.len() {
                    let x = x[i];
                    let below = 0.5 * (1.0 + erf::<S>(x * ROOT_HALF));
                    dx[i] = dy[i] * (below + x * DENSITY * exp::<S>(-0.5 * x * x));
                }
            }
            Gelu::Tanh => {
                for i in 0..x.len() {
                    let x = x[i];
                    let (s, slope) = sigmoid_and_slope::<S>(2.0 * TANH[0] * (x + TANH[1] * x * x * x));
                    let inner = 2.0 * TANH[0] * (1.0 + 3.0 * TANH[1] * x * x);
                    dx[i] = dy[i] * (s + x * slope * inner);
                }
            }
            Gelu::Quick => {
                for i in 0..x.len() {
                    let (s, slope) = sigmoid_and_slope::<S>(QUICK * x[i]);
                    dx[i] = dy[i] * (s + QUICK * x[i] * slope);
                }
            }
        }
    }
}
