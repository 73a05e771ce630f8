//! Loops over a row of values, written so that the compiler fills vector registers with them.
//!
//! A sum of floats in order is a chain the compiler may not reorder. Here every reduction keeps
//! [`LANES`] partial results and adds them up at the end, always in the same way: the bits depend
//! neither on the width of the registers nor on the number of threads. No fused multiply-add is
//! used outside the matrix products, for the same reason.
//!
//! The functions are inlined into what [`gallerist_util::simd::vectorize`] runs, and compiled there for the widest
//! instruction set of the processor.

/// Partial results of a reduction: one AVX-512 register of `f32`.
pub(super) const LANES: usize = 16;

/// `e^x` with an error below 2 units in the last place.
///
/// Below -87.3 the result is subnormal and loses bits, below -104 it is 0; above 88.7 it is infinite.
/// NaN is not handled: it gives 0.
#[inline(always)]
pub(super) fn exp(x: f32) -> f32 {
    // 1.5 * 2^23: adding it rounds to an integer and leaves that integer in the low bits.
    const ROUND: f32 = 12_582_912.0;
    // ln 2 in two parts; the first has so few bits that its product with the exponent is exact.
    const LN2_HIGH: f32 = 0.693_359_4;
    const LN2_LOW: f32 = -2.121_944_4e-4;
    let x = if x > -110.0 { x } else { -110.0 };
    let x = if x < 89.0 { x } else { 89.0 };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let power = shifted - ROUND;
    let rest = (x - power * LN2_HIGH) - power * LN2_LOW;
    // Cephes' expf: (e^r - 1 - r) / r^2 on |r| <= ln 2 / 2.
    let mut series = 1.987_569_1e-4;
    series = series * rest + 1.398_199_9e-3;
    series = series * rest + 8.333_452e-3;
    series = series * rest + 4.166_579_6e-2;
    series = series * rest + 1.666_666_5e-1;
    series = series * rest + 0.5;
    let value = series * (rest * rest) + rest + 1.0;
    // 2^power in two factors: power reaches from -159 to 128, an exponent only from -126 to 127.
    let power = (shifted.to_bits() as i32).wrapping_sub(ROUND.to_bits() as i32);
    let half = power >> 1;
    let two_to = |power: i32| f32::from_bits((power.wrapping_add(127) as u32) << 23);
    value * two_to(half) * two_to(power.wrapping_sub(half))
}

#[inline(always)]
pub(super) fn larger(a: f32, b: f32) -> f32 {
    if a > b { a } else { b }
}

#[inline(always)]
pub(super) fn smaller(a: f32, b: f32) -> f32 {
    if a < b { a } else { b }
}

/// `start` joined with `f` of every value, lane by lane; the lanes are joined at the end.
#[inline(always)]
fn reduce(values: &[f32], start: f32, join: impl Fn(f32, f32) -> f32, f: impl Fn(f32) -> f32) -> f32 {
    let mut lanes = [start; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] = join(lanes[lane], f(chunk[lane]));
        }
    }
    for (lane, value) in rest.iter().enumerate() {
        lanes[lane] = join(lanes[lane], f(*value));
    }
    lanes.iter().fold(start, |a, &b| join(a, b))
}

/// Sum of `f` over the values.
#[inline(always)]
pub(super) fn sum(values: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    reduce(values, 0.0, |a, b| a + b, f)
}

/// Largest `f` of a value; minus infinity without any.
#[inline(always)]
pub(super) fn largest(values: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    reduce(values, f32::NEG_INFINITY, larger, f)
}

/// Smallest `f` of a value; infinity without any.
#[inline(always)]
pub(super) fn smallest(values: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    reduce(values, f32::INFINITY, smaller, f)
}

/// Number of values that `fits`.
#[inline(always)]
pub(super) fn count(values: &[f32], fits: impl Fn(f32) -> bool) -> u32 {
    let mut lanes = [0u32; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    for chunk in chunks {
        for lane in 0..LANES {
            lanes[lane] = lanes[lane].wrapping_add(u32::from(fits(chunk[lane])));
        }
    }
    for (lane, value) in rest.iter().enumerate() {
        lanes[lane] = lanes[lane].wrapping_add(u32::from(fits(*value)));
    }
    lanes.iter().sum()
}

/// Writes `f(value)` (a pair: what is written, what is summed) for every value; returns the sum.
#[inline(always)]
pub(super) fn map_sum(values: &[f32], to: &mut [f32], f: impl Fn(f32) -> (f32, f32)) -> f32 {
    assert_eq!(values.len(), to.len(), "a row of {} values and {} places", values.len(), to.len());
    let mut lanes = [0f32; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    let (to_chunks, to_rest) = to.as_chunks_mut::<LANES>();
    for (chunk, to) in chunks.iter().zip(to_chunks) {
        for lane in 0..LANES {
            let (written, summed) = f(chunk[lane]);
            to[lane] = written;
            lanes[lane] += summed;
        }
    }
    for (lane, (value, to)) in rest.iter().zip(to_rest).enumerate() {
        let (written, summed) = f(*value);
        *to = written;
        lanes[lane] += summed;
    }
    lanes.iter().sum()
}

/// Adds the first part of `f(value)` to every place of `to`; returns the sum of the second.
#[inline(always)]
pub(super) fn add_map_sum(values: &[f32], to: &mut [f32], f: impl Fn(f32) -> (f32, f32)) -> f32 {
    assert_eq!(values.len(), to.len(), "a row of {} values and {} places", values.len(), to.len());
    let mut lanes = [0f32; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    let (to_chunks, to_rest) = to.as_chunks_mut::<LANES>();
    for (chunk, to) in chunks.iter().zip(to_chunks) {
        for lane in 0..LANES {
            let (added, summed) = f(chunk[lane]);
            to[lane] += added;
            lanes[lane] += summed;
        }
    }
    for (lane, (value, to)) in rest.iter().zip(to_rest).enumerate() {
        let (added, summed) = f(*value);
        *to += added;
        lanes[lane] += summed;
    }
    lanes.iter().sum()
}

/// Sum of `weight * f(value)`.
#[inline(always)]
pub(super) fn weighted_sum(weights: &[f32], values: &[f32], f: impl Fn(f32) -> f32) -> f32 {
    assert_eq!(values.len(), weights.len(), "{} values and {} weights", values.len(), weights.len());
    let mut lanes = [0f32; LANES];
    let (chunks, rest) = values.as_chunks::<LANES>();
    let (weight_chunks, weight_rest) = weights.as_chunks::<LANES>();
    for (chunk, weights) in chunks.iter().zip(weight_chunks) {
        for lane in 0..LANES {
            lanes[lane] += weights[lane] * f(chunk[lane]);
        }
    }
    for (lane, (value, weight)) in rest.iter().zip(weight_rest).enumerate() {
        lanes[lane] += weight * f(*value);
    }
    lanes.iter().sum()
}

/// Multiplies every value.
#[inline(always)]
pub(super) fn scale(values: &mut [f32], factor: f32) {
    for value in values {
        *value *= factor;
    }
}

/// Index of the first value equal to `wanted`.
#[inline(always)]
pub(super) fn position(values: &[f32], wanted: f32) -> usize {
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
pub(super) fn add_scaled(to: &mut [f32], factor: f32, from: &[f32]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += factor * from;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Exp<'a>(&'a mut [f32]);

    impl gallerist_util::simd::Work for Exp<'_> {
        type Output = ();

        #[inline(always)]
        fn run(self) {
            self.0.iter_mut().for_each(|x| *x = exp(*x));
        }
    }

    #[test]
    fn exp_is_right_to_two_units_in_the_last_place() {
        let mut worst = 0f64;
        let points: Vec<f32> =
            (0..=2_000_000).map(|step| (-87.3 + step as f64 * (175.9 / 2e6)) as f32).collect();
        let mut found = points.clone();
        gallerist_util::simd::vectorize(Exp(&mut found));
        for (&x, &found) in points.iter().zip(&found) {
            assert_eq!(found.to_bits(), exp(x).to_bits(), "every instruction set gives the same bits");
            let wanted = f64::from(x).exp();
            let unit = f64::from((wanted as f32).next_up() - wanted as f32);
            worst = worst.max((f64::from(found) - wanted).abs() / unit);
        }
        assert!(worst < 2.0, "{worst} units in the last place");
    }

    #[test]
    fn exp_ends_in_zero_and_in_infinity() {
        assert_eq!(exp(0.0), 1.0);
        assert_eq!(exp(f32::NEG_INFINITY), 0.0);
        assert_eq!(exp(-200.0), 0.0);
        assert_eq!(exp(f32::INFINITY), f32::INFINITY);
        assert_eq!(exp(1e30), f32::INFINITY);
        let subnormal = exp(-100.0);
        assert!((f64::from(subnormal) / (-100f64).exp() - 1.0).abs() < 0.02, "{subnormal:e}");
    }

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
