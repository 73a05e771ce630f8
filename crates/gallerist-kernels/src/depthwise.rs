//! The inner loops of depthwise convolution: every channel for itself, a vector of channels at a time.

use pulp::{Simd, WithSimd};

use gallerist_util::simd::run;

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
    pub(crate) out: *mut f32,
    pub(crate) out_positions: &'a [usize],
}

impl Product<'_> {
    /// Computes the product.
    ///
    /// # Safety
    ///
    /// For every position, `channels` elements of `out` are valid for writes and nothing else accesses them
    /// during the call.
    ///
    /// # Panics
    ///
    /// If a window leaves `x` or the lengths do not fit together.
    pub(crate) unsafe fn compute(self) {
        assert_windows_inside(self.x, self.positions, self.taps, self.channels);
        assert_eq!(self.weights.len(), self.taps.len() * self.channels);
        assert_eq!(self.positions.len(), self.out_positions.len());
        run(Compute(self));
    }
}

fn assert_windows_inside(x: &[f32], positions: &[usize], taps: &[usize], channels: usize) {
    let last = positions.iter().max().zip(taps.iter().max());
    assert!(
        last.is_none_or(|(position, tap)| position + tap + channels <= x.len()),
        "a window leaves the tile"
    );
}

struct Compute<'a>(Product<'a>);

impl WithSimd for Compute<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let product = &self.0;
        for first in (0..product.channels).step_by(S::F32_LANES) {
            let count = S::F32_LANES.min(product.channels - first);
            // SAFETY: `Product::compute`, the only constructor of `Compute`, has checked that all windows
            // lie in `x` and passes on its caller's promise of `out`; `first + count <= channels`.
            unsafe {
                if count == S::F32_LANES {
                    channels::<S, true>(simd, product, first, count);
                } else {
                    channels::<S, false>(simd, product, first, count);
                }
            }
        }
    }
}

/// All positions of the `count` channels from `first` on.
///
/// # Safety
///
/// All windows lie in `x`, `out` is as in [`Product::compute`], `count` channels from `first` on are there
/// and no more than a vector, just one if `WHOLE`.
#[inline(always)]
unsafe fn channels<S: Simd, const WHOLE: bool>(simd: S, product: &Product<'_>, first: usize, count: usize) {
    let x = product.x.as_ptr().wrapping_add(first);
    let weights = product.weights.as_ptr().wrapping_add(first);
    let mut done = 0;
    while done < product.positions.len() {
        let mut at = [x; POSITIONS];
        let mut out = [product.out; POSITIONS];
        for p in 0..POSITIONS {
            // The last block repeats its last position. All copies compute and store the same values.
            let position = (done + p).min(product.positions.len() - 1);
            at[p] = x.wrapping_add(product.positions[position]);
            out[p] = product.out.wrapping_add(product.out_positions[position] + first);
        }
        let mut sums = [simd.splat_f32s(0.0); POSITIONS];
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
            unsafe { store::<S, WHOLE>(simd, out[p], count, sums[p]) };
        }
        done += POSITIONS;
    }
}

/// Adds `sum over i of x[positions[i] + taps[t] + c] * y[i * pitch + c]` to `sums[t][c]`.
///
/// # Panics
///
/// If a window leaves `x` or the lengths do not fit together.
pub(crate) fn add_sums(
    x: &[f32],
    positions: &[usize],
    taps: &[usize],
    y: &[f32],
    pitch: usize,
    sums: &mut [f32],
) {
    let channels = sums.len() / taps.len();
    assert_eq!(sums.len(), taps.len() * channels);
    assert!(positions.is_empty() || (positions.len() - 1) * pitch + channels <= y.len(), "too few values");
    assert_windows_inside(x, positions, taps, channels);
    run(AddSums { x, positions, taps, y, pitch, channels, sums });
}

struct AddSums<'a> {
    x: &'a [f32],
    positions: &'a [usize],
    taps: &'a [usize],
    y: &'a [f32],
    pitch: usize,
    channels: usize,
    sums: &'a mut [f32],
}

impl WithSimd for AddSums<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        for first in (0..self.channels).step_by(S::F32_LANES) {
            let count = S::F32_LANES.min(self.channels - first);
            let mut tap = 0;
            while tap < self.taps.len() {
                // SAFETY: `add_sums`, the only constructor of `AddSums`, has checked that all windows lie in
                // `x` and all factors in `y`; `first + count <= channels`.
                unsafe {
                    tap += match (self.taps.len() - tap, count == S::F32_LANES) {
                        (9.., true) => taps::<S, true, 9>(simd, &mut self, tap, first, count),
                        (3.., true) => taps::<S, true, 3>(simd, &mut self, tap, first, count),
                        (_, true) => taps::<S, true, 1>(simd, &mut self, tap, first, count),
                        (_, false) => taps::<S, false, 1>(simd, &mut self, tap, first, count),
                    };
                }
            }
        }
    }
}

/// Adds the sums of `T` taps from `tap` on, of the `count` channels from `first` on; returns `T`.
///
/// # Safety
///
/// All windows lie in `x` and all factors in `y`; there are `T` taps and `count` channels from there on, no more channels than a
/// vector has, just as many if `WHOLE`.
#[inline(always)]
unsafe fn taps<S: Simd, const WHOLE: bool, const T: usize>(
    simd: S,
    of: &mut AddSums<'_>,
    tap: usize,
    first: usize,
    count: usize,
) -> usize {
    let mut offsets = [0; T];
    offsets.copy_from_slice(&of.taps[tap..tap + T]);
    let x = of.x.as_ptr().wrapping_add(first);
    let mut y = of.y.as_ptr().wrapping_add(first);
    let mut sums = [simd.splat_f32s(0.0); T];
    for position in of.positions {
        let at = x.wrapping_add(*position);
        // SAFETY: `count` channels of this position of `y` and of every tap of its window.
        unsafe {
            let factor = load::<S, WHOLE>(simd, y, count);
            for t in 0..T {
                let value = load::<S, WHOLE>(simd, at.wrapping_add(offsets[t]), count);
                sums[t] = simd.mul_add_e_f32s(value, factor, sums[t]);
            }
        }
        y = y.wrapping_add(of.pitch);
    }
    for t in 0..T {
        let total = of.sums[(tap + t) * of.channels + first..][..count].as_mut_ptr();
        // SAFETY: `count` elements, as the slice shows.
        unsafe {
            let before = load::<S, WHOLE>(simd, total, count);
            store::<S, WHOLE>(simd, total, count, simd.add_f32s(before, sums[t]));
        }
    }
    T
}

/// # Safety
///
/// `count` elements from `address` are valid for reads: a whole vector if `WHOLE`.
#[inline(always)]
unsafe fn load<S: Simd, const WHOLE: bool>(simd: S, address: *const f32, count: usize) -> S::f32s {
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
unsafe fn store<S: Simd, const WHOLE: bool>(simd: S, address: *mut f32, count: usize, values: S::f32s) {
    // SAFETY: as `load`.
    unsafe {
        if WHOLE {
            address.cast::<S::f32s>().write_unaligned(values);
        } else {
            simd.partial_store_f32s(std::slice::from_raw_parts_mut(address, count), values);
        }
    }
}
