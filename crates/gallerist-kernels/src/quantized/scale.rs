//! Bytes for values.

/// The bytes for the values of a layer: `value = step * (byte - zero)`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Scale {
    pub(crate) step: f32,
    pub(crate) zero: u8,
}

impl Scale {
    /// The scale whose bytes cover a range of values, and 0.
    pub(crate) fn of([low, high]: [f32; 2]) -> Self {
        let (low, high) = (low.min(0.0), high.max(0.0));
        let step = (high - low) / 255.0;
        if step < f32::MIN_POSITIVE {
            return Self { step: 1.0, zero: 0 };
        }
        Self { step, zero: (-low / step).round_ties_even() as u8 }
    }

    /// The value as a byte before it is rounded and kept within 0 and 255.
    pub(crate) fn position(self, value: f32) -> f32 {
        value / self.step + f32::from(self.zero)
    }
}

/// The nearest byte, of equally near ones the even one; 0 for NaN.
#[inline(always)]
pub(super) fn rounded(position: f32) -> u8 {
    position.round_ties_even() as u8
}
