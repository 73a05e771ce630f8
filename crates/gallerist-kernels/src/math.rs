//! Functions that the compiler turns into vector instructions, because they have neither calls nor branches.
//!
//! `S` are the instructions that the caller is compiled for, as in [`pulp::WithSimd`]: with those of a vector unit, sums of
//! products are rounded once.

use std::f32::consts::{LN_2, LOG2_E};

use pulp::Simd;

/// `a b + c`.
#[inline(always)]
fn fused<S: Simd>(a: f32, b: f32, c: f32) -> f32 {
    if S::IS_SCALAR { a * b + c } else { a.mul_add(b, c) }
}

/// `c[0] x^(n - 1) + .. + c[n - 1]`.
#[inline(always)]
fn polynomial<S: Simd, const N: usize>(x: f32, c: [f32; N]) -> f32 {
    let mut p = c[0];
    let mut i = 1;
    while i < N {
        p = fused::<S>(p, x, c[i]);
        i += 1;
    }
    p
}

/// `2^(factor x)` as two factors, of which the second is a power of 2; `factor` is `LOG2_E` or its negative.
///
/// It is 0 below `2^-126.5`, and values of `x` above 88 in amount are as 88. The relative error is 2e-7, plus 1.5e-8 (7e-8 for
/// [`pulp::Scalar`]) times the amount of `x`, because `factor` is rounded. NaN stays NaN in the first result.
#[inline(always)]
fn power_of_e<S: Simd>(x: f32, factor: f32) -> (f32, f32) {
    /// Adding it rounds to a whole number, which is then in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    /// `2^x` between -1/2 and 1/2 with the least largest relative error, 1.05e-7, of those with its value and slope at 0.
    const POWER_OF_2: [f32; 6] = [1.330_060_7e-3, 9.669_691e-3, 5.550_558_5e-2, 2.402_228_3e-1, LN_2, 1.0];
    let x = if x > 88.0 { 88.0 } else { x };
    let x = if x < -88.0 { -88.0 } else { x };
    let shifted = fused::<S>(x, factor, ROUND);
    let rest = fused::<S>(x, factor, ROUND - shifted);
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits()));
    (polynomial::<S, 6>(rest, POWER_OF_2), power)
}

/// `e^x`; 0 below -87.7, and `e^88` above 88. The relative error is 2e-7, plus 1.5e-8 (7e-8 for [`pulp::Scalar`]) times the
/// amount of `x`. NaN stays NaN.
#[inline(always)]
pub(crate) fn exp<S: Simd>(x: f32) -> f32 {
    let (value, power) = power_of_e::<S>(x, LOG2_E);
    value * power
}

/// `factor / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn times_sigmoid<S: Simd>(factor: f32, x: f32) -> f32 {
    let (value, power) = power_of_e::<S>(x, -LOG2_E);
    factor / fused::<S>(value, power, 1.0)
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(x: f32) -> f32 {
    times_sigmoid::<S>(1.0, x)
}

/// `s = sigmoid(x)` and its derivative `s (1 - s)`, without the difference.
#[inline(always)]
pub(crate) fn sigmoid_and_slope<S: Simd>(x: f32) -> (f32, f32) {
    let (value, power) = power_of_e::<S>(x, -LOG2_E);
    let s = 1.0 / fused::<S>(value, power, 1.0);
    (s, s * (s * (value * power)))
}

/// The error function to 3e-7: a quotient of polynomials in x^2, as in Eigen.
#[inline(always)]
pub(crate) fn erf<S: Simd>(x: f32) -> f32 {
    const ABOVE: [f32; 7] = [
        -2.726_142_3e-10,
        2.770_681_4e-8,
        -2.101_024e-6,
        -5.692_506_6e-5,
        -7.349_906_5e-4,
        -2.954_6e-3,
        -1.609_603_4e-2,
    ];
    const BELOW: [f32; 5] = [-1.456_607_2e-5, -2.133_740_6e-4, -1.682_827e-3, -7.373_329e-3, -1.426_473_9e-2];
    let x = if x > 4.0 { 4.0 } else { x };
    let x = if x < -4.0 { -4.0 } else { x };
    let s = x * x;
    x * polynomial::<S, 7>(s, ABOVE) / polynomial::<S, 5>(s, BELOW)
}

#[cfg(test)]
mod tests {
    use pulp::WithSimd;

    use super::*;

    /// The Taylor series, which converges everywhere; in f64 it is good to 1e-9 up to 4.
    fn erf_series(x: f64) -> f64 {
        let (mut term, mut sum) = (x, x);
        for n in 1..200 {
            term *= -x * x / n as f64;
            sum += term / (2 * n + 1) as f64;
        }
        sum * 2.0 / std::f64::consts::PI.sqrt()
    }

    /// Runs the checks compiled for one set of instructions.
    struct Checks;
    impl WithSimd for Checks {
        type Output = ();
        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) {
            check::<S>();
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "8,000 values; the functions have no unsafe code")]
    fn functions_are_those_of_the_definition() {
        check::<pulp::Scalar>();
        gallerist_util::simd::run(Checks);
    }

    #[inline(always)]
    fn check<S: Simd>() {
        for i in -4000..=4000 {
            let x = i as f32 / 1000.0;
            assert!((f64::from(erf::<S>(x)) - erf_series(f64::from(x))).abs() < 5e-7, "erf {x}");
            let y = x * 20.0;
            let wanted = f64::from(y).exp();
            let bound = 2e-7 + f64::from(y.abs()) * if S::IS_SCALAR { 7e-8 } else { 1.5e-8 };
            assert!((f64::from(exp::<S>(y)) - wanted).abs() <= bound * wanted, "exp {y}");
            let wanted = 1.0 / (1.0 + (-f64::from(x)).exp());
            let (s, slope) = sigmoid_and_slope::<S>(x);
            assert!((f64::from(s) - wanted).abs() < 1.5e-7, "sigmoid {x}");
            assert!((f64::from(slope) - wanted * (1.0 - wanted)).abs() < 1e-7, "slope {x}");
            assert_eq!(sigmoid::<S>(x), s, "sigmoid {x}");
            let product = f64::from(times_sigmoid::<S>(x, x));
            let x = f64::from(x);
            assert!((product - x * wanted).abs() < 1.5e-7 * (1.0 + x.abs()), "x sigmoid {x}");
        }
        assert_eq!([erf::<S>(9.0), erf::<S>(-9.0)].map(|v| (v.abs() - 1.0).abs() < 1e-6), [true; 2]);
        for nan in [f32::NAN, -f32::NAN, f32::from_bits(0x7fff_ffff)] {
            assert!([exp::<S>(nan), erf::<S>(nan), sigmoid::<S>(nan)].map(f32::is_nan) == [true; 3]);
        }
        assert!(exp::<S>(f32::NEG_INFINITY) == 0.0 && exp::<S>(f32::INFINITY) > 1e38 && exp::<S>(0.0) == 1.0);
    }
}
