//! Functions that the compiler turns into vector instructions, because they have neither calls nor branches.
//!
//! `S` are the instructions that the caller is compiled for, as in [`pulp::WithSimd`]: with those of a vector unit, sums of
//! products are rounded once.

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

/// `e^x` to 2 units in the last place, after Cephes (Moshier 1989). Below -87.3 the least normal number instead of smaller
/// ones. NaN stays NaN.
#[inline(always)]
pub(crate) fn exp<S: Simd>(x: f32) -> f32 {
    /// Adding it rounds to a whole number, which is then in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    const TAYLOR: [f32; 6] =
        [1.987_569_1e-4, 1.398_199_9e-3, 8.333_452e-3, 4.166_579_6e-2, 1.666_666_5e-1, 0.5];
    let x = if x > 88.0 { 88.0 } else { x };
    let x = if x < -87.3 { -87.3 } else { x };
    let shifted = fused::<S>(x, std::f32::consts::LOG2_E, ROUND);
    let n = shifted - ROUND;
    let r = fused::<S>(n, -LN_2_LOW, fused::<S>(n, -LN_2_HIGH, x));
    let p = polynomial::<S, 6>(r, TAYLOR);
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits()));
    (fused::<S>(p * r, r, r) + 1.0) * power
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn sigmoid<S: Simd>(x: f32) -> f32 {
    1.0 / (1.0 + exp::<S>(-x))
}

/// `s = sigmoid(x)` and its derivative `s (1 - s)`, without the difference.
#[inline(always)]
pub(crate) fn sigmoid_and_slope<S: Simd>(x: f32) -> (f32, f32) {
    let e = exp::<S>(-x);
    let s = 1.0 / (1.0 + e);
    (s, s * (s * e))
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
            assert!((f64::from(exp::<S>(y)) - wanted).abs() <= 3e-7 * wanted, "exp {y}");
            let wanted = 1.0 / (1.0 + (-f64::from(x)).exp());
            assert!((f64::from(sigmoid::<S>(x)) - wanted).abs() < 3e-7, "sigmoid {x}");
        }
        assert_eq!([erf::<S>(9.0), erf::<S>(-9.0)].map(|v| (v.abs() - 1.0).abs() < 1e-6), [true; 2]);
        assert!(
            exp::<S>(f32::NAN).is_nan() && erf::<S>(f32::NAN).is_nan() && sigmoid::<S>(f32::NAN).is_nan()
        );
        assert!(
            exp::<S>(f32::NEG_INFINITY) < 2e-38 && exp::<S>(f32::INFINITY) > 1e38 && exp::<S>(0.0) == 1.0
        );
    }
}
