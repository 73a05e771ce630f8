//! Loops over a row of values, written so that the compiler fills vector registers with them.
//!
//! A sum of floats in order is a chain the compiler may not reorder. Here every reduction keeps
//! [`LANES`] partial results and adds them up at the end, always in the same way: the bits depend
//! neither on the width of the registers nor on the number of threads. No fused multiply-add is
//! used outside the matrix products, for the same reason.
//!
//! The functions are inlined into what [`gallerist_util::simd::vectorize`] runs, and compiled there for the widest
//! instruction set of the processor. They loop by index and call only what is inlined even where the compiler divides a
//! crate into several units: `Iterator::sum`, `Iterator::zip` and a closure that is passed by reference are not.

use std::ops::AddAssign;

use crate::engine::real::Real;

/// Partial results of a reduction: one AVX-512 register of `f32`.
pub const LANES: usize = 16;

/// `log(1 + e^x)`.
#[inline(always)]
pub fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub fn sigmoid<F: Real>(x: F) -> F {
    F::ONE / (F::ONE + (-x).exp())
}

/// `factor` times the derivative of [`sigmoid`], without cancellation where that is near 0.
#[inline(always)]
pub fn sigmoid_slope<F: Real>(factor: F, x: F) -> F {
    let small = (-x.abs()).exp();
    let whole = F::ONE + small;
    factor * small / (whole * whole)
}

/// The larger value.
#[inline(always)]
pub fn larger<F: Real>(a: F, b: F) -> F {
    if a > b { a } else { b }
}

/// The smaller value.
#[inline(always)]
pub fn smaller<F: Real>(a: F, b: F) -> F {
    if a < b { a } else { b }
}

/// `start` joined with `f` of every value, lane by lane; the lanes are joined at the end.
#[inline(always)]
fn reduce<F: Real>(values: &[F], start: F, join: impl Fn(F, F) -> F, f: impl Fn(F) -> F) -> F {
    let mut lanes = [start; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] = join(lanes[lane], f(chunk[lane]));
        }
    }
    for lane in 0..rest.len() {
        lanes[lane] = join(lanes[lane], f(rest[lane]));
    }
    let mut all = start;
    for lane in lanes {
        all = join(all, lane);
    }
    all
}

/// The sum of the partial results.
#[inline(always)]
pub(super) fn total<T: Copy + AddAssign, const N: usize>(lanes: [T; N]) -> T {
    let mut total = lanes[0];
    for lane in 1..N {
        total += lanes[lane];
    }
    total
}

/// Sum of `f` over the values.
#[inline(always)]
pub fn sum<F: Real>(values: &[F], f: impl Fn(F) -> F) -> F {
    reduce(values, F::ZERO, |a, b| a + b, f)
}

/// Largest `f` of a value; minus infinity without any.
#[inline(always)]
pub fn largest<F: Real>(values: &[F], f: impl Fn(F) -> F) -> F {
    reduce(values, F::NEG_INFINITY, larger, f)
}

/// Smallest `f` of a value; infinity without any.
#[inline(always)]
pub fn smallest<F: Real>(values: &[F], f: impl Fn(F) -> F) -> F {
    reduce(values, F::INFINITY, smaller, f)
}

/// Number of values that `fits`.
#[inline(always)]
pub fn count<F: Real>(values: &[F], fits: impl Fn(F) -> bool) -> u32 {
    let mut lanes = [0u32; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] = lanes[lane].wrapping_add(u32::from(fits(chunk[lane])));
        }
    }
    for lane in 0..rest.len() {
        lanes[lane] = lanes[lane].wrapping_add(u32::from(fits(rest[lane])));
    }
    total(lanes)
}

/// Writes `f(value)` (a pair: what is written, what is summed) for every value; returns the sum.
#[inline(always)]
pub fn map_sum<F: Real>(values: &[F], to: &mut [F], f: impl Fn(F) -> (F, F)) -> F {
    assert_eq!(values.len(), to.len(), "a row of {} values and {} places", values.len(), to.len());
    let mut lanes = [F::ZERO; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    let (to_chunks, to_rest) = to.as_chunks_mut::<LANES>();
    for i in 0..chunks.len() {
        let (chunk, to) = (&chunks[i], &mut to_chunks[i]);
        for lane in 0..LANES {
            let (written, summed) = f(chunk[lane]);
            to[lane] = written;
            lanes[lane] += summed;
        }
    }
    for lane in 0..rest.len() {
        let (written, summed) = f(rest[lane]);
        to_rest[lane] = written;
        lanes[lane] += summed;
    }
    total(lanes)
}

/// Adds the first part of `f(value)` to every place of `to`; returns the sum of the second.
#[inline(always)]
pub fn add_map_sum<F: Real>(values: &[F], to: &mut [F], f: impl Fn(F) -> (F, F)) -> F {
    assert_eq!(values.len(), to.len(), "a row of {} values and {} places", values.len(), to.len());
    let mut lanes = [F::ZERO; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    let (to_chunks, to_rest) = to.as_chunks_mut::<LANES>();
    for i in 0..chunks.len() {
        let (chunk, to) = (&chunks[i], &mut to_chunks[i]);
        for lane in 0..LANES {
            let (added, summed) = f(chunk[lane]);
            to[lane] += added;
            lanes[lane] += summed;
        }
    }
    for lane in 0..rest.len() {
        let (added, summed) = f(rest[lane]);
        to_rest[lane] += added;
        lanes[lane] += summed;
    }
    total(lanes)
}

/// Writes `exp(scale (value - best))` for every value, with the best value the one that has the largest exponent, and 0
/// where a value is minus infinity. Returns the sum of what it wrote, and the logarithm of the sum of
/// `exp(scale value)`.
#[inline(always)]
pub fn exp_sum<F: Real>(values: &[F], to: &mut [F], scale: f64) -> (F, f64) {
    let best = if scale >= 0.0 {
        largest(values, |v| v)
    } else {
        -largest(values, |v| if v > F::NEG_INFINITY { -v } else { v })
    };
    let factor = F::of(scale);
    let total = map_sum(values, to, |v| {
        let raw = if v > F::NEG_INFINITY { (factor * (v - best)).exp() } else { F::ZERO };
        (raw, raw)
    });
    (total, scale * best.wide() + total.wide().ln())
}

/// Sum of `weight * f(value)`.
#[inline(always)]
pub fn weighted_sum<F: Real>(weights: &[F], values: &[F], f: impl Fn(F) -> F) -> F {
    assert_eq!(values.len(), weights.len(), "{} values and {} weights", values.len(), weights.len());
    let mut lanes = [F::ZERO; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    let (weight_chunks, weight_rest) = weights.as_chunks::<LANES>();
    for i in 0..chunks.len() {
        let (chunk, weights) = (&chunks[i], &weight_chunks[i]);
        for lane in 0..LANES {
            lanes[lane] += weights[lane] * f(chunk[lane]);
        }
    }
    for lane in 0..rest.len() {
        lanes[lane] += weight_rest[lane] * f(rest[lane]);
    }
    total(lanes)
}

/// Multiplies every value.
#[inline(always)]
pub fn scale<F: Real>(values: &mut [F], factor: F) {
    for value in values {
        *value *= factor;
    }
}

/// Index of the first value equal to `wanted`.
#[inline(always)]
pub fn position<F: Real>(values: &[F], wanted: F) -> usize {
    let (chunks, rest) = values.as_chunks::<LANES>();
    for (i, chunk) in chunks.iter().enumerate() {
        let mut found = false;
        for lane in 0..LANES {
            found |= chunk[lane] == wanted;
        }
        if found {
            let lane = chunk.iter().position(|&value| value == wanted).expect("a lane was equal");
            return i * LANES + lane;
        }
    }
    let rest = rest.iter().position(|&value| value == wanted).expect("the value is one of the row");
    chunks.len() * LANES + rest
}

/// Adds `factor * from` to `to`.
#[inline(always)]
pub fn add_scaled<F: Real>(to: &mut [F], factor: F, from: &[F]) {
    update(to, from, |to, from| to + factor * from);
}

/// Replaces every place of `to` by `f` of its value and the value at the same place of `from`.
#[inline(always)]
pub fn update<F: Real>(to: &mut [F], from: &[F], f: impl Fn(F, F) -> F) {
    assert_eq!(from.len(), to.len(), "a row of {} values and {} places", from.len(), to.len());
    for i in 0..from.len() {
        to[i] = f(to[i], from[i]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reductions_do_not_miss_the_last_values() {
        for n in [0, 1, 15, 16, 17, 33] {
            let values: Vec<f32> = (0..n).map(|i| ((i * 7) % 11) as f32).collect();
            assert_eq!(sum(&values, |v| v), values.iter().sum::<f32>());
            assert_eq!(largest(&values, |v| v), values.iter().copied().fold(f32::NEG_INFINITY, f32::max));
            assert_eq!(smallest(&values, |v| -v), values.iter().map(|v| -v).fold(f32::INFINITY, f32::min));
            assert_eq!(count(&values, |v| v > 4.0) as usize, values.iter().filter(|v| **v > 4.0).count());
            let mut to = vec![9.0; n];
            assert_eq!(map_sum(&values, &mut to, |v| (v + 1.0, v)), values.iter().sum::<f32>());
            assert!(to.iter().zip(&values).all(|(a, b)| *a == b + 1.0));
            for value in &values {
                assert_eq!(position(&values, *value), values.iter().position(|v| v == value).unwrap());
            }
        }
    }
}
