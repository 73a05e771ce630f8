//! Transposes, in blocks of 16 x 16 that stay in registers.

#[cfg(all(target_arch = "x86_64", not(miri)))]
use gallerist_util::simd::{Instructions, permitted};

/// Side of a block.
pub(crate) const SIDE: usize = 16;

/// `to[targets[i] + j] = from[sources[j] + i]` for up to [`SIDE`] targets and sources.
pub(crate) fn block(from: &[f32], sources: &[usize], to: &mut [f32], targets: &[usize]) {
    let (rows, columns) = (sources.len(), targets.len());
    assert!(rows <= SIDE && columns <= SIDE);
    assert!(sources.iter().all(|source| source.saturating_add(columns) <= from.len()), "a source outside");
    assert!(targets.iter().all(|target| target.saturating_add(rows) <= to.len()), "a target outside");
    // The result is the same without them. ThreadSanitizer does not see accesses of 64 bytes, so it runs the code below.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if permitted() == Instructions::Avx512 && is_x86_feature_detected!("avx512f") {
        // SAFETY: the CPU has the instructions; `columns` elements from every source and `rows` from every target are
        // inside, and there are at most SIDE of each, as was just checked.
        unsafe { x86::block(from, sources, to, targets) };
        return;
    }
    for (i, target) in targets.iter().enumerate() {
        for (to, source) in to[*target..].iter_mut().zip(sources) {
            *to = from[source + i];
        }
    }
}

/// The first [`SIDE`] multiples of `pitch`, plus `first`.
pub(crate) fn starts(first: usize, pitch: usize) -> [usize; SIDE] {
    std::array::from_fn(|i| first + i * pitch)
}

/// Writes the `rows x columns` matrix `from` into `to` as `columns x rows`.
pub(crate) fn transpose(from: &[f32], rows: usize, columns: usize, to: &mut [f32]) {
    transpose_columns(from, columns, rows, columns, to);
}

/// [`transpose`] of some columns of a matrix: `from` begins at the first of them, and its rows are `pitch` elements apart.
pub(crate) fn transpose_columns(from: &[f32], pitch: usize, rows: usize, columns: usize, to: &mut [f32]) {
    match rows {
        1 => return to.copy_from_slice(&from[..columns]),
        2 => return interleave::<2>(from, pitch, columns, to),
        3 => return interleave::<3>(from, pitch, columns, to),
        _ => {}
    }
    for row in (0..rows).step_by(SIDE) {
        for column in (0..columns).step_by(SIDE) {
            let (height, width) = (SIDE.min(rows - row), SIDE.min(columns - column));
            let sources = starts(row * pitch + column, pitch);
            let targets = starts(column * rows + row, rows);
            block(from, &sources[..height], to, &targets[..width]);
        }
    }
}

/// [`transpose_columns`] of few rows, such as the colours of an image.
fn interleave<const ROWS: usize>(from: &[f32], pitch: usize, columns: usize, to: &mut [f32]) {
    assert_eq!(to.len(), ROWS * columns);
    let rows: [&[f32]; ROWS] = std::array::from_fn(|row| &from[row * pitch..][..columns]);
    for (column, to) in to.as_chunks_mut::<ROWS>().0.iter_mut().enumerate() {
        *to = rows.map(|row| row[column]);
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
pub(crate) mod x86 {
    use std::arch::x86_64::*;

    use super::SIDE;

    /// # Safety
    ///
    /// `targets.len()` elements of `from` from every source, and `sources.len()` elements of `to` from every target
    /// exist; there are [`SIDE`] of each at most.
    #[target_feature(enable = "avx512f")]
    pub(super) unsafe fn block(from: &[f32], sources: &[usize], to: &mut [f32], targets: &[usize]) {
        let mask = |count: usize| ((1u32 << count) - 1) as __mmask16;
        let (of_source, of_target) = (mask(targets.len()), mask(sources.len()));
        let mut rows = [_mm512_setzero_si512(); SIDE];
        for (row, source) in rows.iter_mut().zip(sources) {
            // SAFETY: the mask selects `targets.len()` elements, which the caller promises to be inside `from`.
            *row = unsafe { _mm512_maskz_loadu_epi32(of_source, from.as_ptr().add(*source).cast()) };
        }
        let columns = transposed(rows);
        for (column, target) in columns.into_iter().zip(targets) {
            // SAFETY: the mask selects `sources.len()` elements, which the caller promises to be inside `to`.
            unsafe { _mm512_mask_storeu_epi32(to.as_mut_ptr().add(*target).cast(), of_target, column) };
        }
    }

    /// The transpose of 16 x 16 numbers: of pairs of rows, of fours, and of blocks of four by four.
    #[inline]
    #[target_feature(enable = "avx512f")]
    pub(crate) fn transposed(mut m: [__m512i; SIDE]) -> [__m512i; SIDE] {
        let mut t = m;
        for i in (0..SIDE).step_by(2) {
            t[i] = _mm512_unpacklo_epi32(m[i], m[i + 1]);
            t[i + 1] = _mm512_unpackhi_epi32(m[i], m[i + 1]);
        }
        for i in (0..SIDE).step_by(4) {
            m[i] = _mm512_unpacklo_epi64(t[i], t[i + 2]);
            m[i + 1] = _mm512_unpackhi_epi64(t[i], t[i + 2]);
            m[i + 2] = _mm512_unpacklo_epi64(t[i + 1], t[i + 3]);
            m[i + 3] = _mm512_unpackhi_epi64(t[i + 1], t[i + 3]);
        }
        for i in 0..4 {
            // `m[4 b + i]` holds columns i, 4 + i, 8 + i and 12 + i of rows 4 b to 4 b + 3.
            let low =
                [_mm512_shuffle_i32x4::<0x88>(m[i], m[4 + i]), _mm512_shuffle_i32x4::<0xdd>(m[i], m[4 + i])];
            let high = [
                _mm512_shuffle_i32x4::<0x88>(m[8 + i], m[12 + i]),
                _mm512_shuffle_i32x4::<0xdd>(m[8 + i], m[12 + i]),
            ];
            for odd in 0..2 {
                t[i + 4 * odd] = _mm512_shuffle_i32x4::<0x88>(low[odd], high[odd]);
                t[i + 4 * odd + 8] = _mm512_shuffle_i32x4::<0xdd>(low[odd], high[odd]);
            }
        }
        t
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_of_all_sizes_are_transposed_and_nothing_else_is_written() {
        for (rows, columns) in
            [(1, 1), (1, 5), (2, 19), (3, 16), (16, 5), (16, 16), (17, 33), (40, 15), (0, 4), (4, 0)]
        {
            let from: Vec<f32> = (0..rows * columns).map(|i| i as f32 + 1.0).collect();
            let mut to = vec![0.0; rows * columns + 3];
            transpose(&from, rows, columns, &mut to[1..rows * columns + 1]);
            for row in 0..rows {
                for column in 0..columns {
                    assert_eq!(to[1 + column * rows + row], from[row * columns + column]);
                }
            }
            assert_eq!((to[0], &to[rows * columns + 1..]), (0.0, &[0.0; 2][..]));
        }
    }

    #[test]
    #[should_panic(expected = "a source outside")]
    fn a_source_outside_is_refused() {
        block(&[0.0; 20], &[0, 5], &mut [0.0; 100], &[0; 16]);
    }
}
