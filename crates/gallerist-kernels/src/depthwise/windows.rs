//! The windows of a depthwise convolution, one position after the other.

use std::ops::Range;

use pulp::Simd;

use crate::disjoint::Disjoint;
use crate::norm::{Activation, Bounds};

/// Positions whose sums are kept in registers: each tap's weight is loaded once for all of them.
const POSITIONS: usize = 8;

/// For every window of `windows`, the sum of its taps' values times `weights`.
pub(crate) struct Product<'a> {
    pub(crate) x: &'a [f32],
    /// All of as many taps.
    pub(crate) windows: &'a [Windows<'a>],
    /// A row of `channels` for every tap.
    pub(crate) weights: &'a [f32],
    pub(crate) channels: usize,
    pub(crate) out: Disjoint<'a>,
    /// A value per channel that is added, and what follows.
    pub(crate) finish: Option<(&'a [f32], Activation)>,
}

/// Windows of the same shape: element `c` of tap `t` of window `i` is element `positions[i] + taps[t] + c` of the maps, and
/// the result for it is element `out_positions[i] + c`.
#[derive(Clone, Copy)]
pub(crate) struct Windows<'a> {
    pub(crate) positions: &'a [usize],
    pub(crate) taps: &'a [usize],
    pub(crate) out_positions: &'a [usize],
}

impl Windows<'_> {
    /// Checks that the maps `x` have all windows, and `out` has a place for each. The sums saturate, so that no overflow
    /// passes.
    ///
    /// # Panics
    ///
    /// If one is outside, or if there are not as many windows as places.
    pub(super) fn assert_inside(&self, x: &[f32], out: usize, channels: usize) {
        assert_windows_inside(x, self.positions, self.taps, channels);
        assert_eq!(self.positions.len(), self.out_positions.len(), "positions");
        if let Some(last) = self.out_positions.iter().max() {
            assert!(last.saturating_add(channels) <= out, "a position outside the result");
        }
    }
}

/// The sums saturate, so that no overflow passes.
pub(super) fn assert_windows_inside(x: &[f32], positions: &[usize], taps: &[usize], channels: usize) {
    if let Some((position, tap)) = positions.iter().max().zip(taps.iter().max()) {
        let end = position.saturating_add(*tap).saturating_add(channels);
        assert!(end <= x.len(), "a window leaves the tile");
    }
}

/// The sums of a product, and the bounds of the activation after them.
pub(super) struct Sums<'a> {
    pub(super) product: Product<'a>,
    bounds: Option<Bounds>,
}

impl<'a> Sums<'a> {
    pub(super) fn new(product: Product<'a>) -> Self {
        let bounds = product.finish.and_then(|(_, activation)| activation.limits());
        Self { product, bounds }
    }

    /// Keeps finished sums within the bounds.
    #[inline(always)]
    pub(super) fn end<S: Simd, const P: usize>(&self, simd: S, sums: &mut [S::f32s; P]) {
        if let Some(bounds) = self.bounds {
            for sum in sums {
                *sum = bounds.vector(simd, *sum);
            }
        }
    }

    /// The sums before the first tap.
    ///
    /// # Safety
    ///
    /// There are `count` channels from `first` on, at most a vector, exactly one if `WHOLE`.
    #[inline(always)]
    pub(super) unsafe fn bias<S: Simd, const WHOLE: bool>(
        &self,
        simd: S,
        first: usize,
        count: usize,
    ) -> S::f32s {
        match self.product.finish {
            // SAFETY: the caller's promise; there is a value for every channel.
            Some((bias, _)) => unsafe { load::<S, WHOLE>(simd, bias.as_ptr().wrapping_add(first), count) },
            None => simd.splat_f32s(0.0),
        }
    }
}

/// Some windows of the `count` channels from `first` on.
///
/// # Safety
///
/// All windows, weights and output positions of the product exist, and nothing else accesses the latter; so do the
/// windows of `some`. There are `count` channels from `first` on, at most a vector, exactly one if `WHOLE`.
#[inline(always)]
pub(super) unsafe fn channels<S: Simd, const WHOLE: bool>(
    simd: S,
    of: &Sums<'_>,
    windows: &Windows<'_>,
    some: Range<usize>,
    first: usize,
    count: usize,
) {
    let product = &of.product;
    let x = product.x.as_ptr().wrapping_add(first);
    let weights = product.weights.as_ptr().wrapping_add(first);
    // SAFETY: the caller's promise.
    let bias = unsafe { of.bias::<S, WHOLE>(simd, first, count) };
    for done in some.clone().step_by(POSITIONS) {
        let mut at = [x; POSITIONS];
        let mut out = [product.out.as_mut_ptr(); POSITIONS];
        for p in 0..POSITIONS {
            // The last block repeats its last position. All copies compute and store the same values.
            let position = (done + p).min(some.end - 1);
            at[p] = x.wrapping_add(windows.positions[position]);
            out[p] = product.out.as_mut_ptr().wrapping_add(windows.out_positions[position] + first);
        }
        let mut sums = [bias; POSITIONS];
        for (tap, offset) in windows.taps.iter().enumerate() {
            // SAFETY: `count` channels of this tap's weights, then of this tap of every window.
            unsafe {
                let weight = load::<S, WHOLE>(simd, weights.wrapping_add(tap * product.channels), count);
                for p in 0..POSITIONS {
                    let value = load::<S, WHOLE>(simd, at[p].wrapping_add(*offset), count);
                    sums[p] = simd.mul_add_e_f32s(value, weight, sums[p]);
                }
            }
        }
        of.end(simd, &mut sums);
        for p in 0..POSITIONS {
            // SAFETY: `count` channels of a position of `out`.
            unsafe { store::<S, WHOLE>(simd, out[p], count, sums[p]) };
        }
    }
}

/// # Safety
///
/// `count` elements from `address` are valid for reads: a whole vector if `WHOLE`.
#[inline(always)]
pub(super) unsafe fn load<S: Simd, const WHOLE: bool>(simd: S, address: *const f32, count: usize) -> S::f32s {
    // SAFETY: vectors of `f32` are plain data of `F32_LANES` elements; alignment is not assumed.
    unsafe {
        if WHOLE {
            address.cast::<S::f32s>().read_unaligned()
        } else {
            simd.partial_load_f32s(std::slice::from_raw_parts(address, count))
        }
    }
}

/// # Safety
///
/// `count` elements from `address` are valid for writes: a whole vector if `WHOLE`.
#[inline(always)]
pub(super) unsafe fn store<S: Simd, const WHOLE: bool>(
    simd: S,
    address: *mut f32,
    count: usize,
    values: S::f32s,
) {
    // SAFETY: as `load`.
    unsafe {
        if WHOLE {
            address.cast::<S::f32s>().write_unaligned(values);
        } else {
            simd.partial_store_f32s(std::slice::from_raw_parts_mut(address, count), values);
        }
    }
}
