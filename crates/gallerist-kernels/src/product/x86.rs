//! The instructions of x86 CPUs for bf16: rounding into tiles and products of tiles.

use std::arch::asm;
use std::arch::x86_64::*;

use super::sizes::{TILE, TILE_COLUMNS, TILE_ROWS, TILE_TERMS};
use crate::transpose::x86::transposed;

/// Rounds the terms of a row of a tile.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) fn round(terms: &[f32; TILE_TERMS], line: &mut [f32]) {
    assert!(line.len() >= TILE_COLUMNS);
    // SAFETY: 32 terms are two vectors, and the line has 16 elements, as was just checked: one vector.
    unsafe {
        let low = _mm512_loadu_ps(terms.as_ptr());
        let high = _mm512_loadu_ps(terms.as_ptr().add(TILE_COLUMNS));
        store(line.as_mut_ptr(), to_bits(_mm512_cvtne2ps_pbh(high, low)));
    }
}

/// Rounds two terms of 16 columns; the two terms of a column become neighbours.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) fn pair(first: &[f32; TILE_COLUMNS], second: &[f32; TILE_COLUMNS], line: &mut [f32]) {
    assert!(line.len() >= TILE_COLUMNS);
    // SAFETY: each operand is one vector, and the line has 16 elements, as was just checked.
    unsafe {
        let both = interleaved(_mm512_loadu_ps(first.as_ptr()), _mm512_loadu_ps(second.as_ptr()));
        store(line.as_mut_ptr(), both);
    }
}

/// Rounds 32 terms, or as many as there are `offsets`, of `rows` rows, whose elements of a term are contiguous.
///
/// # Safety
///
/// `rows` elements of `a` from every offset are inside.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) unsafe fn round_columns(a: &[f32], rows: usize, offsets: &[usize], tile: &mut [f32]) {
    assert!(tile.len() >= TILE && rows <= TILE_ROWS && offsets.len() <= TILE_TERMS);
    let mask = ((1u32 << rows) - 1) as __mmask16;
    let term = |index: usize| match offsets.get(index) {
        // SAFETY: the mask selects `rows` elements, which the caller promises to be inside.
        Some(offset) => unsafe { _mm512_maskz_loadu_ps(mask, a.as_ptr().add(*offset)) },
        None => _mm512_setzero_ps(),
    };
    let mut m = [_mm512_setzero_si512(); TILE_ROWS];
    for pair in 0..TILE_ROWS {
        m[pair] = interleaved(term(2 * pair), term(2 * pair + 1));
    }
    for (row, values) in transposed(m).into_iter().enumerate() {
        // SAFETY: row `row` of the tile.
        unsafe { store(tile.as_mut_ptr().add(row * TILE_COLUMNS), values) };
    }
}

/// Two vectors rounded and interleaved.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
fn interleaved(low: __m512, high: __m512) -> __m512i {
    const ORDER: [u16; TILE_TERMS] = {
        let mut order = [0; TILE_TERMS];
        let mut i = 0;
        while i < TILE_TERMS {
            order[i] = (i / 2 + i % 2 * TILE_COLUMNS) as u16;
            i += 1;
        }
        order
    };
    // SAFETY: a vector of 32 numbers of 16 bits.
    let order = unsafe { _mm512_loadu_si512(ORDER.as_ptr().cast()) };
    _mm512_permutexvar_epi16(order, to_bits(_mm512_cvtne2ps_pbh(high, low)))
}

#[inline]
#[target_feature(enable = "avx512f")]
fn to_bits(values: __m512bh) -> __m512i {
    // SAFETY: both are 64 bytes of plain data.
    unsafe { std::mem::transmute(values) }
}

/// # Safety
///
/// 16 elements can be written from `to`.
#[inline]
#[target_feature(enable = "avx512f")]
unsafe fn store(to: *mut f32, values: __m512i) {
    // SAFETY: one vector.
    unsafe { _mm512_storeu_si512(to.cast(), values) }
}

/// Makes the tile registers 16 rows of 64 bytes each.
///
/// # Safety
///
/// The CPU has tile registers and the process may use them.
pub(crate) unsafe fn configure() {
    #[repr(C, align(64))]
    struct Configuration {
        palette: u8,
        start_row: u8,
        reserved: [u8; 14],
        row_bytes: [u16; 16],
        rows: [u8; 16],
    }
    let mut configuration =
        Configuration { palette: 1, start_row: 0, reserved: [0; 14], row_bytes: [0; 16], rows: [0; 16] };
    configuration.row_bytes[..8].fill(64);
    configuration.rows[..8].fill(16);
    // SAFETY: the instruction reads the 64 bytes of the configuration and sets registers that compiled code
    // does not use.
    unsafe { asm!("ldtilecfg [{}]", in(reg) &raw const configuration, options(nostack, readonly)) }
}

/// Releases the tile registers, so that the system need not save them.
///
/// # Safety
///
/// As [`configure`].
pub(crate) unsafe fn release() {
    // SAFETY: compiled code does not use these registers.
    unsafe { asm!("tilerelease", options(nostack, nomem)) }
}

/// # Safety
///
/// `terms > 0` tiles can be read from every address of `left` and `right`; 32 rows of 32 elements, `stride` elements
/// apart, can be read and written from `c`. The CPU has the instructions and the tile registers are configured.
pub(super) unsafe fn multiply(
    [a0, a1]: [*const f32; 2],
    [b0, b1]: [*const f32; 2],
    terms: usize,
    c: *mut f32,
    stride: usize,
    accumulate: bool,
) {
    // SAFETY: `terms > 0` tiles of 1 KB are read from every address of the factors and 2 x 2 tiles of the result,
    // 16 rows of 64 bytes each, are read and written. The tile registers are used by nothing else.
    unsafe {
        asm!(
            "test {accumulate:e}, {accumulate:e}",
            "jz 2f",
            "tileloadd tmm0, [{c0} + {stride}*1]",
            "tileloadd tmm1, [{c0} + {stride}*1 + 64]",
            "tileloadd tmm2, [{c1} + {stride}*1]",
            "tileloadd tmm3, [{c1} + {stride}*1 + 64]",
            "jmp 3f",
            "2:",
            "tilezero tmm0",
            "tilezero tmm1",
            "tilezero tmm2",
            "tilezero tmm3",
            "3:",
            "tileloadd tmm4, [{a0} + {line}*1]",
            "tileloadd tmm6, [{b0} + {line}*1]",
            "tileloadd tmm7, [{b1} + {line}*1]",
            "tdpbf16ps tmm0, tmm4, tmm6",
            "tileloadd tmm5, [{a1} + {line}*1]",
            "tdpbf16ps tmm1, tmm4, tmm7",
            "add {a0}, 1024",
            "add {b0}, 1024",
            "tdpbf16ps tmm2, tmm5, tmm6",
            "add {a1}, 1024",
            "add {b1}, 1024",
            "tdpbf16ps tmm3, tmm5, tmm7",
            "dec {terms}",
            "jnz 3b",
            "tilestored [{c0} + {stride}*1], tmm0",
            "tilestored [{c0} + {stride}*1 + 64], tmm1",
            "tilestored [{c1} + {stride}*1], tmm2",
            "tilestored [{c1} + {stride}*1 + 64], tmm3",
            accumulate = in(reg) u32::from(accumulate),
            c0 = in(reg) c,
            c1 = in(reg) c.wrapping_add(TILE_ROWS * stride),
            stride = in(reg) stride * size_of::<f32>(),
            line = in(reg) 64usize,
            a0 = inout(reg) a0 => _,
            a1 = inout(reg) a1 => _,
            b0 = inout(reg) b0 => _,
            b1 = inout(reg) b1 => _,
            terms = inout(reg) terms => _,
            out("tmm0") _, out("tmm1") _, out("tmm2") _, out("tmm3") _,
            out("tmm4") _, out("tmm5") _, out("tmm6") _, out("tmm7") _,
            options(nostack),
        );
    }
}

/// # Safety
///
/// As [`multiply`], for CPUs with AVX-512 BF16; the tile registers are not used.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
pub(super) unsafe fn multiply_pairs(
    left: [*const f32; 2],
    right: [*const f32; 2],
    terms: usize,
    c: *mut f32,
    stride: usize,
    accumulate: bool,
) {
    /// Rows that are computed together: 8 x 2 sums and the vectors of the right factor fit the registers.
    const TOGETHER: usize = 8;
    for first in (0..2 * TILE_ROWS).step_by(TOGETHER) {
        // SAFETY: row `first` of the left factor's tile, and of the result.
        let (left, c) =
            unsafe { (left[first / TILE_ROWS].add(first % TILE_ROWS * TILE_COLUMNS), c.add(first * stride)) };
        let mut sums = [[_mm512_setzero_ps(); 2]; TOGETHER];
        for row in 0..TOGETHER {
            for side in 0..2 {
                if accumulate {
                    // SAFETY: a vector of the result.
                    sums[row][side] = unsafe { _mm512_loadu_ps(c.add(row * stride + side * TILE_COLUMNS)) };
                }
            }
        }
        for tile in 0..terms {
            for pair in 0..TILE_ROWS {
                // SAFETY: inside the tiles; both types are 64 bytes of plain data.
                unsafe {
                    let b: [__m512bh; 2] = right.map(|right| {
                        std::mem::transmute(_mm512_loadu_ps(right.add(tile * TILE + pair * TILE_COLUMNS)))
                    });
                    for row in 0..TOGETHER {
                        let a = left.add(tile * TILE + row * TILE_COLUMNS + pair).cast::<i32>();
                        let a: __m512bh = std::mem::transmute(_mm512_set1_epi32(*a));
                        for side in 0..2 {
                            sums[row][side] = _mm512_dpbf16_ps(sums[row][side], a, b[side]);
                        }
                    }
                }
            }
        }
        for row in 0..TOGETHER {
            for side in 0..2 {
                // SAFETY: a vector of the result.
                unsafe { _mm512_storeu_ps(c.add(row * stride + side * TILE_COLUMNS), sums[row][side]) };
            }
        }
    }
}
