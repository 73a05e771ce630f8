//! The kernels for processors with AVX-512 BF16 and VNNI: a register of sums for each pair of a
//! query and a row, sixteen pairs at a time, added up across the registers at the end.

use std::arch::x86_64::{
    __m512, __m512bh, __m512i, _MM_HINT_T0, _mm_prefetch, _mm512_add_epi32, _mm512_add_ps, _mm512_castpd_ps,
    _mm512_castps_pd, _mm512_castps_si512, _mm512_castsi512_ps, _mm512_cvtepi32_ps, _mm512_dpbf16_ps,
    _mm512_dpbusd_epi32, _mm512_loadu_epi8, _mm512_loadu_epi32, _mm512_maskz_loadu_epi8, _mm512_set1_epi8,
    _mm512_setzero_ps, _mm512_setzero_si512, _mm512_shuffle_f32x4, _mm512_storeu_ps, _mm512_sub_epi32,
    _mm512_unpackhi_pd, _mm512_unpackhi_ps, _mm512_unpacklo_pd, _mm512_unpacklo_ps, _mm512_xor_si512,
};

use super::block::{Keys, Products, QUERIES};
use super::portable;

/// Bytes in a register.
const BYTES: usize = 64;
/// Pairs of a query and a row that are multiplied at a time.
const PAIRS: usize = 16;
/// Distance of the prefetch from the bytes that are multiplied.
const AHEAD: usize = 16 << 10;

#[target_feature(enable = "avx512f,avx512bw,avx512bf16,avx512vnni")]
pub(super) fn bf16(queries: &[&[u16]], rows: &[u16], depth: usize, out: &mut [Products; QUERIES]) {
    products::<u16, false>(queries, rows, depth, |_| 0, out);
}

/// The instruction multiplies unsigned by signed: the row plus 128, taken off again with the
/// query's excess. Sums wrap around 2^32 on the way; in the end they are in range.
#[target_feature(enable = "avx512f,avx512bw,avx512bf16,avx512vnni")]
pub(super) fn int8(queries: &[&[i8]], rows: &[i8], depth: usize, out: &mut [Products; QUERIES]) {
    let excess = |query: &[i8]| query.iter().map(|&value| i32::from(value)).sum::<i32>().wrapping_mul(128);
    products::<i8, true>(queries, rows, depth, excess, out);
}

#[target_feature(enable = "avx512f,avx512bw")]
pub(super) fn reach(products: &mut Products, keys: &Keys, floor: f32) -> u64 {
    portable::reach(products, keys, floor)
}

/// The queries one by one with sixteen rows at a time, or four by four.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16,avx512vnni")]
fn products<T, const INTEGERS: bool>(
    queries: &[&[T]],
    rows: &[T],
    depth: usize,
    excess: impl Fn(&[T]) -> i32,
    out: &mut [Products; QUERIES],
) {
    match queries {
        [query] => tiles::<T, INTEGERS, 1, PAIRS>([query], rows, depth, excess, out),
        _ => {
            let queries = std::array::from_fn(|query| queries[query.min(queries.len() - 1)]);
            tiles::<T, INTEGERS, QUERIES, { PAIRS / QUERIES }>(queries, rows, depth, excess, out);
        }
    }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16,avx512vnni")]
fn tiles<T, const INTEGERS: bool, const Q: usize, const R: usize>(
    queries: [&[T]; Q],
    rows: &[T],
    depth: usize,
    excess: impl Fn(&[T]) -> i32,
    out: &mut [Products; QUERIES],
) {
    const { assert!(Q * R == PAIRS && Q <= QUERIES) };
    assert!(queries.iter().all(|query| query.len() == depth), "queries of {depth} values");
    let count = rows.len() / depth;
    let mut excesses = [0; PAIRS];
    for (excesses, query) in excesses.chunks_exact_mut(R).zip(queries) {
        excesses.fill(excess(query));
    }
    // SAFETY: the array holds the 64 bytes that are read, at any alignment.
    let excesses = unsafe { _mm512_loadu_epi32(excesses.as_ptr()) };
    let queries = queries.map(|query| query.as_ptr().cast::<u8>());
    for first in (0..count).step_by(R) {
        // The last row replaces missing rows.
        let rows =
            std::array::from_fn(|row| rows[(first + row).min(count - 1) * depth..].as_ptr().cast::<u8>());
        // SAFETY: each pointer is to the start of `depth` values of type T: the queries' lengths
        // are checked above, and a row below `count` has `depth` values.
        let sums = unsafe { tile::<INTEGERS, Q, R>(queries, rows, depth * size_of::<T>()) };
        let sums = match INTEGERS {
            true => _mm512_cvtepi32_ps(_mm512_sub_epi32(_mm512_castps_si512(sums), excesses)),
            false => sums,
        };
        let mut products = [0.0; PAIRS];
        // SAFETY: the array holds the 64 bytes that are written, at any alignment.
        unsafe { _mm512_storeu_ps(products.as_mut_ptr(), sums) };
        for (products, out) in products.chunks_exact(R).zip(&mut *out) {
            out[first..first + R].copy_from_slice(products);
        }
    }
}

/// The sums of products of each query with each row, the rows of a query together.
///
/// # Safety
/// `bytes` bytes can be read from each pointer.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16,avx512vnni")]
unsafe fn tile<const INTEGERS: bool, const Q: usize, const R: usize>(
    queries: [*const u8; Q],
    rows: [*const u8; R],
    bytes: usize,
) -> __m512 {
    let mut sums = [[_mm512_setzero_si512(); R]; Q];
    for at in (0..bytes - bytes % BYTES).step_by(BYTES) {
        // SAFETY: the 64 bytes from `at` on end at `bytes` or before.
        let queries = queries.map(|query| unsafe { _mm512_loadu_epi8(query.add(at).cast()) });
        for row in 0..R {
            // Rows are contiguous. Any address can be prefetched.
            _mm_prefetch::<_MM_HINT_T0>(rows[row].wrapping_add(at + AHEAD).cast());
            // SAFETY: the 64 bytes from `at` on end at `bytes` or before.
            let values = unsafe { _mm512_loadu_epi8(rows[row].add(at).cast()) };
            for query in 0..Q {
                sums[query][row] = multiply::<INTEGERS>(sums[query][row], queries[query], values);
            }
        }
    }
    let rest = bytes % BYTES;
    if rest > 0 {
        let (at, mask) = (bytes - rest, (1u64 << rest) - 1);
        // SAFETY: the mask selects the bytes from `at` to `bytes`; no other is accessed.
        let queries = queries.map(|query| unsafe { _mm512_maskz_loadu_epi8(mask, query.add(at).cast()) });
        for row in 0..R {
            // SAFETY: the mask selects the bytes from `at` to `bytes`; no other is accessed.
            let values = unsafe { _mm512_maskz_loadu_epi8(mask, rows[row].add(at).cast()) };
            for query in 0..Q {
                sums[query][row] = multiply::<INTEGERS>(sums[query][row], queries[query], values);
            }
        }
    }
    let mut pairs = [_mm512_setzero_ps(); PAIRS];
    for (pair, sums) in pairs.iter_mut().zip(sums.iter().flatten()) {
        *pair = _mm512_castsi512_ps(*sums);
    }
    add_up::<INTEGERS>(pairs)
}

/// Adds the products of two registers to the sums. Bytes that are zero in the query add nothing.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512bf16,avx512vnni")]
fn multiply<const INTEGERS: bool>(sums: __m512i, query: __m512i, row: __m512i) -> __m512i {
    if INTEGERS {
        _mm512_dpbusd_epi32(sums, _mm512_xor_si512(row, _mm512_set1_epi8(-128)), query)
    } else {
        // SAFETY: registers of one size, of which every bit pattern is valid.
        let values = |register| unsafe { std::mem::transmute::<__m512i, __m512bh>(register) };
        let (query, row) = (values(query), values(row));
        _mm512_castps_si512(_mm512_dpbf16_ps(_mm512_castsi512_ps(sums), query, row))
    }
}

/// The sum of the values of each register, in the order of the registers.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn add_up<const INTEGERS: bool>(registers: [__m512; PAIRS]) -> __m512 {
    let add = |a: __m512, b: __m512| match INTEGERS {
        true => _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a), _mm512_castps_si512(b))),
        false => _mm512_add_ps(a, b),
    };
    // In each quarter: the first register's even and odd values next to the second's.
    let pair = |a: __m512, b: __m512| add(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
    // In each quarter: one value for each of four registers.
    let four = |r: &[__m512; 4]| {
        let (ab, cd) = (_mm512_castps_pd(pair(r[0], r[1])), _mm512_castps_pd(pair(r[2], r[3])));
        add(_mm512_castpd_ps(_mm512_unpacklo_pd(ab, cd)), _mm512_castpd_ps(_mm512_unpackhi_pd(ab, cd)))
    };
    let join = |a: __m512, b: __m512| {
        add(_mm512_shuffle_f32x4::<0b10_00_10_00>(a, b), _mm512_shuffle_f32x4::<0b11_01_11_01>(a, b))
    };
    let groups = registers.as_chunks::<4>().0;
    join(join(four(&groups[0]), four(&groups[1])), join(four(&groups[2]), four(&groups[3])))
}
