//! AVX-512 VNNI: sums of products of four bytes in every lane.

use std::arch::x86_64::*;
use std::sync::OnceLock;

use gallerist_util::simd::{Instructions, permitted};

use super::dense::{self, GROUP, Out};
use super::depthwise::{self, MOST_TAPS};
use super::ending::Ends;
use super::{LANES, Line, VECTORS};
use crate::disjoint::Disjoint;
use crate::product::Run;

/// Whether this CPU has the instructions and they are permitted.
pub(super) fn is_supported() -> bool {
    static SUPPORTED: OnceLock<bool> = OnceLock::new();
    *SUPPORTED.get_or_init(|| {
        permitted() == Instructions::Avx512
            && is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vnni")
    })
}

/// # Safety
///
/// The CPU has the instructions. All elements that the task names are inside the operands and `out`, as
/// [`Dense::compute`](dense::Dense::compute) checks. Nothing else accesses the panel's columns at these positions of the result.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn dense(task: &dense::Task<'_>, out: Out<'_>) {
    // As many sums as there are registers for.
    // SAFETY: the caller's promise.
    unsafe {
        match task.panel.vectors {
            1 => rows::<12, 1>(task, out),
            2 => rows::<12, 2>(task, out),
            3 => rows::<8, 3>(task, out),
            _ => rows::<6, VECTORS>(task, out),
        }
    }
}

/// # Safety
///
/// As [`dense`]; the panel has `V` vectors.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn rows<const R: usize, const V: usize>(task: &dense::Task<'_>, out: Out<'_>) {
    let dense::Task { x, runs, panel, positions, add, columns } = task;
    let ends = Vectors::<V>::new(&panel.ends);
    let weights = panel.weights.as_ptr();
    let whole = positions.chunks_exact(R);
    let rest = whole.remainder();
    let write = |sums: &[[__m512i; V]; R], some: &[dense::Position]| {
        for (sums, position) in sums.iter().zip(some) {
            // SAFETY: the panel's columns at this position of the maps that are added.
            let added = add.map(|add| unsafe { add.as_ptr().add(position.add as usize + panel.first) });
            // SAFETY: as above.
            let values = unsafe { ends.values(sums, added, matches!(out, Out::Bytes(_))) };
            let to = position.to as usize + panel.first;
            match out {
                // SAFETY: whole vectors of this position are inside the result, and belong to the caller.
                Out::Bytes(out) => unsafe { store_bytes(values, out.as_mut_ptr().add(to)) },
                Out::Floats(out) => {
                    for (v, values) in values.into_iter().enumerate() {
                        let first = panel.first + v * LANES;
                        let mask = ((1u32 << (columns - first).min(LANES)) - 1) as __mmask16;
                        // SAFETY: the mask selects columns that the result has.
                        unsafe { _mm512_mask_storeu_ps(out.as_mut_ptr().add(to + v * LANES), mask, values) };
                    }
                }
            }
        }
    };
    for some in whole {
        let from: [*const u8; R] =
            // SAFETY: the first byte of a window is inside.
            std::array::from_fn(|row| unsafe { x.as_ptr().add(some[row].from as usize) });
        // SAFETY: the windows are inside, and there are as many weights as the runs have terms.
        write(&unsafe { block::<R, V>(from, runs, weights) }, some);
    }
    if !rest.is_empty() {
        // The last position fills the block.
        let from: [*const u8; R] = std::array::from_fn(|row| {
            // SAFETY: as above.
            unsafe { x.as_ptr().add(rest[row.min(rest.len() - 1)].from as usize) }
        });
        // SAFETY: as above.
        write(&unsafe { block::<R, V>(from, runs, weights) }, rest);
    }
}

/// The sums of `R` positions and `V` vectors of columns.
///
/// # Safety
///
/// The CPU has the instructions. The bytes of every run from each of `x` on can be read, and `V` vectors of weights for each
/// group of their terms.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn block<const R: usize, const V: usize>(
    x: [*const u8; R],
    runs: &[Run],
    weights: *const Line,
) -> [[__m512i; V]; R] {
    let mut sums = [[_mm512_setzero_si512(); V]; R];
    let mut weights = weights.cast::<__m512i>();
    for run in runs {
        let mut at = run.offset;
        for _ in 0..run.len / GROUP {
            let mut right = [_mm512_setzero_si512(); V];
            for v in 0..V {
                // SAFETY: vector `v` of this group.
                right[v] = unsafe { weights.add(v).read() };
            }
            for row in 0..R {
                // SAFETY: four bytes of the run.
                let left = _mm512_set1_epi32(unsafe { x[row].add(at).cast::<i32>().read_unaligned() });
                for v in 0..V {
                    sums[row][v] = _mm512_dpbusd_epi32(sums[row][v], left, right[v]);
                }
            }
            at += GROUP;
            weights = weights.wrapping_add(V);
        }
    }
    sums
}

/// The end of the sums, as vectors.
struct Vectors<const V: usize> {
    factors: [__m512; V],
    terms: [__m512; V],
    added: __m512,
    low: __m512,
    high: __m512,
}

impl<const V: usize> Vectors<V> {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    fn new(ends: &Ends<'_>) -> Self {
        let load = |values: &[f32]| {
            let (values, _) = values[..V * LANES].as_chunks::<LANES>();
            // SAFETY: each is a vector.
            std::array::from_fn(|v| unsafe { _mm512_loadu_ps(values[v].as_ptr()) })
        };
        Self {
            factors: load(ends.factors),
            terms: load(ends.terms),
            added: _mm512_set1_ps(ends.added),
            low: _mm512_set1_ps(ends.low),
            high: _mm512_set1_ps(ends.high),
        }
    }

    /// # Safety
    ///
    /// The CPU has the instructions, and `V` times 16 bytes can be read from `added`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
    unsafe fn values(&self, sums: &[__m512i; V], added: Option<*const u8>, as_bytes: bool) -> [__m512; V] {
        let mut values = [_mm512_setzero_ps(); V];
        for v in 0..V {
            values[v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sums[v]), self.factors[v], self.terms[v]);
        }
        if let Some(added) = added {
            let mut bytes = [_mm512_setzero_si512(); V];
            if V == VECTORS && as_bytes {
                // SAFETY: 64 bytes, by the caller's promise.
                let all = unsafe { added.cast::<__m512i>().read_unaligned() };
                let zero = _mm512_setzero_si512();
                let halves = [_mm512_unpacklo_epi8(all, zero), _mm512_unpackhi_epi8(all, zero)];
                for v in 0..V {
                    bytes[v] = match v % 2 {
                        0 => _mm512_unpacklo_epi16(halves[v / 2], zero),
                        _ => _mm512_unpackhi_epi16(halves[v / 2], zero),
                    };
                }
            } else {
                for v in 0..V {
                    // SAFETY: 16 bytes of vector `v`, by the caller's promise.
                    bytes[v] = _mm512_cvtepu8_epi32(unsafe {
                        added.add(v * LANES).cast::<__m128i>().read_unaligned()
                    });
                }
            }
            for v in 0..V {
                values[v] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(bytes[v]), self.added, values[v]);
            }
        }
        for value in &mut values {
            *value = _mm512_min_ps(_mm512_max_ps(*value, self.low), self.high);
        }
        values
    }
}

/// Rounds values between 0 and 255 to bytes. Four vectors are packed within quarters.
///
/// # Safety
///
/// The CPU has the instructions, and `V` times 16 bytes can be written from `to` on.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn store_bytes<const V: usize>(values: [__m512; V], to: *mut u8) {
    let rounded = values.map(|values| _mm512_cvtps_epi32(values));
    if V == VECTORS {
        let bytes = _mm512_packus_epi16(
            _mm512_packs_epi32(rounded[0], rounded[1]),
            _mm512_packs_epi32(rounded[2], rounded[V - 1]),
        );
        // SAFETY: 64 bytes, by the caller's promise.
        unsafe { to.cast::<__m512i>().write_unaligned(bytes) };
        return;
    }
    for (v, rounded) in rounded.into_iter().enumerate() {
        // SAFETY: 16 bytes of vector `v`, by the caller's promise.
        unsafe { to.add(v * LANES).cast::<__m128i>().write_unaligned(_mm512_cvtepi32_epi8(rounded)) };
    }
}

/// # Safety
///
/// The CPU has the instructions. All bytes that the task names are inside the input and `out`, as
/// [`Depthwise::compute`](depthwise::Depthwise::compute) checks. Nothing else accesses the block's channels in this row of the
/// result.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn depthwise(task: &depthwise::Task<'_>, out: Disjoint<'_, u8>) {
    // SAFETY: the caller's promise.
    unsafe {
        match task.kernel[0].div_ceil(GROUP) {
            1 => channels::<1>(task, out),
            _ => channels::<2>(task, out),
        }
    }
}

/// # Safety
///
/// As [`depthwise`]; the window has `G` groups of rows, and at most [`MOST_TAPS`] columns.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn channels<const G: usize>(task: &depthwise::Task<'_>, out: Disjoint<'_, u8>) {
    let depthwise::Task { x, kernel: [height, width], row, steps, bytes, weights, ends } = task;
    let ends = Vectors::<VECTORS>::new(ends);
    let mask = u64::MAX >> (64 - bytes);
    let weights = weights.as_ptr().cast::<__m512i>();
    // The columns that the window has seen, at their number modulo its width.
    let mut seen = [[[_mm512_setzero_si512(); VECTORS]; G]; MOST_TAPS];
    let mut next = 0;
    for i in 0..row.count {
        let first = i * steps.stride;
        for column in next.max(first)..first + width {
            for group in 0..G {
                let mut rows = [_mm512_setzero_si512(); GROUP];
                for (tap, line) in rows.iter_mut().enumerate() {
                    let tap = group * GROUP + tap;
                    if tap < *height {
                        // SAFETY: the block's bytes at this row and column of a window, which are inside.
                        let from = unsafe { x.as_ptr().add(tap * steps.row + column * steps.pitch) };
                        // SAFETY: the mask selects the block's bytes.
                        *line = unsafe { _mm512_maskz_loadu_epi8(mask, from.cast()) };
                    }
                }
                seen[column % width][group] = interleave(rows);
            }
        }
        next = first + width;
        let mut sums = [_mm512_setzero_si512(); VECTORS];
        for tap in 0..*width {
            for group in 0..G {
                let from = &seen[(first + tap) % width][group];
                for v in 0..VECTORS {
                    // SAFETY: the block has so many vectors for each column of the window and each group of its rows.
                    let weight = unsafe { weights.add((tap * G + group) * VECTORS + v).read() };
                    sums[v] = _mm512_dpbusd_epi32(sums[v], from[v], weight);
                }
            }
        }
        // SAFETY: nothing is added.
        let values = unsafe { ends.values(&sums, None, true) };
        let rounded = values.map(|values| _mm512_cvtps_epi32(values));
        let packed = _mm512_packus_epi16(
            _mm512_packs_epi32(rounded[0], rounded[1]),
            _mm512_packs_epi32(rounded[2], rounded[3]),
        );
        // SAFETY: the mask selects the block's bytes at this position of the result, which belong to the caller.
        unsafe {
            let to = out.as_mut_ptr().add(row.to + i * steps.pitch);
            _mm512_mask_storeu_epi8(to.cast(), mask, packed);
        }
    }
}

/// Four bytes of a channel, of four rows, as neighbours; channels as [`interleaved`](super::interleaved).
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn interleave([a, b, c, d]: [__m512i; GROUP]) -> [__m512i; VECTORS] {
    let low = [_mm512_unpacklo_epi8(a, b), _mm512_unpacklo_epi8(c, d)];
    let high = [_mm512_unpackhi_epi8(a, b), _mm512_unpackhi_epi8(c, d)];
    [
        _mm512_unpacklo_epi16(low[0], low[1]),
        _mm512_unpackhi_epi16(low[0], low[1]),
        _mm512_unpacklo_epi16(high[0], high[1]),
        _mm512_unpackhi_epi16(high[0], high[1]),
    ]
}
