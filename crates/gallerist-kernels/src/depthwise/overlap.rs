//! Windows that overlap: a row of positions whose windows have columns in common, each of which is loaded once for all of them.

use std::ops::Range;

use pulp::Simd;

use super::windows::{Product, bias, bounded, channels, load, store};

/// Positions that are computed together, of those for which there is code: 8, or 7 where fewer are computed twice then.
const BLOCKS: [usize; 2] = [8, 7];

/// How the windows of a product overlap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Overlap {
    /// Columns of a window.
    width: usize,
    /// Columns from a window to the next.
    stride: usize,
    /// Elements from a column to the next.
    pitch: usize,
}

impl Overlap {
    /// If the taps are rows of equally spaced columns, and the first positions a few columns apart: of sizes for which there is
    /// code.
    pub(super) fn of(positions: &[usize], taps: &[usize]) -> Option<Self> {
        let pitch = taps.get(1)?.checked_sub(taps[0]).filter(|&pitch| pitch > 0)?;
        let are_neighbours = |a: usize, b: usize| a.checked_add(pitch) == Some(b);
        let width = 1 + taps.windows(2).take_while(|pair| are_neighbours(pair[0], pair[1])).count();
        let step = positions.get(1)?.checked_sub(positions[0])?;
        let are_rows = taps
            .chunks(width)
            .all(|row| row.len() == width && row.windows(2).all(|pair| are_neighbours(pair[0], pair[1])));
        let overlap = Self { width, stride: step / pitch, pitch };
        let known = matches!((width, overlap.stride), (3 | 5, 1 | 2));
        (are_rows && known && step.is_multiple_of(pitch)).then_some(overlap)
    }

    /// The ranges of positions that are as far from each other as the first two.
    pub(super) fn rows(self, positions: &[usize]) -> Vec<Range<usize>> {
        let mut rows = Vec::new();
        let mut first = 0;
        for next in 1..=positions.len() {
            let step = positions.get(next).map(|&position| position.wrapping_sub(positions[next - 1]));
            if step != Some(self.stride * self.pitch) {
                rows.push(first..next);
                first = next;
            }
        }
        rows
    }

    /// All positions of the `count` channels from `first` on.
    ///
    /// # Safety
    ///
    /// The windows of each of `rows` overlap in this way. All else as for [`channels`].
    #[inline(always)]
    pub(super) unsafe fn channels<S: Simd, const WHOLE: bool>(
        self,
        simd: S,
        product: &Product<'_>,
        rows: &[Range<usize>],
        first: usize,
        count: usize,
    ) {
        // SAFETY: the caller's promise; the numbers are those of this overlap.
        unsafe {
            match (self.width, self.stride) {
                (3, 1) => in_rows::<S, WHOLE, 3, 1>(simd, product, rows, self.pitch, first, count),
                (3, _) => in_rows::<S, WHOLE, 3, 2>(simd, product, rows, self.pitch, first, count),
                (_, 1) => in_rows::<S, WHOLE, 5, 1>(simd, product, rows, self.pitch, first, count),
                (_, _) => in_rows::<S, WHOLE, 5, 2>(simd, product, rows, self.pitch, first, count),
            }
        }
    }
}

/// As [`Overlap::channels`], of windows of `W` columns that are `T` columns apart.
///
/// # Safety
///
/// As there.
#[inline(always)]
unsafe fn in_rows<S: Simd, const WHOLE: bool, const W: usize, const T: usize>(
    simd: S,
    product: &Product<'_>,
    rows: &[Range<usize>],
    pitch: usize,
    first: usize,
    count: usize,
) {
    for row in rows {
        let Some(block) = block(row.len()) else {
            // SAFETY: the caller's promise.
            unsafe { channels::<S, WHOLE>(simd, product, row.clone(), first, count) };
            continue;
        };
        for done in row.clone().step_by(block) {
            // The last block may compute positions again.
            let at = [done.min(row.end - block), pitch, first, count];
            // SAFETY: the caller's promise; a block is not longer than its row.
            unsafe {
                match block {
                    8 => positions::<S, WHOLE, W, T, 8>(simd, product, at),
                    _ => positions::<S, WHOLE, W, T, 7>(simd, product, at),
                }
            }
        }
    }
}

/// The positions that are computed together in a row of `count`, or `None` for one that is too short.
fn block(count: usize) -> Option<usize> {
    BLOCKS.into_iter().filter(|&block| block <= count).min_by_key(|block| count.next_multiple_of(*block))
}

/// `P` positions from `position` on, whose windows have rows of `W` columns and are `T` columns apart. The terms of a sum are added
/// in the order of the taps.
///
/// # Safety
///
/// As for [`Overlap::channels`]; `P` positions from `position` on are in one row.
#[inline(always)]
unsafe fn positions<S: Simd, const WHOLE: bool, const W: usize, const T: usize, const P: usize>(
    simd: S,
    product: &Product<'_>,
    [position, pitch, first, count]: [usize; 4],
) {
    let x = product.x.as_ptr().wrapping_add(product.positions[position] + first);
    let mut weights = product.weights.as_ptr().wrapping_add(first);
    // SAFETY: the caller's promise.
    let mut sums = [unsafe { bias::<S, WHOLE>(simd, product, first, count) }; P];
    for row in product.taps.iter().step_by(W) {
        let x = x.wrapping_add(*row);
        let mut of_row = [simd.splat_f32s(0.0); W];
        for weight in &mut of_row {
            // SAFETY: `count` channels of this tap's weights.
            *weight = unsafe { load::<S, WHOLE>(simd, weights, count) };
            weights = weights.wrapping_add(product.channels);
        }
        // Written out: the compiler does not unroll such a loop, and then keeps the sums in memory.
        macro_rules! columns {
            ($($column:literal)*) => {$(
                if $column < (P - 1) * T + W {
                    // SAFETY: `count` channels of a column of the windows.
                    let value = unsafe { load::<S, WHOLE>(simd, x.wrapping_add($column * pitch), count) };
                    // The column is tap `b` of window `i`.
                    for b in 0..W {
                        if $column >= b && ($column - b) % T == 0 && ($column - b) / T < P {
                            let i = ($column - b) / T;
                            sums[i] = simd.mul_add_e_f32s(value, of_row[b], sums[i]);
                        }
                    }
                }
            )*};
        }
        columns!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18);
    }
    let out: &[usize; P] = product.out_positions[position..].first_chunk().expect("a block of positions");
    for (sum, position) in sums.into_iter().zip(out) {
        let out = product.out.as_mut_ptr().wrapping_add(position + first);
        // SAFETY: `count` channels of a position of `out`.
        unsafe { store::<S, WHOLE>(simd, out, count, bounded(simd, product, sum)) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlaps_are_found_in_the_lists_of_positions_and_taps() {
        let taps = |rows: &[usize], width: usize| -> Vec<usize> {
            rows.iter().flat_map(|row| (0..width).map(move |column| row + 16 * column)).collect()
        };
        let found = |positions: &[usize], taps: &[usize]| {
            Overlap::of(positions, taps).map(|overlap| (overlap.width, overlap.stride))
        };
        let three = taps(&[0, 1000, 480], 3);
        assert_eq!(found(&[7, 23, 39], &three), Some((3, 1)));
        assert_eq!(found(&[7, 39], &taps(&[0, 1000, 480, 2000, 5000], 5)), Some((5, 2)));
        // A step of half a column, of none, of three; one position; four columns; a column that is missing, or elsewhere.
        assert_eq!(found(&[7, 31], &three), None);
        assert_eq!(found(&[7, 7], &three), None);
        assert_eq!(found(&[7, 55], &three), None);
        assert_eq!(found(&[7], &three), None);
        assert_eq!(found(&[7, 23], &taps(&[0, 1000], 4)), None);
        assert_eq!(found(&[7, 23], &three[..8]), None);
        assert_eq!(found(&[7, 23], &[&three[..7], &[497, 500]].concat()), None);
        assert_eq!(found(&[7, 23], &[]), None);

        let overlap = Overlap { width: 3, stride: 2, pitch: 16 };
        assert_eq!(overlap.rows(&[5, 37, 69, 500, 532, 4, 8]), [0..3, 3..5, 5..6, 6..7]);
        assert_eq!(
            [6, 7, 8, 14, 16, 28, 112].map(block),
            [None, Some(7), Some(8), Some(7), Some(8), Some(7), Some(8)]
        );
    }
}
