//! Gates: factors between 0 and 1, of values with the channels innermost.

use std::marker::PhantomData;

use rayon::prelude::*;

use crate::buffer::Buffer;
use crate::disjoint::Disjoint;
use crate::maps::Maps;
use crate::math::{sigmoid, sigmoid_and_slope, times_sigmoid};
use crate::profile;
use gallerist_util::simd::run;
use gallerist_util::vectorized;
use pulp::{Simd, WithSimd};

/// Elements of a task.
const PART: usize = 16 * 1024;

/// Positions whose sum is taken in `f32`.
const BLOCK: usize = 64;

/// The function that makes a factor of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// `1 / (1 + e^-x)`.
    Sigmoid,
    /// `min(max(x / 6 + 1/2, 0), 1)` (Howard et al. 2019).
    HardSigmoid,
}

/// A [`Gate`] as a type, so that loops have no branches.
pub(crate) trait GateFunction {
    fn value<S: Simd>(x: f32) -> f32;

    /// `x value(x)`.
    #[inline(always)]
    fn swish<S: Simd>(x: f32) -> f32 {
        x * Self::value::<S>(x)
    }

    /// The value and the derivative.
    fn with_slope<S: Simd>(x: f32) -> (f32, f32);
}

pub(crate) struct Sigmoid;
pub(crate) struct HardSigmoid;

impl GateFunction for Sigmoid {
    #[inline(always)]
    fn value<S: Simd>(x: f32) -> f32 {
        sigmoid::<S>(x)
    }

    #[inline(always)]
    fn swish<S: Simd>(x: f32) -> f32 {
        times_sigmoid::<S>(x, x)
    }

    #[inline(always)]
    fn with_slope<S: Simd>(x: f32) -> (f32, f32) {
        sigmoid_and_slope::<S>(x)
    }
}

impl GateFunction for HardSigmoid {
    /// NaN stays NaN.
    #[inline(always)]
    fn value<S: Simd>(x: f32) -> f32 {
        let x = if x <= -3.0 { -3.0 } else { x };
        let x = if x >= 3.0 { 3.0 } else { x };
        (x + 3.0) * (1.0 / 6.0)
    }

    #[inline(always)]
    fn with_slope<S: Simd>(x: f32) -> (f32, f32) {
        let flat = x <= -3.0 || x >= 3.0;
        (Self::value::<S>(x), if flat { 0.0 } else { 1.0 / 6.0 })
    }
}

/// Runs `$work::<G>` for the type of a gate.
macro_rules! of_gate {
    ($gate:expr, $work:ident { $($field:ident),* }) => {
        match $gate {
            Gate::Sigmoid => run($work::<Sigmoid> { $($field,)* function: PhantomData }),
            Gate::HardSigmoid => run($work::<HardSigmoid> { $($field,)* function: PhantomData }),
        }
    };
}

/// `x gate(x)` in place of `columns` values `x` from each of `positions` on.
///
/// # Safety
///
/// Nothing else accesses these values during the call.
///
/// # Panics
///
/// If they are not all inside.
pub(crate) unsafe fn swish_at(values: Disjoint<'_>, positions: &[usize], columns: usize, gate: Gate) {
    of_gate!(gate, SwishAt { values, positions, columns });
}

/// `x gate(x)` in place of every value.
pub(crate) fn swish_in_place(values: &mut [f32], gate: Gate) {
    let columns = values.len();
    // SAFETY: the values are borrowed mutably.
    unsafe { swish_at(Disjoint::new(values), &[0], columns, gate) };
}

/// The factor of every value.
pub(crate) fn factors(by: &[f32], gate: Gate) -> Vec<f32> {
    of_gate!(gate, Factors { by })
}

/// `x gate(by)` with a value of `by` for each channel of each image.
pub(crate) fn excite(x: &[f32], by: &[f32], maps: Maps, gate: Gate) -> Buffer {
    let _measured = profile::scope("excitation");
    let mut y = Buffer::new(x.len());
    let image = maps.height * maps.width * maps.channels;
    let part = (PART / maps.channels).max(1) * maps.channels;
    y.par_chunks_mut(image).zip(x.par_chunks(image)).zip(by.par_chunks(maps.channels)).for_each(
        |((y, x), by)| {
            let factors = &factors(by, gate);
            y.par_chunks_mut(part).zip(x.par_chunks(part)).for_each(|(y, x)| times_factors(x, factors, y));
        },
    );
    y
}

vectorized! {
    /// Rows of values times a factor of each column.
    fn times_factors<'a>(x: &'a [f32], factors: &'a [f32], y: &'a mut [f32]) -> () {
        for (x, y) in x.chunks_exact(factors.len()).zip(y.chunks_exact_mut(factors.len())) {
            for (y, (x, factor)) in y.iter_mut().zip(x.iter().zip(factors)) {
                *y = x * factor;
            }
        }
    }
}

/// The gradients by `x` and by `by`, from that by the result of [`excite`].
pub(crate) fn excite_gradient(x: &[f32], by: &[f32], dy: &[f32], maps: Maps, gate: Gate) -> [Buffer; 2] {
    let _measured = profile::scope("excitation, gradient");
    let (mut dx, mut dby) = (Buffer::new(x.len()), Buffer::new(by.len()));
    let image = maps.height * maps.width * maps.channels;
    dx.par_chunks_mut(image)
        .zip(dby.par_chunks_mut(maps.channels))
        .zip(x.par_chunks(image).zip(dy.par_chunks(image)))
        .zip(by.par_chunks(maps.channels))
        .for_each(|(((dx, dby), (x, dy)), by)| of_gate!(gate, ExciteGradient { x, by, dy, dx, dby }));
    [dx, dby]
}

/// Only [`swish_at`] makes one, whose caller promises that nothing else accesses the values.
struct SwishAt<'a, G> {
    values: Disjoint<'a>,
    positions: &'a [usize],
    columns: usize,
    function: PhantomData<G>,
}

impl<G: GateFunction> WithSimd for SwishAt<'_, G> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for first in self.positions {
            // SAFETY: the promise of the caller of `swish_at`; `slice` checks that the values are inside.
            let row = unsafe { self.values.slice(*first, self.columns) };
            for x in row {
                *x = G::swish::<S>(*x);
            }
        }
    }
}

struct Factors<'a, G> {
    by: &'a [f32],
    function: PhantomData<G>,
}

impl<G: GateFunction> WithSimd for Factors<'_, G> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> Vec<f32> {
        self.by.iter().map(|by| G::value::<S>(*by)).collect()
    }
}

/// Of one image.
struct ExciteGradient<'a, G> {
    x: &'a [f32],
    by: &'a [f32],
    dy: &'a [f32],
    dx: &'a mut [f32],
    dby: &'a mut [f32],
    function: PhantomData<G>,
}

impl<G: GateFunction> WithSimd for ExciteGradient<'_, G> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { x, by, dy, dx, dby, .. } = self;
        let channels = by.len();
        let factors = Factors::<G> { by, function: PhantomData }.with_simd(simd);
        let (mut block, mut all) = (vec![0f32; channels], vec![0f64; channels]);
        let blocks = |values| <[f32]>::chunks(values, BLOCK * channels);
        for ((x, dy), dx) in blocks(x).zip(blocks(dy)).zip(dx.chunks_mut(BLOCK * channels)) {
            let positions = x.chunks_exact(channels).zip(dy.chunks_exact(channels));
            for ((x, dy), dx) in positions.zip(dx.chunks_exact_mut(channels)) {
                for i in 0..channels {
                    dx[i] = dy[i] * factors[i];
                    block[i] += dy[i] * x[i];
                }
            }
            for (all, block) in all.iter_mut().zip(&mut block) {
                *all += f64::from(*block);
                *block = 0.0;
            }
        }
        for (i, dby) in dby.iter_mut().enumerate() {
            let (_, slope) = G::with_slope::<S>(by[i]);
            *dby = all[i] as f32 * slope;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAPS: Maps = Maps { images: 2, height: 9, width: 11, channels: 5 };

    fn values(count: usize, seed: f32) -> Vec<f32> {
        (0..count).map(|i| 5.0 * (i as f32 * 0.7 + seed).sin()).collect()
    }

    fn of(gate: Gate, x: f64) -> f64 {
        match gate {
            Gate::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Gate::HardSigmoid => (x / 6.0 + 0.5).clamp(0.0, 1.0),
        }
    }

    fn slope(gate: Gate, x: f64) -> f64 {
        match gate {
            Gate::Sigmoid => of(gate, x) * (1.0 - of(gate, x)),
            Gate::HardSigmoid if x.abs() < 3.0 => 1.0 / 6.0,
            Gate::HardSigmoid => 0.0,
        }
    }

    fn assert_close(found: &[f32], wanted: impl Iterator<Item = f64>) {
        let wanted: Vec<f64> = wanted.collect();
        assert_eq!(found.len(), wanted.len());
        let largest = wanted.iter().fold(0f64, |largest, value| largest.max(value.abs()));
        for (found, wanted) in found.iter().zip(wanted) {
            assert!((f64::from(*found) - wanted).abs() <= 1e-6 * largest, "{found} instead of {wanted}");
        }
    }

    #[test]
    fn values_and_gradients_are_those_of_the_definition() {
        let (x, dy) = (values(MAPS.len(), 0.3), values(MAPS.len(), 1.1));
        let by = values(MAPS.images * MAPS.channels, 0.9);
        let [wide_x, wide_dy, wide_by] =
            [&x, &dy, &by].map(|values| values.iter().map(|v| f64::from(*v)).collect::<Vec<f64>>());
        let all = 0..MAPS.len();
        let area = MAPS.height * MAPS.width;
        let row = |i: usize| i / (area * MAPS.channels) * MAPS.channels + i % MAPS.channels;
        for gate in [Gate::Sigmoid, Gate::HardSigmoid] {
            let mut found = x.clone();
            let positions: Vec<usize> = (0..MAPS.pixels()).map(|i| i * MAPS.channels).collect();
            // SAFETY: `found` is borrowed mutably.
            unsafe { swish_at(Disjoint::new(&mut found), &positions, MAPS.channels, gate) };
            assert_close(&found, wide_x.iter().map(|&x| x * of(gate, x)));

            let wanted = all.clone().map(|i| wide_x[i] * of(gate, wide_by[row(i)]));
            assert_close(&excite(&x, &by, MAPS, gate), wanted);
            let [dx, dby] = excite_gradient(&x, &by, &dy, MAPS, gate);
            assert_close(&dx, all.clone().map(|i| wide_dy[i] * of(gate, wide_by[row(i)])));
            let mut sums = vec![0.0; by.len()];
            all.clone().for_each(|i| sums[row(i)] += wide_dy[i] * wide_x[i]);
            assert_close(&dby, sums.iter().zip(&wide_by).map(|(sum, &by)| sum * slope(gate, by)));
        }
    }

    #[test]
    fn what_is_no_number_stays_that() {
        for gate in [Gate::Sigmoid, Gate::HardSigmoid] {
            let maps = Maps { images: 1, height: 1, width: 1, channels: 1 };
            assert!(excite(&[1.0], &[f32::NAN], maps, gate)[0].is_nan());
        }
    }
}
