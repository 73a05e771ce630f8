//! Windows that overlap: a row of positions whose windows have columns in common, each of which is loaded once for all of them.

use std::ops::Range;

use pulp::Simd;

use super::windows::{Row, Sums, load, store};

/// Windows that are computed together, of those for which there is code: 7, or 8 where fewer are computed twice then.
const BLOCKS: [usize; 2] = [7, 8];

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
    pub(super) fn rows(self, positions: &[usize]) -> impl Iterator<Item = Range<usize>> {
        let mut end = 0;
        let step = self.stride * self.pitch;
        positions.chunk_by(move |before, after| after.wrapping_sub(*before) == step).map(move |row| {
            end += row.len();
            end - row.len()..end
        })
    }

    /// The windows `some` of a row, of the channels of `group`, `block` of them together.
    ///
    /// # Safety
    ///
    /// `some` are windows that overlap in this way, at least `block`. The channels exist. All else as for
    /// [`channels`](super::windows::channels).
    #[inline(always)]
    pub(super) unsafe fn windows<S: Simd>(
        self,
        simd: S,
        of: &Sums<'_>,
        row: Row<'_>,
        some: Range<usize>,
        block: usize,
        group: Range<usize>,
    ) {
        for done in some.clone().step_by(block) {
            // The last block may compute windows again.
            let first = done.min(some.end - block);
            macro_rules! of_block {
                ($width:literal, $stride:literal) => {
                    match block {
                        7 => self.block::<S, $width, $stride, 7>(simd, of, row, first, group.clone()),
                        _ => self.block::<S, $width, $stride, 8>(simd, of, row, first, group.clone()),
                    }
                };
            }
            // SAFETY: the caller's promise; the numbers are those of this overlap and of this block.
            unsafe {
                match (self.width, self.stride) {
                    (3, 1) => of_block!(3, 1),
                    (3, _) => of_block!(3, 2),
                    (_, 1) => of_block!(5, 1),
                    (_, _) => of_block!(5, 2),
                }
            }
        }
    }

    /// `P` windows from `window` on, which have rows of `W` columns and are `T` columns apart.
    ///
    /// # Safety
    ///
    /// As for [`Overlap::windows`].
    #[inline(always)]
    unsafe fn block<S: Simd, const W: usize, const T: usize, const P: usize>(
        self,
        simd: S,
        of: &Sums<'_>,
        row: Row<'_>,
        window: usize,
        group: Range<usize>,
    ) {
        let x = of.product.x.as_ptr().wrapping_add(of.product.positions[window]);
        let out = of.product.out_positions[window..].first_chunk().expect("a block of windows");
        for first in group.clone().step_by(S::F32_LANES) {
            let (first, count) = of.vector(first, S::F32_LANES);
            let at = [self.pitch, first, count];
            // SAFETY: the caller's promise; `count` channels from `first` on exist.
            unsafe {
                match count == S::F32_LANES {
                    true => vector::<S, true, W, T, P>(simd, of, x, row, out, at),
                    false => vector::<S, false, W, T, P>(simd, of, x, row, out, at),
                }
            }
        }
    }
}

/// How many windows of a row of `count` are computed together, or `None` for one that is too short.
pub(super) fn block(count: usize) -> Option<usize> {
    BLOCKS.into_iter().filter(|&block| block <= count).min_by_key(|block| count.next_multiple_of(*block))
}

/// The `count` channels from `first` on, at most a vector, of `P` windows, of which the first starts at `x` and the results at `out`.
/// They have rows of `W` columns and are `T` columns apart. The terms of a sum are added in the order of the taps.
///
/// # Safety
///
/// As for [`Overlap::windows`]; exactly a vector if `WHOLE`.
#[inline(always)]
unsafe fn vector<S: Simd, const WHOLE: bool, const W: usize, const T: usize, const P: usize>(
    simd: S,
    of: &Sums<'_>,
    x: *const f32,
    row: Row<'_>,
    out: &[usize; P],
    [pitch, first, count]: [usize; 3],
) {
    let product = &of.product;
    let x = x.wrapping_add(first);
    let mut weights = product.weights.as_ptr().wrapping_add(first);
    // SAFETY: the caller's promise.
    let mut sums = [unsafe { of.bias::<S, WHOLE>(simd, first, count) }; P];
    for tap in row.taps.iter().step_by(W) {
        let x = x.wrapping_add(*tap);
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
    of.end(simd, &mut sums);
    for (sum, position) in sums.into_iter().zip(out) {
        let out = product.out.as_mut_ptr().wrapping_add(position + row.out + first);
        // SAFETY: `count` channels of a position of `out`.
        unsafe { store::<S, WHOLE>(simd, out, count, sum) };
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
        let rows: Vec<_> = overlap.rows(&[5, 37, 69, 500, 532, 4, 8]).collect();
        assert_eq!(rows, [0..3, 3..5, 5..6, 6..7]);
        assert_eq!(
            [6, 7, 8, 14, 16, 28, 112].map(block),
            [None, Some(7), Some(8), Some(7), Some(8), Some(7), Some(7)]
        );
    }
}
