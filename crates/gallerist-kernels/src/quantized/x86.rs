//! AVX-512 VNNI: sums of products of four bytes in every lane. AMX: products of tiles of 16 rows and columns and 64 bytes.

use std::arch::asm;
use std::arch::x86_64::*;

use super::ending::Ends;
use super::lines::{GROUP, LANES, Line, MOST_TAPS, VECTORS};
use super::task::{Out, PanelTask, Position, RowTask};
use crate::disjoint::Disjoint;
use crate::product::{Run, configure_tiles, release_tiles};

/// Terms of a tile: 16 groups.
const TILE_TERMS: usize = LANES * GROUP;

/// Rows of a tile.
const TILE_ROWS: usize = 16;

/// Rows that are computed by tiles together, two tiles of them.
const SIDE: usize = 2 * TILE_ROWS;

/// Most rows whose bytes are gathered before they are multiplied: a multiple of [`SIDE`]. They stay in the second-level cache.
pub(super) const MOST_ROWS: usize = 128;

/// Whether a product with so many groups of terms is faster by tiles.
pub(super) fn takes_tiles(groups: usize, rows: usize) -> bool {
    groups >= LANES && rows >= TILE_ROWS
}

/// Bytes of a gathered row.
fn row_len(groups: usize) -> usize {
    (groups * GROUP).next_multiple_of(TILE_TERMS)
}

/// Elements of 4 bytes for the gathered rows of a product.
pub(super) fn rows_len(groups: usize) -> usize {
    MOST_ROWS * row_len(groups) / size_of::<f32>()
}

/// The bytes of the windows at some positions, one window after the other.
#[derive(Clone, Copy)]
pub(super) struct Gathered<'a> {
    values: &'a [u8],
    /// From a row to the next one.
    stride: usize,
}

/// Copies the windows at up to [`MOST_ROWS`] positions to `to`. The rows after them, up to a multiple of [`SIDE`], have any values.
pub(super) fn gather<'a>(x: &[u8], runs: &[Run], positions: &[Position], to: &'a mut [u8]) -> Gathered<'a> {
    let groups = runs.iter().map(|run| run.len / GROUP).sum();
    let stride = row_len(groups);
    for (position, to) in positions.iter().zip(to.chunks_exact_mut(stride)) {
        let mut at = 0;
        for run in runs {
            to[at..at + run.len].copy_from_slice(&x[position.from as usize + run.offset..][..run.len]);
            at += run.len;
        }
    }
    Gathered { values: to, stride }
}

/// A panel by tiles, from the windows at its positions.
///
/// # Safety
///
/// As [`dense`]; the CPU has the matrix unit, and `rows` are those of the task's positions.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn dense_by_tiles(task: &PanelTask<'_>, rows: Gathered<'_>, out: Out<'_>) {
    // SAFETY: the caller's promise.
    unsafe {
        match task.panel.vectors {
            1 => tiles::<1>(task, rows, out),
            2 => tiles::<2>(task, rows, out),
            3 => tiles::<3>(task, rows, out),
            _ => tiles::<VECTORS>(task, rows, out),
        }
    }
}

/// The sums of a block of rows, a vector after the other.
#[repr(C, align(64))]
struct Sums([[[i32; LANES]; VECTORS]; SIDE]);

/// # Safety
///
/// As [`dense_by_tiles`]; the panel has `V` vectors.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn tiles<const V: usize>(task: &PanelTask<'_>, rows: Gathered<'_>, out: Out<'_>) {
    let weights = task.panel.weights;
    let ends = Vectors::<V>::new(&task.panel.ends);
    let groups = weights.len() / V;
    let chunks = groups / LANES;
    let Gathered { values, stride } = rows;
    assert!(chunks > 0 && task.positions.len().next_multiple_of(SIDE) * stride <= values.len());
    let mut sums = Sums([[[0; LANES]; VECTORS]; SIDE]);
    // SAFETY: the CPU has tile registers that this process may use; nothing between here and their release uses them.
    unsafe { configure_tiles() };
    for (block, positions) in task.positions.chunks(SIDE).enumerate() {
        // SAFETY: rows of this block are inside, as was just checked.
        let x = unsafe { values.as_ptr().add(block * SIDE * stride) };
        for v in (0..V).step_by(2) {
            let second = (v + 1).min(V - 1);
            // SAFETY: `chunks` tiles from the first and the 16th row of the block, and 16 lines of these vectors for each of
            // them; the sums of a block have 32 rows of these vectors. Where both vectors are one, the second sums are
            // written to the same place with the same values.
            unsafe {
                multiply_tiles(
                    [x, x.add(TILE_ROWS * stride)],
                    stride,
                    [v, second].map(|v| weights.as_ptr().add(v)),
                    V * size_of::<Line>(),
                    chunks,
                    [v, second].map(|v| sums.0[0][v].as_mut_ptr()),
                );
            }
        }
        for (row, (position, sums)) in positions.iter().zip(&sums.0).enumerate() {
            // SAFETY: each is a vector.
            let mut found: [__m512i; V] =
                std::array::from_fn(|v| unsafe { sums[v].as_ptr().cast::<__m512i>().read() });
            for group in chunks * LANES..groups {
                // SAFETY: four bytes of this row.
                let x = unsafe { x.add(row * stride + group * GROUP).cast::<i32>().read_unaligned() };
                for v in 0..V {
                    // SAFETY: vector `v` of this group.
                    let weight = unsafe { weights.as_ptr().add(group * V + v).cast::<__m512i>().read() };
                    found[v] = _mm512_dpbusd_epi32(found[v], _mm512_set1_epi32(x), weight);
                }
            }
            // SAFETY: the caller's promise.
            unsafe { write(task, &ends, &found, position, out) };
        }
    }
    // SAFETY: as for the configuration.
    unsafe { release_tiles() };
}

/// `c[i][j] = sum over t of a[i][t] * b[t][j]` for two tiles of rows and two of columns.
///
/// # Safety
///
/// * Tiles of 16 rows of 64 bytes can be read from every address of `a`, its rows `stride_a` bytes apart, `chunks` of them 64 bytes
///   apart.
/// * Tiles of 16 rows of 64 bytes can be read from every address of `b`, its rows `stride_b` bytes apart, `chunks` of them 16 rows
///   apart.
/// * The sums of 32 rows, [`VECTORS`] vectors apart, can be written from every address of `c`.
/// * The CPU has the matrix unit, and its registers are configured.
unsafe fn multiply_tiles(
    [a0, a1]: [*const u8; 2],
    stride_a: usize,
    [b0, b1]: [*const Line; 2],
    stride_b: usize,
    chunks: usize,
    [c0, c1]: [*mut i32; 2],
) {
    const ROW: usize = VECTORS * LANES * size_of::<i32>();
    // SAFETY: `chunks > 0` tiles are read from every address and 2 x 2 tiles of sums are written, by the caller's promise. The
    // tile registers are used by nothing else.
    unsafe {
        asm!(
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "2:",
            "tileloadd tmm4, [{a0} + {stride_a}*1]",
            "tileloadd tmm6, [{b0} + {stride_b}*1]",
            "tileloadd tmm7, [{b1} + {stride_b}*1]",
            "tdpbusd tmm0, tmm4, tmm6",
            "tileloadd tmm5, [{a1} + {stride_a}*1]",
            "tdpbusd tmm1, tmm4, tmm7",
            "add {a0}, 64",
            "add {b0}, {step_b}",
            "tdpbusd tmm2, tmm5, tmm6",
            "add {a1}, 64",
            "add {b1}, {step_b}",
            "tdpbusd tmm3, tmm5, tmm7",
            "dec {chunks}",
            "jnz 2b",
            "tilestored [{c0} + {row}*1], tmm0",
            "tilestored [{c1} + {row}*1], tmm1",
            "tilestored [{c0} + {row}*1 + {half}], tmm2",
            "tilestored [{c1} + {row}*1 + {half}], tmm3",
            a0 = inout(reg) a0 => _,
            a1 = inout(reg) a1 => _,
            b0 = inout(reg) b0 => _,
            b1 = inout(reg) b1 => _,
            stride_a = in(reg) stride_a,
            stride_b = in(reg) stride_b,
            step_b = in(reg) TILE_ROWS * stride_b,
            chunks = inout(reg) chunks => _,
            c0 = in(reg) c0,
            c1 = in(reg) c1,
            row = in(reg) ROW,
            half = const TILE_ROWS * ROW,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}

/// # Safety
///
/// The CPU has the instructions. All elements that the task names are inside the operands and `out`, as
/// [`Dense::compute`](super::Dense::compute) checks. Nothing else accesses the panel's columns at these positions of the result.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn dense(task: &PanelTask<'_>, out: Out<'_>) {
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
unsafe fn rows<const R: usize, const V: usize>(task: &PanelTask<'_>, out: Out<'_>) {
    let PanelTask { x, runs, panel, positions, .. } = task;
    let ends = Vectors::<V>::new(&panel.ends);
    let weights = panel.weights.as_ptr();
    for some in positions.chunks(R) {
        // The last position fills the last block.
        let from: [*const u8; R] = std::array::from_fn(|row| {
            // SAFETY: the first byte of a window is inside.
            unsafe { x.as_ptr().add(some[row.min(some.len() - 1)].from as usize) }
        });
        // SAFETY: the windows are inside, and there are as many weights as the runs have terms. The caller's promise.
        unsafe {
            for (sums, position) in block::<R, V>(from, runs, weights).iter().zip(some) {
                write(task, &ends, sums, position, out);
            }
        }
    }
}

/// Ends the sums of the panel at a position, and writes them.
///
/// # Safety
///
/// As [`dense`]; the panel has `V` vectors.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
unsafe fn write<const V: usize>(
    task: &PanelTask<'_>,
    ends: &Vectors<V>,
    sums: &[__m512i; V],
    position: &Position,
    out: Out<'_>,
) {
    let first = task.panel.first;
    // SAFETY: the panel's columns at this position of the maps that are added.
    let added = task.add.map(|add| unsafe { add.as_ptr().add(position.add as usize + first) });
    // SAFETY: as above.
    let values = unsafe { ends.values(sums, added, matches!(out, Out::Bytes(_))) };
    let to = position.to as usize + first;
    match out {
        // SAFETY: whole vectors of this position are inside the result, and belong to the caller.
        Out::Bytes(out) => unsafe { store_bytes(values, out.as_mut_ptr().add(to)) },
        Out::Floats(out) => {
            for (v, values) in values.into_iter().enumerate() {
                let mask = ((1u32 << (task.columns - first - v * LANES).min(LANES)) - 1) as __mmask16;
                // SAFETY: the mask selects columns that the result has.
                unsafe { _mm512_mask_storeu_ps(out.as_mut_ptr().add(to + v * LANES), mask, values) };
            }
        }
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
    if let Ok(values) = <[__m512; VECTORS]>::try_from(&values[..]) {
        // SAFETY: 64 bytes, by the caller's promise.
        unsafe { to.cast::<__m512i>().write_unaligned(packed(values)) };
        return;
    }
    let rounded = values.map(|values| _mm512_cvtps_epi32(values));
    for (v, rounded) in rounded.into_iter().enumerate() {
        // SAFETY: 16 bytes of vector `v`, by the caller's promise.
        unsafe { to.add(v * LANES).cast::<__m128i>().write_unaligned(_mm512_cvtepi32_epi8(rounded)) };
    }
}

/// Four vectors rounded to bytes and packed within quarters, as [`columns`](super::lines::columns) has them.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
fn packed(values: [__m512; VECTORS]) -> __m512i {
    let [a, b, c, d] = values.map(|values| _mm512_cvtps_epi32(values));
    _mm512_packus_epi16(_mm512_packs_epi32(a, b), _mm512_packs_epi32(c, d))
}

/// # Safety
///
/// The CPU has the instructions. All bytes that the task names are inside the input and `out`, as
/// [`Depthwise::compute`](super::Depthwise::compute) checks. Nothing else accesses the block's channels in this row of the
/// result.
#[target_feature(enable = "avx512f,avx512bw,avx512vnni")]
pub(super) unsafe fn depthwise(task: &RowTask<'_>, out: Disjoint<'_, u8>) {
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
unsafe fn channels<const G: usize>(task: &RowTask<'_>, out: Disjoint<'_, u8>) {
    let RowTask { x, kernel: [height, width], row, steps, bytes, weights, ends } = task;
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
        // SAFETY: the mask selects the block's bytes at this position of the result, which belong to the caller.
        unsafe {
            let to = out.as_mut_ptr().add(row.to + i * steps.pitch);
            _mm512_mask_storeu_epi8(to.cast(), mask, packed(values));
        }
    }
}

/// Four bytes of a channel, of four rows, as neighbours; channels as [`columns`](super::lines::columns) has them.
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
