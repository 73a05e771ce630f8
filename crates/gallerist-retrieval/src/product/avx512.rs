//! The kernels for processors with AVX-512: 8 x 48 keys in 24 registers, 3 registers of lanes,
//! and the rows broadcast from memory.

use std::arch::x86_64::{
    __m512, _CMP_GE_OQ, _MM_HINT_T0, _mm_prefetch, _mm512_add_epi32, _mm512_add_ps, _mm512_cmp_ps_mask,
    _mm512_fmadd_ps, _mm512_loadu_epi32, _mm512_loadu_ps, _mm512_mask_add_epi32, _mm512_set1_epi32,
    _mm512_set1_ps, _mm512_setzero_ps, _mm512_setzero_si512, _mm512_storeu_epi32, _mm512_storeu_ps,
};

use super::tile::{Bits, GROUPS, LANES, PART, Panel, ROWS, Tile};

const WIDTH: usize = 16;
const PARTS: usize = LANES / WIDTH;
/// Distance of the prefetch from the values that are multiplied, in values: 12 KiB.
const AHEAD: usize = 64 * LANES;
/// Distance of the part of a panel that is multiplied next, in values.
const NEXT: usize = PART * LANES;

#[inline]
#[target_feature(enable = "avx512f")]
fn load(from: &[f32; WIDTH]) -> __m512 {
    // SAFETY: the array holds the 64 bytes that are read, at any alignment.
    unsafe { _mm512_loadu_ps(from.as_ptr()) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn store(to: &mut [f32; WIDTH], value: __m512) {
    // SAFETY: the array holds the 64 bytes that are written, at any alignment.
    unsafe { _mm512_storeu_ps(to.as_mut_ptr(), value) }
}

#[inline]
#[target_feature(enable = "avx512f")]
fn load_lanes(from: &[f32; LANES]) -> [__m512; PARTS] {
    let parts = from.as_chunks::<WIDTH>().0;
    [load(&parts[0]), load(&parts[1]), load(&parts[2])]
}

#[target_feature(enable = "avx512f")]
pub(super) fn product<const R: usize>(
    biases: Option<(&[f32; ROWS], &[f32; LANES])>,
    (a, group): (&Panel, usize),
    b: &Panel,
    out: &mut Tile,
) {
    assert!(group < GROUPS, "group {group} of {GROUPS}");
    let mut sums = [[_mm512_setzero_ps(); PARTS]; R];
    match biases {
        Some((bias_a, bias_b)) => {
            let bias_b = load_lanes(bias_b);
            for row in 0..R {
                let bias_a = _mm512_set1_ps(bias_a[row]);
                for part in 0..PARTS {
                    sums[row][part] = _mm512_add_ps(bias_a, bias_b[part]);
                }
            }
        }
        None => {
            for row in 0..R {
                sums[row] = load_lanes(&out.0[row]);
            }
        }
    }
    for (a, b) in a.iter().zip(b) {
        if R == ROWS {
            // Each group prefetches a part of the values that come next, so that all of them are in the first cache then.
            let next = if group < PARTS { b.as_ptr() } else { a.as_ptr() };
            _mm_prefetch::<_MM_HINT_T0>(next.wrapping_add(NEXT + group % PARTS * WIDTH).cast());
        }
        let a = &a.as_chunks::<ROWS>().0[group];
        if R <= 2 {
            // One or two rows wait for memory: the panels follow each other there.
            for part in 0..PARTS {
                _mm_prefetch::<_MM_HINT_T0>(b.as_ptr().wrapping_add(AHEAD + part * WIDTH).cast());
            }
        }
        let b = load_lanes(b);
        for row in 0..R {
            let a = _mm512_set1_ps(a[row]);
            for part in 0..PARTS {
                sums[row][part] = _mm512_fmadd_ps(a, b[part], sums[row][part]);
            }
        }
    }
    for (sums, out) in sums.iter().zip(&mut out.0) {
        for (sum, out) in sums.iter().zip(out.as_chunks_mut().0) {
            store(out, *sum);
        }
    }
}

#[target_feature(enable = "avx512f")]
pub(super) fn at_least_rows(tile: &Tile, floors: &[f32; ROWS]) -> Bits {
    let mut bits = [0; ROWS];
    for row in 0..ROWS {
        let floor = _mm512_set1_ps(floors[row]);
        bits[row] = at_least(load_lanes(&tile.0[row]), [floor; PARTS]);
    }
    bits
}

#[target_feature(enable = "avx512f")]
pub(super) fn at_least_lanes(tile: &Tile, floors: &[f32; LANES]) -> Bits {
    let floors = load_lanes(floors);
    let mut bits = [0; ROWS];
    for row in 0..ROWS {
        bits[row] = at_least(load_lanes(&tile.0[row]), floors);
    }
    bits
}

#[inline]
#[target_feature(enable = "avx512f")]
fn at_least(keys: [__m512; PARTS], floors: [__m512; PARTS]) -> u64 {
    let mut bits = 0;
    for part in 0..PARTS {
        let reached = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(keys[part], floors[part]);
        bits |= u64::from(reached) << (WIDTH * part);
    }
    bits
}

#[target_feature(enable = "avx512f,popcnt")]
pub(super) fn count_row(keys: &[f32; LANES], floors: &[f32], counts: &mut [u32]) {
    let keys = load_lanes(keys);
    for (floor, count) in floors.iter().zip(counts) {
        *count += at_least(keys, [_mm512_set1_ps(*floor); PARTS]).count_ones();
    }
}

#[target_feature(enable = "avx512f")]
pub(super) fn count_lanes(tile: &[[f32; LANES]], floors: &[[f32; LANES]], counts: &mut [[u32; LANES]]) {
    let one = _mm512_set1_epi32(1);
    for (floors, counts) in floors.iter().zip(counts) {
        let floors = load_lanes(floors);
        let mut sums = [_mm512_setzero_si512(); PARTS];
        for keys in tile {
            let keys = load_lanes(keys);
            for part in 0..PARTS {
                let reached = _mm512_cmp_ps_mask::<_CMP_GE_OQ>(keys[part], floors[part]);
                sums[part] = _mm512_mask_add_epi32(sums[part], reached, sums[part], one);
            }
        }
        for (sum, counts) in sums.iter().zip(counts.as_chunks_mut::<WIDTH>().0) {
            // SAFETY: the array holds the 64 bytes that are read and written, at any alignment.
            unsafe {
                let before = _mm512_loadu_epi32(counts.as_ptr().cast());
                _mm512_storeu_epi32(counts.as_mut_ptr().cast(), _mm512_add_epi32(before, *sum));
            }
        }
    }
}
