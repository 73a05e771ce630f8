//! Functions that the compiler turns into vector instructions, because they have neither calls nor branches.

/// `e^x` to 2 units in the last place, after Cephes (Moshier 1989). Below -87.3 the least normal number instead of smaller
/// ones. NaN stays NaN.
#[inline(always)]
pub(crate) fn exp(x: f32) -> f32 {
    /// Adding it rounds to a whole number, which is then in the lowest bits.
    const ROUND: f32 = 12_582_912.0;
    const LN_2_HIGH: f32 = 0.693_359_4;
    const LN_2_LOW: f32 = -2.121_944_4e-4;
    let x = if x > 88.0 { 88.0 } else { x };
    let x = if x < -87.3 { -87.3 } else { x };
    let shifted = x * std::f32::consts::LOG2_E + ROUND;
    let n = shifted - ROUND;
    let r = x - n * LN_2_HIGH - n * LN_2_LOW;
    let mut p = 1.987_569_1e-4;
    p = p * r + 1.398_199_9e-3;
    p = p * r + 8.333_452e-3;
    p = p * r + 4.166_579_6e-2;
    p = p * r + 1.666_666_5e-1;
    p = p * r + 0.5;
    let power = f32::from_bits((shifted.to_bits() << 23).wrapping_add(1.0f32.to_bits()));
    (p * r * r + r + 1.0) * power
}

/// `1 / (1 + e^-x)`.
#[inline(always)]
pub(crate) fn sigmoid(x: f32) -> f32 {
    1.0 / (1.0 + exp(-x))
}

/// `s = sigmoid(x)` and its derivative `s (1 - s)`, without the difference.
#[inline(always)]
pub(crate) fn sigmoid_and_slope(x: f32) -> (f32, f32) {
    let e = exp(-x);
    let s = 1.0 / (1.0 + e);
    (s, s * (s * e))
}

/// The error function to 3e-7: a quotient of polynomials in x^2, as in Eigen.
#[inline(always)]
pub(crate) fn erf(x: f32) -> f32 {
    let x = if x > 4.0 { 4.0 } else { x };
    let x = if x < -4.0 { -4.0 } else { x };
    let s = x * x;
    let mut p = -2.726_142_3e-10f32;
    p = p * s + 2.770_681_4e-8;
    p = p * s - 2.101_024e-6;
    p = p * s - 5.692_506_6e-5;
    p = p * s - 7.349_906_5e-4;
    p = p * s - 2.954_6e-3;
    p = p * s - 1.609_603_4e-2;
    let mut q = -1.456_607_2e-5f32;
    q = q * s - 2.133_740_6e-4;
    q = q * s - 1.682_827e-3;
    q = q * s - 7.373_329e-3;
    q = q * s - 1.426_473_9e-2;
    x * p / q
}

#[cfg(test)]
mod tests {
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

    #[test]
    fn functions_are_those_of_the_definition() {
        for i in -4000..=4000 {
            let x = i as f32 / 1000.0;
            assert!((f64::from(erf(x)) - erf_series(f64::from(x))).abs() < 5e-7, "erf {x}");
            let y = x * 20.0;
            let wanted = f64::from(y).exp();
            assert!((f64::from(exp(y)) - wanted).abs() <= 3e-7 * wanted, "exp {y}");
            let wanted = 1.0 / (1.0 + (-f64::from(x)).exp());
            assert!((f64::from(sigmoid(x)) - wanted).abs() < 3e-7, "sigmoid {x}");
        }
        assert_eq!([erf(9.0), erf(-9.0)].map(|v| (v.abs() - 1.0).abs() < 1e-6), [true; 2]);
        assert!(exp(f32::NAN).is_nan() && erf(f32::NAN).is_nan() && sigmoid(f32::NAN).is_nan());
        assert!(exp(f32::NEG_INFINITY) < 2e-38 && exp(f32::INFINITY) > 1e38 && exp(0.0) == 1.0);
    }
}
