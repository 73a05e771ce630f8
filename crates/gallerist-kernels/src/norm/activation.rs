//! Activations.

use pulp::Simd;

/// The function that is applied to every value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    #[default]
    None,
    /// `max(x, 0)`.
    Relu,
    /// `min(max(x, 0), 6)`.
    Relu6,
}

impl Activation {
    pub(crate) fn bounds(self) -> Bounds {
        let (low, high) = match self {
            Activation::None => (f32::NEG_INFINITY, f32::INFINITY),
            Activation::Relu => (0.0, f32::INFINITY),
            Activation::Relu6 => (0.0, 6.0),
        };
        Bounds { low, high }
    }
}

/// An activation as the bounds that values are kept within. NaN stays NaN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    low: f32,
    high: f32,
}

impl Bounds {
    #[inline(always)]
    pub(crate) fn value(self, x: f32) -> f32 {
        let x = if x <= self.low { self.low } else { x };
        if x >= self.high { self.high } else { x }
    }

    /// The least and the largest value.
    pub(crate) fn ends(self) -> [f32; 2] {
        [self.low, self.high]
    }

    /// Whether there is a bound.
    pub(crate) fn is_bounded(self) -> bool {
        self.low > f32::NEG_INFINITY || self.high < f32::INFINITY
    }

    /// [`Self::value`] of a vector, up to the sign of zeros.
    #[inline(always)]
    pub(crate) fn vector<S: Simd>(self, simd: S, x: S::f32s) -> S::f32s {
        let (low, high) = (simd.splat_f32s(self.low), simd.splat_f32s(self.high));
        if S::F32_LANES > 1 {
            // Of a bound and NaN, vector instructions return NaN: x86 returns the second operand, ARM the one that is NaN.
            return simd.min_f32s(high, simd.max_f32s(low, x));
        }
        let x = simd.select_f32s(simd.less_than_or_equal_f32s(x, low), low, x);
        simd.select_f32s(simd.greater_than_or_equal_f32s(x, high), high, x)
    }

    /// The gradient of `x` from that of `value(x)`; `x` may be `value(x)` itself.
    #[inline(always)]
    pub(super) fn gradient(self, x: f32, dy: f32) -> f32 {
        if x <= self.low || x >= self.high { 0.0 } else { dy }
    }
}
