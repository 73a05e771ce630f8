//! The inner loops of depthwise convolution: every channel on its own, a vector of channels at a time.

mod overlap;
mod windows;

use std::ops::Range;

use pulp::{Simd, WithSimd};

use crate::buffer::LINE;
use crate::gate::swish_at;
use gallerist_util::simd::run;
use overlap::{Overlap, block};
pub(crate) use windows::{Product, Row};
use windows::{Sums, assert_windows_inside, channels, load, store};

/// Channels that are computed for all windows before the next ones. Of so many, some rows of the maps stay in the first-level
/// cache, and whole lines of it are read.
const GROUP: usize = 2 * LINE;

impl Product<'_> {
    /// Computes the product.
    ///
    /// # Safety
    ///
    /// Nothing else accesses `channels` elements from every output position during the call.
    ///
    /// # Panics
    ///
    /// If a window is not inside `x`, a position not inside `out`, or the lengths do not fit together.
    pub(crate) unsafe fn compute(self) {
        let Self { out, out_positions, rows, channels, finish, .. } = self;
        // SAFETY: the caller's promise.
        run(unsafe { Compute::new(self) });
        if let Some(gate) = finish.and_then(|(_, activation)| activation.gate_after_registers()) {
            for row in rows {
                // The values are still in the cache. SAFETY: the caller's promise.
                unsafe { swish_at(out.starting_at(row.out), out_positions, channels, gate) };
            }
        }
    }
}

/// A product whose elements are all inside and whose results nothing else accesses: [`Compute::new`], which is unsafe, is
/// the only way to make one.
struct Compute<'a> {
    sums: Sums<'a>,
    /// The windows of each row.
    parts: Vec<Part>,
}

/// Windows that are computed in the same way, in all rows.
struct Part {
    some: Range<usize>,
    /// How they overlap, and how many are computed together.
    overlap: Option<(Overlap, usize)>,
}

impl<'a> Compute<'a> {
    /// # Safety
    ///
    /// As [`Product::compute`], until the value is gone.
    unsafe fn new(product: Product<'a>) -> Self {
        product.assert_inside();
        let Product { positions, rows, .. } = product;
        let overlap = rows.first().and_then(|row| Overlap::of(positions, row.taps));
        let overlap = overlap.filter(|_| rows.iter().all(|row| Overlap::of(positions, row.taps) == overlap));
        let parts = match overlap {
            Some(overlap) => {
                let part = |some: Range<usize>| Part {
                    overlap: block(some.len()).map(|block| (overlap, block)),
                    some,
                };
                overlap.rows(positions).map(part).collect()
            }
            None => vec![Part { some: 0..positions.len(), overlap: None }],
        };
        Self { sums: Sums::new(product), parts }
    }
}

impl WithSimd for Compute<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { sums, parts } = self;
        let all = sums.product.channels;
        for group in (0..all).step_by(GROUP).map(|first| first..all.min(first + GROUP)) {
            for &row in sums.product.rows {
                for Part { some, overlap } in &parts {
                    // SAFETY: `Compute::new` has checked all windows, weights and output positions, and its caller promised that
                    // nothing else accesses these; the channels of the group exist, `count` is a vector or less, and the
                    // windows of a part overlap in the way that was found for it.
                    unsafe {
                        if let Some((overlap, block)) = overlap {
                            overlap.windows(simd, &sums, row, some.clone(), *block, group.clone());
                            continue;
                        }
                        for first in group.clone().step_by(S::F32_LANES) {
                            let (first, count) = sums.vector(first, S::F32_LANES);
                            match count == S::F32_LANES {
                                true => channels::<S, true>(simd, &sums, row, some.clone(), first, count),
                                false => channels::<S, false>(simd, &sums, row, some.clone(), first, count),
                            }
                        }
                    }
                }
            }
        }
    }
}

/// Accumulates `sum over i of x[positions[i] + taps[t] + c] * y[i * pitch + c]` into `sums[t][c]`.
///
/// # Panics
///
/// If a window is not inside `x` or the lengths do not fit together.
pub(crate) fn add_sums(
    x: &[f32],
    positions: &[usize],
    taps: &[usize],
    y: &[f32],
    pitch: usize,
    sums: &mut [f32],
) {
    run(AddSums::new(x, positions, taps, y, pitch, sums));
}

/// Operands that are all inside: [`AddSums::new`] is the only way to make one.
struct AddSums<'a> {
    x: &'a [f32],
    positions: &'a [usize],
    taps: &'a [usize],
    y: &'a [f32],
    pitch: usize,
    channels: usize,
    sums: &'a mut [f32],
}

impl<'a> AddSums<'a> {
    fn new(
        x: &'a [f32],
        positions: &'a [usize],
        taps: &'a [usize],
        y: &'a [f32],
        pitch: usize,
        sums: &'a mut [f32],
    ) -> Self {
        let channels = sums.len() / taps.len();
        assert_eq!(Some(sums.len()), taps.len().checked_mul(channels), "sums");
        if let Some(last) = positions.len().checked_sub(1) {
            assert!(last.saturating_mul(pitch).saturating_add(channels) <= y.len(), "too few values");
        }
        assert_windows_inside(x, positions, taps, channels);
        Self { x, positions, taps, y, pitch, channels, sums }
    }
}

impl WithSimd for AddSums<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(mut self, simd: S) {
        for first in (0..self.channels).step_by(S::F32_LANES) {
            let count = S::F32_LANES.min(self.channels - first);
            let mut tap = 0;
            while tap < self.taps.len() {
                // SAFETY: `AddSums::new` has checked all windows and all values of `y`; `first + count <= channels`, and
                // the match leaves at least as many taps as it names.
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

/// Accumulates `T` taps from `tap` on, of the `count` channels from `first` on; returns `T`.
///
/// # Safety
///
/// The operands were checked by [`AddSums::new`]. There are `T` taps from `tap` on and `count` channels from `first` on, at
/// most a vector, exactly one if `WHOLE`.
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
        // SAFETY: the slice has `count` elements.
        unsafe {
            let before = load::<S, WHOLE>(simd, total, count);
            store::<S, WHOLE>(simd, total, count, simd.add_f32s(before, sums[t]));
        }
    }
    T
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disjoint::Disjoint;
    use crate::norm::Activation;

    /// The results at all positions, computed in parts of this many.
    fn results(
        [x, weights, bias]: [&[f32]; 3],
        positions: &[usize],
        taps: &[usize],
        channels: usize,
        part: usize,
    ) -> Vec<f32> {
        let mut out = vec![f32::NAN; positions.len() * channels];
        let places: Vec<usize> = (0..positions.len()).map(|i| i * channels).collect();
        for (positions, places) in positions.chunks(part).zip(places.chunks(part)) {
            let product = Product {
                x,
                positions,
                out_positions: places,
                rows: &[Row { taps, out: 0 }],
                weights,
                channels,
                out: Disjoint::new(&mut out),
                finish: Some((bias, Activation::Relu6)),
            };
            // SAFETY: `out` is borrowed mutably.
            unsafe { product.compute() };
        }
        out
    }

    #[test]
    fn windows_that_overlap_give_the_bits_of_each_window_alone() {
        let (counts, columns): (&[usize], &[usize]) =
            if cfg!(miri) { (&[19], &[1, 9]) } else { (&[1, 8, 19, 32], &[1, 2, 6, 7, 8, 9, 14, 15, 28]) };
        for &channels in counts {
            for (width, stride) in [(3, 1), (3, 2), (5, 1), (5, 2), (3, 3), (4, 1)] {
                for &columns in columns {
                    let pitch = channels + 3;
                    let row = ((columns - 1) * stride + width) * pitch;
                    let value = |i: usize| ((i * 7919 + columns) % 1013) as f32 / 500.0 - 1.0;
                    let x: Vec<f32> = (0..(width + 1) * row).map(value).collect();
                    let weights: Vec<f32> = (0..width * width * channels).map(|i| value(3 * i)).collect();
                    let taps: Vec<usize> =
                        (0..width * width).map(|tap| tap / width * row + tap % width * pitch).collect();
                    // Two rows of the result.
                    let positions: Vec<usize> =
                        (0..2 * columns).map(|i| i / columns * row + i % columns * stride * pitch).collect();
                    let of = |part: usize| {
                        results([&x, &weights, &x[..channels]], &positions, &taps, channels, part)
                    };
                    assert_eq!(of(positions.len()), of(1), "{channels}, {width}, {stride}, {columns}");
                }
            }
        }
    }
}
