//! Operands rounded to bf16, the upper half of an `f32`, in the tiles that the CPU's instructions read.
//!
//! A tile has 16 lines of 64 bytes. A tile of the left operand is 16 rows of 32 terms, a tile of the right operand 16
//! pairs of terms of 16 columns, with the two terms of a column next to each other.

use rayon::prelude::*;

use super::runs::{Run, offsets};
use super::sizes::{TILE, TILE_COLUMNS, TILE_TERMS};
use super::unit::{Kind, Unit};
#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::x86;
use crate::buffer::Buffer;

/// The right operand of a product in tiles: those of the first 16 columns, term by term, then those of the next.
pub(crate) struct Tiles {
    values: Buffer,
    /// Tiles of all terms of a column.
    per_column: usize,
}

impl Tiles {
    /// Puts `terms` rows of `columns` values into tiles. The values are panels of `width` columns (a multiple of 16),
    /// `panel` values apart, with contiguous rows.
    pub(crate) fn of_panels(
        values: &[f32],
        [terms, columns, width]: [usize; 3],
        panel: usize,
        unit: Unit,
    ) -> Self {
        let per_column = terms.div_ceil(TILE_TERMS);
        let of_column = per_column * TILE;
        let mut tiles = Buffer::new(columns.div_ceil(TILE_COLUMNS) * of_column);
        if of_column > 0 {
            tiles.par_chunks_mut(of_column).enumerate().for_each(|(index, tiles)| {
                let first = index * TILE_COLUMNS;
                pair_columns(&values[first / width * panel + first % width..], width, terms, tiles, unit);
            });
        }
        Self { values: tiles, per_column }
    }

    /// The tiles from column `first` (a multiple of 16) on.
    pub(crate) fn columns_from(&self, first: usize) -> TilesView<'_> {
        TilesView::new(&self.values[first / TILE_COLUMNS * self.per_column * TILE..], self.per_column)
    }
}

/// Some columns of [`Tiles`].
#[derive(Clone, Copy)]
pub(crate) struct TilesView<'a> {
    tiles: &'a [f32],
    per_column: usize,
}

impl<'a> TilesView<'a> {
    pub(super) fn new(tiles: &'a [f32], per_column: usize) -> Self {
        Self { tiles, per_column }
    }

    /// The tiles from term `term` (a multiple of 32) on.
    pub(super) fn terms_from(self, term: usize) -> Self {
        Self { tiles: &self.tiles[term / TILE_TERMS * TILE..], ..self }
    }

    /// The first `count` tiles of the 16 columns from `column` (a multiple of 16) on.
    pub(super) fn column(&self, column: usize, count: usize) -> &'a [f32] {
        &self.tiles[column / TILE_COLUMNS * self.per_column * TILE..][..count * TILE]
    }
}

/// Puts up to 16 rows, whose terms are contiguous in each of `runs`, into tiles, with zeros after the last term.
pub(super) fn round_rows(a: &[f32], rows: &[usize], runs: &[Run], tiles: &mut [f32], unit: Unit) {
    for (index, row) in rows.iter().enumerate() {
        let mut line =
            tiles.chunks_exact_mut(TILE).map(|tile| &mut tile[index * TILE_COLUMNS..][..TILE_COLUMNS]);
        let mut write = |terms: &[f32; TILE_TERMS]| {
            round(terms, line.next().expect("as many tiles as the terms need"), unit);
        };
        let mut waiting = [0f32; TILE_TERMS];
        let mut count = 0;
        for run in runs {
            let mut terms = &a[row + run.offset..][..run.len];
            if count > 0 {
                let (now, later) = terms.split_at(terms.len().min(TILE_TERMS - count));
                waiting[count..count + now.len()].copy_from_slice(now);
                count += now.len();
                terms = later;
                if count == TILE_TERMS {
                    write(&waiting);
                    count = 0;
                }
            }
            let (whole, rest) = terms.as_chunks();
            whole.iter().for_each(&mut write);
            if !rest.is_empty() {
                waiting[..rest.len()].copy_from_slice(rest);
                count = rest.len();
            }
        }
        if count > 0 {
            waiting[count..].fill(0.0);
            write(&waiting);
        }
    }
}

/// Offsets of terms from the start of a row.
pub(super) struct Offsets {
    values: Vec<usize>,
    largest: usize,
}

impl Offsets {
    /// The offsets of the terms of `runs`, which are `step` elements apart.
    pub(super) fn new(runs: &[Run], step: usize) -> Self {
        let values = offsets(runs, step);
        Self { largest: values.iter().copied().max().unwrap_or(0), values }
    }
}

/// Puts up to 16 rows, whose terms are at `offsets`, into tiles, with zeros after the last term.
pub(super) fn round_columns(a: &[f32], rows: &[usize], offsets: &Offsets, tiles: &mut [f32], unit: Unit) {
    let contiguous = rows.iter().enumerate().all(|(index, row)| *row == rows[0] + index);
    for (some, tile) in offsets.values.chunks(TILE_TERMS).zip(tiles.chunks_exact_mut(TILE)) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if contiguous && unit.kind() != Kind::Portable {
            let from = &a[rows[0]..];
            assert!(offsets.largest.saturating_add(rows.len()) <= from.len(), "a term outside the operand");
            // SAFETY: the unit proves that the CPU has the instructions. No offset is larger than `largest`, so that
            // `rows.len()` elements from each are inside `from`.
            unsafe { x86::round_columns(from, rows.len(), some, tile) };
            continue;
        }
        let _ = (contiguous, offsets.largest);
        for (row, line) in rows.iter().zip(tile.chunks_exact_mut(TILE_COLUMNS)) {
            let mut terms = [0f32; TILE_TERMS];
            for (term, offset) in terms.iter_mut().zip(some) {
                *term = a[row + offset];
            }
            round(&terms, line, unit);
        }
    }
}

/// Puts `terms` rows of 16 columns, `stride` elements apart, into tiles, with zeros after the last term.
pub(super) fn pair_columns(b: &[f32], stride: usize, terms: usize, tiles: &mut [f32], unit: Unit) {
    const ZEROS: [f32; TILE_COLUMNS] = [0.0; TILE_COLUMNS];
    for (pair, line) in tiles.chunks_exact_mut(TILE_COLUMNS).enumerate() {
        let [first, second] = [2 * pair, 2 * pair + 1].map(|term| match term < terms {
            true => b[term * stride..].first_chunk().expect("a whole vector of every row"),
            false => &ZEROS,
        });
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if unit.kind() != Kind::Portable {
            // SAFETY: the unit proves that the CPU has the instructions.
            unsafe { x86::pair(first, second, line) };
            continue;
        }
        let _ = unit;
        for column in 0..TILE_COLUMNS {
            line[column] = joined(first[column], second[column]);
        }
    }
}

/// Two values rounded to bf16 in the place of one.
fn joined(low: f32, high: f32) -> f32 {
    let [low, high] = [low, high].map(|value| u32::from(rounded(value)));
    f32::from_bits(high << 16 | low)
}

/// The nearest bf16; of two equally near the even one.
fn rounded(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// Rounds the terms of a row of a tile.
#[inline(always)]
fn round(terms: &[f32; TILE_TERMS], line: &mut [f32], unit: Unit) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if unit.kind() != Kind::Portable {
        // SAFETY: the unit proves that the CPU has the instructions.
        unsafe { x86::round(terms, line) };
        return;
    }
    debug_assert!(unit.kind() == Kind::Portable);
    for (pair, line) in terms.as_chunks().0.iter().zip(line) {
        let [low, high] = *pair;
        *line = joined(low, high);
    }
}
