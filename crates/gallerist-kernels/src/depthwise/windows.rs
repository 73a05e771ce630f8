//! The windows of a depthwise convolution, one position after the other.

use std::ops::Range;

use pulp::Simd;

use crate::disjoint::Disjoint;
use crate::norm::Activation;

/// Positions whose sums are kept in registers: each tap's weight is loaded once for all of them.
const POSITIONS: usize = 8;

/// `out[out_positions[i] + c] = sum over taps t of x[positions[i] + taps[t] + c] * weights[t][c]`.
pub(crate) struct Product<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) positions: &'a [usize],
    pub(crate) taps: &'a [usize],
    /// A row of `channels` for every tap.
    pub(crate) weights: &'a [f32],
    pub(crate) channels: usize,
    pub(crate) out: Disjoint<'a>,
    pub(crate) out_positions: &'a [usize],
    /// A value per channel that is added, and what follows.
    pub(crate) finish: Option<(&'a [f32], Activation)>,
}

/// The sums before the first tap.
///
/// # Safety
///
/// As for [`channels`].
#[inline(always)]
pub(super) unsafe fn bias<S: Simd, const WHOLE: bool>(
    simd: S,
    product: &Product<'_>,
    first: usize,
    count: usize,
) -> S::f32s {
    match product.finish {
        // SAFETY: `count` channels of the bias from `first` on, which exist.
        Some((bias, _)) => unsafe { load::<S, WHOLE>(simd, bias.as_ptr().wrapping_add(first), count) },
        None => simd.splat_f32s(0.0),
    }
}

/// A finished sum within the bounds of the activation.
#[inline(always)]
pub(super) fn bounded<S: Simd>(simd: S, product: &Product<'_>, sum: S::f32s) -> S::f32s {
    match product.finish {
        Some((_, activation)) => activation.bounds().vector(simd, sum),
        None => sum,
    }
}

/// Some positions of the `count` channels from `first` on.
///
/// # Safety
///
/// All windows, weights and output positions of the product exist, and nothing else accesses the latter; so do the
/// positions of `some`. There are `count` channels from `first` on, at most a vector, exactly one if `WHOLE`.
#[inline(always)]
pub(super) unsafe fn channels<S: Simd, const WHOLE: bool>(
    simd: S,
    product: &Product<'_>,
    some: Range<usize>,
    first: usize,
    count: usize,
) {
    let x = product.x.as_ptr().wrapping_add(first);
    let weights = product.weights.as_ptr().wrapping_add(first);
    // SAFETY: the caller's promise.
    let bias = unsafe { bias::<S, WHOLE>(simd, product, first, count) };
    for done in some.clone().step_by(POSITIONS) {
        let mut at = [x; POSITIONS];
        let mut out = [product.out.as_mut_ptr(); POSITIONS];
        for p in 0..POSITIONS {
            // The last block repeats its last position. All copies compute and store the same values.
            let position = (done + p).min(some.end - 1);
            at[p] = x.wrapping_add(product.positions[position]);
            out[p] = product.out.as_mut_ptr().wrapping_add(product.out_positions[position] + first);
        }
        let mut sums = [bias; POSITIONS];
        for (tap, offset) in product.taps.iter().enumerate() {
            // SAFETY: `count` channels of this tap's weights, then of this tap of every window.
            unsafe {
                let weight = load::<S, WHOLE>(simd, weights.wrapping_add(tap * product.channels), count);
                for p in 0..POSITIONS {
                    let value = load::<S, WHOLE>(simd, at[p].wrapping_add(*offset), count);
                    sums[p] = simd.mul_add_e_f32s(value, weight, sums[p]);
                }
            }
        }
        for p in 0..POSITIONS {
            // SAFETY: `count` channels of a position of `out`.
            unsafe { store::<S, WHOLE>(simd, out[p], count, bounded(simd, product, sums[p])) };
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
