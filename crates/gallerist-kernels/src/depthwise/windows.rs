//! The windows of a depthwise convolution, one position after the other.

use std::ops::Range;

use pulp::Simd;

use crate::disjoint::Disjoint;
use crate::norm::{Activation, InRegisters};
use crate::positions::greatest;

/// Positions whose sums are kept in registers: each tap's weight is loaded once for all of them.
const POSITIONS: usize = 8;

/// For every window of every row, the sum of its taps' values times `weights`. The windows of a row start at `positions`: element `c`
/// of tap `t` of window `i` is element `positions[i] + taps[t] + c` of the maps. The result for it is element
/// `out_positions[i] + out + c`, with the row's `taps` and `out`.
pub(crate) struct Product<'a> {
    pub(crate) x: &'a [f32],
    pub(crate) positions: &'a [usize],
    pub(crate) out_positions: &'a [usize],
    /// All of as many taps.
    pub(crate) rows: &'a [Row<'a>],
    /// A row of `channels` for every tap.
    pub(crate) weights: &'a [f32],
    pub(crate) channels: usize,
    pub(crate) out: Disjoint<'a>,
    /// A value per channel that is added, and what follows.
    pub(crate) finish: Option<(&'a [f32], Activation)>,
}

/// A row of windows of a [`Product`].
#[derive(Clone, Copy)]
pub(crate) struct Row<'a> {
    pub(crate) taps: &'a [usize],
    pub(crate) out: usize,
}

impl Product<'_> {
    /// Checks that the maps have all windows, and that there are a place in the result, weights and a bias for each.
    ///
    /// # Panics
    ///
    /// If not, or if there are not as many windows as places.
    pub(super) fn assert_inside(&self) {
        let Self { x, positions, out_positions, rows, weights, channels, out, finish } = self;
        assert!(finish.is_none_or(|(bias, _)| bias.len() >= *channels), "a bias for every channel");
        assert_eq!(positions.len(), out_positions.len(), "positions");
        let last = greatest(positions).zip(greatest(out_positions));
        for Row { taps, out: first } in *rows {
            assert_eq!(Some(weights.len()), taps.len().checked_mul(*channels), "weights");
            if let Some((window, place)) = last {
                assert_windows_inside(x, &[window], taps, *channels);
                let end = place.saturating_add(*first).saturating_add(*channels);
                assert!(end <= out.len(), "a position outside the result");
            }
        }
    }
}

/// The sums saturate, so that no overflow passes.
pub(super) fn assert_windows_inside(x: &[f32], positions: &[usize], taps: &[usize], channels: usize) {
    if let Some((position, tap)) = greatest(positions).zip(greatest(taps)) {
        let end = position.saturating_add(tap).saturating_add(channels);
        assert!(end <= x.len(), "a window leaves the tile");
    }
}

/// The sums of a product, and the activation after them, if it is computed in registers.
pub(super) struct Sums<'a> {
    pub(super) product: Product<'a>,
    activation: Option<InRegisters>,
}

impl<'a> Sums<'a> {
    pub(super) fn new(product: Product<'a>) -> Self {
        let activation = product.finish.and_then(|(_, activation)| activation.in_registers());
        Self { product, activation }
    }

    /// The first channel and the number of channels of the vector that computes channel `first`. Where fewer are left than a vector has,
    /// it computes channels before them again, if there are so many.
    #[inline(always)]
    pub(super) fn vector(&self, first: usize, lanes: usize) -> (usize, usize) {
        let channels = self.product.channels;
        let first = first.min(channels.saturating_sub(lanes));
        (first, lanes.min(channels - first))
    }

    /// Applies the activation to finished sums.
    #[inline(always)]
    pub(super) fn end<S: Simd, const P: usize>(&self, simd: S, sums: &mut [S::f32s; P]) {
        if let Some(activation) = self.activation {
            activation.apply(simd, sums);
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

/// The windows `some` of a row, of the `count` channels from `first` on.
///
/// # Safety
///
/// All windows, weights and output positions of the product exist, and nothing else accesses the latter; so do the row and the
/// windows of `some`. There are `count` channels from `first` on, at most a vector, exactly one if `WHOLE`.
#[inline(always)]
pub(super) unsafe fn channels<S: Simd, const WHOLE: bool>(
    simd: S,
    of: &Sums<'_>,
    row: Row<'_>,
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
            at[p] = x.wrapping_add(product.positions[position]);
            out[p] = product.out.as_mut_ptr().wrapping_add(product.out_positions[position] + row.out + first);
        }
        let mut sums = [bias; POSITIONS];
        for (tap, offset) in row.taps.iter().enumerate() {
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
