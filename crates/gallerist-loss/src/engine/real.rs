//! The two precisions of the engine.

use std::cell::RefCell;
use std::fmt::Debug;
use std::iter::Sum;
use std::ops::{Add, AddAssign, Div, Mul, MulAssign, Neg, Sub, SubAssign};

use burn::backend::flex::FlexTensor;
use burn::tensor::{DType, Element};
use gallerist_collective::{Collective, bytes_of, numbers_of};
use gallerist_kernels::RowValue;
use gallerist_util::simd::{Work, vectorize};

mod sealed {
    pub trait Sealed {}
    impl Sealed for f32 {}
    impl Sealed for f64 {}
}

/// `f32` or `f64`: the precision in which a list loss computes.
pub trait Real:
    sealed::Sealed
    + Element
    + RowValue
    + Debug
    + Default
    + PartialOrd
    + Add<Output = Self>
    + Sub<Output = Self>
    + Mul<Output = Self>
    + Div<Output = Self>
    + Neg<Output = Self>
    + AddAssign
    + SubAssign
    + MulAssign
    + Sum
    + 'static
{
    /// 0.
    const ZERO: Self;
    /// 1.
    const ONE: Self;
    /// Infinity.
    const INFINITY: Self;
    /// Minus infinity.
    const NEG_INFINITY: Self;
    /// The dtype of tensors of this type.
    const DTYPE: DType;

    /// The nearest value.
    fn of(value: f64) -> Self;

    /// The value in double precision.
    fn wide(self) -> f64;

    /// The values in single precision.
    #[doc(hidden)]
    fn narrowed(values: Vec<Self>) -> Vec<f32>;

    /// `e^x`, for values that are not NaN.
    fn exp(self) -> Self;

    /// The square root.
    fn sqrt(self) -> Self;

    /// The absolute value.
    fn abs(self) -> Self;

    /// The values of a contiguous tensor of this type.
    #[doc(hidden)]
    fn slice(tensor: &FlexTensor) -> Option<&[Self]>;

    /// Runs the work on rows: compiled for the widest instruction set in f32; in f64, which is for reference and for
    /// rows whose norms overflow f32, compiled once.
    #[doc(hidden)]
    fn run<W: Work>(work: W) -> W::Output;

    /// Replaces the values by their sums over the ranks.
    #[doc(hidden)]
    fn add_over(ranks: &dyn Collective, values: &mut [Self]) -> gallerist_collective::Result<()>;

    /// Memory that the thread kept from an earlier step.
    #[doc(hidden)]
    fn take_block() -> Vec<Self>;

    /// Keeps memory for the next step.
    #[doc(hidden)]
    fn keep_block(block: Vec<Self>);
}

/// Bytes of a block of memory that is kept.
const MOST_KEPT: usize = 32 << 20;

thread_local! {
    /// Kept from step to step: fresh memory costs a page fault per 4 KiB.
    static BLOCKS: RefCell<Vec<Vec<f32>>> = const { RefCell::new(Vec::new()) };
}

impl Real for f32 {
    const ZERO: f32 = 0.0;
    const ONE: f32 = 1.0;
    const INFINITY: f32 = f32::INFINITY;
    const NEG_INFINITY: f32 = f32::NEG_INFINITY;
    const DTYPE: DType = DType::F32;

    fn run<W: Work>(work: W) -> W::Output {
        vectorize(work)
    }

    #[inline(always)]
    fn of(value: f64) -> f32 {
        value as f32
    }

    #[inline(always)]
    fn wide(self) -> f64 {
        f64::from(self)
    }

    fn narrowed(values: Vec<f32>) -> Vec<f32> {
        values
    }

    #[inline(always)]
    fn exp(self) -> f32 {
        exp(self)
    }

    #[inline(always)]
    fn sqrt(self) -> f32 {
        f32::sqrt(self)
    }

    #[inline(always)]
    fn abs(self) -> f32 {
        f32::abs(self)
    }

    fn slice(tensor: &FlexTensor) -> Option<&[f32]> {
        tensor.as_slice::<f32>()
    }

    fn add_over(ranks: &dyn Collective, values: &mut [f32]) -> gallerist_collective::Result<()> {
        ranks.all_reduce(values)
    }

    fn take_block() -> Vec<f32> {
        BLOCKS.with_borrow_mut(|blocks| blocks.pop().unwrap_or_default())
    }

    fn keep_block(block: Vec<f32>) {
        if size_of_val(&block[..]) <= MOST_KEPT {
            BLOCKS.with_borrow_mut(|blocks| blocks.push(block));
        }
    }
}

impl Real for f64 {
    const ZERO: f64 = 0.0;
    const ONE: f64 = 1.0;
    const INFINITY: f64 = f64::INFINITY;
    const NEG_INFINITY: f64 = f64::NEG_INFINITY;
    const DTYPE: DType = DType::F64;

    fn run<W: Work>(work: W) -> W::Output {
        work.run()
    }

    #[inline(always)]
    fn of(value: f64) -> f64 {
        value
    }

    #[inline(always)]
    fn wide(self) -> f64 {
        self
    }

    fn narrowed(values: Vec<f64>) -> Vec<f32> {
        values.into_iter().map(|value| value as f32).collect()
    }

    #[inline(always)]
    fn exp(self) -> f64 {
        f64::exp(self)
    }

    #[inline(always)]
    fn sqrt(self) -> f64 {
        f64::sqrt(self)
    }

    #[inline(always)]
    fn abs(self) -> f64 {
        f64::abs(self)
    }

    fn slice(tensor: &FlexTensor) -> Option<&[f64]> {
        tensor.as_slice::<f64>()
    }

    fn add_over(ranks: &dyn Collective, values: &mut [f64]) -> gallerist_collective::Result<()> {
        let all = ranks.all_gather_any(bytes_of(values))?;
        values.fill(0.0);
        for of_rank in all {
            values.iter_mut().zip(numbers_of::<f64>(&of_rank)).for_each(|(sum, value)| *sum += value);
        }
        Ok(())
    }

    fn take_block() -> Vec<f64> {
        Vec::new()
    }

    fn keep_block(_: Vec<f64>) {}
}

/// `e^x` with an error below 2 units in the last place.
///
/// Below -87.3 the result is subnormal and loses bits, below -104 it is 0; above 88.7 it is infinite.
/// NaN is not handled: it gives 0.
#[inline(always)]
fn exp(x: f32) -> f32 {
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
}
