//! Products of operands rounded to bf16, with sums in `f32`: by the CPU's matrix unit (AMX) or its dot products of pairs
//! (AVX-512 BF16).
//!
//! A product is cheap enough that operands are put into tiles wherever they are used. Only weights, which the products of
//! all tiles of the feature maps read, are kept in tiles ([`Tiles`](super::Tiles)).

use std::marker::PhantomData;

use super::operands::{Product, Right};
use super::runs::Run;
use super::sizes::{TILE, TILE_COLUMNS, TILE_ROWS, TILE_TERMS, panel_width};
use super::tiles::{Offsets, TilesView, pair_columns, round_columns, round_rows};
use super::unit::Unit;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::{unit::Kind, x86};
use crate::buffer::with_scratch;
use crate::disjoint::Disjoint;

/// Rows whose tiles are made at a time; they stay in the second-level cache.
const BLOCK: usize = 256;

/// Rows and columns of the result that [`Configured::multiply`] computes.
const SIDE: usize = 2 * TILE_ROWS;

/// [`multiply`](super::multiply) for bf16.
///
/// # Safety
///
/// As [`multiply`](super::multiply).
///
/// # Panics
///
/// If an operand or the result does not have all elements that `product` names.
pub(super) unsafe fn multiply(product: &Product<'_>, unit: Unit) {
    product.assert_inside();
    let columns = product.columns.div_ceil(TILE_COLUMNS);
    // SAFETY: this function makes no other, and nothing that it calls makes one.
    let configured = unsafe { Configured::new(unit) };
    for (chunk, (first_term, runs)) in product.chunks.iter().enumerate() {
        let terms: usize = runs.iter().map(|run| run.len).sum();
        let per_row = terms.div_ceil(TILE_TERMS);
        let accumulate = product.accumulate || chunk > 0;
        match product.right {
            Right::Tiles(right) => {
                // SAFETY: the caller's promise.
                unsafe {
                    blocks(product, &configured, runs, per_row, right.terms_from(*first_term), accumulate)
                };
            }
            Right::Rows { values, stride, panel_stride } => {
                with_scratch(3, columns * per_row * TILE, |tiles| {
                    debug_assert_eq!(panel_stride, panel_width(), "only contiguous rows are put into tiles");
                    for (index, tiles) in tiles.chunks_exact_mut(per_row * TILE).enumerate() {
                        let values = &values[first_term * stride + index * TILE_COLUMNS..];
                        pair_columns(values, stride, terms, tiles, unit);
                    }
                    // SAFETY: the caller's promise.
                    unsafe {
                        blocks(
                            product,
                            &configured,
                            runs,
                            per_row,
                            TilesView::new(tiles, per_row),
                            accumulate,
                        )
                    };
                })
            }
        }
    }
}

/// One chunk of terms for all rows and columns. `per_row` is the number of tiles that the terms fill.
///
/// # Safety
///
/// Nothing else accesses the elements of the result's rows during the call.
unsafe fn blocks(
    product: &Product<'_>,
    configured: &Configured,
    runs: &[Run],
    per_row: usize,
    right: TilesView<'_>,
    accumulate: bool,
) {
    let unit = configured.unit;
    let columns = product.columns.div_ceil(TILE_COLUMNS);
    let offsets = (product.step != 1).then(|| Offsets::new(runs, product.step));
    for first_row in (0..product.rows_a.len()).step_by(BLOCK) {
        let last_row = product.rows_a.len().min(first_row + BLOCK);
        let (rows_a, rows_c) = (&product.rows_a[first_row..last_row], &product.rows_c[first_row..last_row]);
        let tiles_of_rows = rows_a.len().div_ceil(TILE_ROWS);
        with_scratch(2, tiles_of_rows * per_row * TILE, |left| {
            for (rows, tiles) in rows_a.chunks(TILE_ROWS).zip(left.chunks_exact_mut(per_row * TILE)) {
                match &offsets {
                    None => round_rows(product.a, rows, runs, tiles, unit),
                    Some(offsets) => round_columns(product.a, rows, offsets, tiles, unit),
                }
            }
            for column in (0..columns).step_by(2) {
                for row in (0..tiles_of_rows).step_by(2) {
                    let rows_c = &rows_c[row * TILE_ROWS..rows_c.len().min((row + 2) * TILE_ROWS)];
                    let of_columns = (product.columns - column * TILE_COLUMNS).min(2 * TILE_COLUMNS);
                    // At the end there may be one tile instead of two; it is read twice, and the second sums are not
                    // used.
                    let second_row = (row + 1).min(tiles_of_rows - 1);
                    let second_column = (column + 1).min(columns - 1);
                    let left = [row, second_row].map(|row| &left[row * per_row * TILE..][..per_row * TILE]);
                    let right =
                        [column, second_column].map(|column| right.column(column * TILE_COLUMNS, per_row));
                    let c = product.c.starting_at(column * TILE_COLUMNS);
                    // SAFETY: the caller's promise; these are rows of the result, from this column on.
                    unsafe { block(configured, left, right, c, rows_c, of_columns, accumulate) };
                }
            }
        });
    }
}

/// Up to 32 rows and columns of the result.
///
/// # Safety
///
/// Nothing else accesses `columns` elements from every row of `c` during the call.
unsafe fn block(
    configured: &Configured,
    left: [&[f32]; 2],
    right: [&[f32]; 2],
    c: Disjoint<'_>,
    rows_c: &[usize],
    columns: usize,
    accumulate: bool,
) {
    assert!(rows_c.len() <= SIDE && columns <= SIDE);
    assert!(rows_c.iter().all(|row| row.saturating_add(columns) <= c.len()), "a row outside the result");
    let c = c.as_mut_ptr();
    let stride = rows_c.get(1).map_or(0, |second| second.wrapping_sub(rows_c[0]));
    let even = rows_c.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) == stride);
    if rows_c.len() == SIDE && columns == SIDE && even && stride < usize::MAX / 8 {
        // SAFETY: 32 rows of 32 columns, all inside `c`, each `stride` elements after the one before.
        unsafe { configured.multiply(left, right, c.add(rows_c[0]), stride, accumulate) };
        return;
    }
    let mut buffer = [[0f32; SIDE]; SIDE];
    for (row, buffer) in rows_c.iter().zip(&mut buffer).filter(|_| accumulate) {
        // SAFETY: `columns <= 32` elements of this row are inside `c`, and the buffer's row has 32.
        unsafe { std::ptr::copy_nonoverlapping(c.add(*row), buffer.as_mut_ptr(), columns) };
    }
    // SAFETY: the buffer has 32 contiguous rows of 32 columns.
    unsafe { configured.multiply(left, right, buffer.as_mut_ptr().cast(), SIDE, accumulate) };
    for (row, buffer) in rows_c.iter().zip(&buffer) {
        // SAFETY: as for the copy into the buffer.
        unsafe { std::ptr::copy_nonoverlapping(buffer.as_ptr(), c.add(*row), columns) };
    }
}

/// A unit whose registers are set up for the thread that made it, until it is dropped.
struct Configured {
    unit: Unit,
    /// Neither sent to another thread nor shared with one.
    of_thread: PhantomData<*const ()>,
}

impl Configured {
    /// # Safety
    ///
    /// The thread has no other `Configured`: the first one dropped releases the registers.
    unsafe fn new(unit: Unit) -> Self {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if unit.kind() == Kind::Matrix {
            // SAFETY: the unit proves that the CPU has tile registers and that the process may use them.
            unsafe { x86::configure() };
        }
        Self { unit, of_thread: PhantomData }
    }

    /// `c[i][j] (+)= sum over t of left[i][t] * right[t][j]` for 32 rows and columns. The operands are two tiles of rows
    /// and two of columns, all of the same terms.
    ///
    /// # Safety
    ///
    /// 32 rows of 32 elements, the rows `stride` elements apart, can be read and written from `c`, and nothing else
    /// accesses them.
    unsafe fn multiply(
        &self,
        left: [&[f32]; 2],
        right: [&[f32]; 2],
        c: *mut f32,
        stride: usize,
        accumulate: bool,
    ) {
        let tiles = left[0].len() / TILE;
        assert!(tiles > 0 && left.iter().chain(&right).all(|tiles_of| tiles_of.len() == tiles * TILE));
        match self.unit.kind() {
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Kind::Matrix => {
                let (left, right) = (left.map(<[f32]>::as_ptr), right.map(<[f32]>::as_ptr));
                // SAFETY: the caller's promise; `tiles > 0` tiles of every operand, as was just checked; the unit
                // proves that the CPU has the instructions, and `new` has configured its registers on this thread.
                unsafe { x86::multiply(left, right, tiles, c, stride, accumulate) }
            }
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Kind::Pairs => {
                let (left, right) = (left.map(<[f32]>::as_ptr), right.map(<[f32]>::as_ptr));
                // SAFETY: as above, without registers to configure.
                unsafe { x86::multiply_pairs(left, right, tiles, c, stride, accumulate) }
            }
            // SAFETY: the caller's promise.
            _ => unsafe { multiply_portable(left, right, c, stride, accumulate) },
        }
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.unit.kind() == Kind::Matrix {
            // SAFETY: the unit proves that the CPU has tile registers; nothing on this thread uses them any more.
            unsafe { x86::release() };
        }
    }
}

/// # Safety
///
/// As [`Configured::multiply`].
unsafe fn multiply_portable(
    left: [&[f32]; 2],
    right: [&[f32]; 2],
    c: *mut f32,
    stride: usize,
    accumulate: bool,
) {
    let halves = |pair: f32| {
        let bits = pair.to_bits();
        [f32::from_bits(bits << 16), f32::from_bits(bits & 0xffff_0000)]
    };
    for row in 0..SIDE {
        for column in 0..SIDE {
            // SAFETY: row `row` and column `column` of the 32 x 32 elements that the caller promises.
            let to = unsafe { &mut *c.add(row * stride + column) };
            let mut sum = if accumulate { *to } else { 0.0 };
            for pair in 0..left[0].len() / TILE_COLUMNS {
                let tile = pair / TILE_ROWS * TILE;
                let a = left[row / TILE_ROWS][tile + row % TILE_ROWS * TILE_COLUMNS + pair % TILE_ROWS];
                let b = right[column / TILE_COLUMNS]
                    [tile + pair % TILE_ROWS * TILE_COLUMNS + column % TILE_COLUMNS];
                let ([a, a2], [b, b2]) = (halves(a), halves(b));
                sum += a * b + a2 * b2;
            }
            *to = sum;
        }
    }
}
