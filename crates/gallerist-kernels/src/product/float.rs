//! Products of `f32`: a register block of [`BLOCK_ROWS`] rows by up to 4 vectors.

use std::slice::Chunks;

use gallerist_util::memory::{Cache, prefetch, prefetch_line};
use gallerist_util::simd::run;
use pulp::{Simd, WithSimd};

use super::operands::Product;
use super::runs::{Run, offsets};
use super::sizes::{
    BLOCK_ROWS, FEWEST_COPIED_PANELS, chunks_together, max_copied_terms, panel_width, vectors_per_panel,
};
use crate::buffer::{LINE, with_scratch};
use crate::norm::InRegisters;

/// Rows of the register block of a panel of one vector: with [`BLOCK_ROWS`], the sums are too few to hide the latency of an addition.
const ROWS_OF_VECTOR: usize = 8;

/// Terms that are fetched ahead where so few rows are multiplied that the right operand comes slower than it is used.
const TERMS_AHEAD: usize = 32;

/// [`multiply`](super::multiply) for `f32`, but for the gate of an activation; the right operand is
/// [`Right::Rows`](super::Right::Rows).
///
/// # Safety
///
/// As [`multiply`](super::multiply).
///
/// # Panics
///
/// If an operand or the result does not have all elements that `product` names.
pub(super) unsafe fn multiply(product: Product<'_>, b: &[f32], stride: usize, panel_stride: usize) {
    let panels = product.columns.div_ceil(panel_width());
    // SAFETY: the caller's promise.
    unsafe {
        match product.step != 1 && product.finish.is_none() && panels >= FEWEST_COPIED_PANELS {
            true => multiply_copies(&product, b, stride, panel_stride),
            false => run(Compute::new(product, b, stride, panel_stride)),
        }
    }
}

/// The same for a left operand whose terms are not neighbours, as for the gradient of a weight. Both operands are copied in the
/// order in which they are read, some terms at a time.
///
/// # Safety
///
/// As [`multiply`].
unsafe fn multiply_copies(product: &Product<'_>, b: &[f32], stride: usize, panel_stride: usize) {
    product.assert_inside();
    let Product { a, rows_a, columns, .. } = *product;
    let (width, count) = (panel_width(), rows_a.len());
    let panels = columns.div_ceil(width);
    let offsets = offsets(product.chunks.iter().flat_map(|(_, runs)| runs), product.step);
    let together = offsets.len().div_ceil(offsets.len().div_ceil(max_copied_terms()).max(1)).max(1);
    let of_left = together * count.next_multiple_of(BLOCK_ROWS);
    with_scratch(2, of_left, |left| {
        with_scratch(3, together * panels * width, |right| {
            for (chunk, offsets) in offsets.chunks(together).enumerate() {
                let terms = offsets.len();
                for (rows, to) in rows_a.chunks(BLOCK_ROWS).zip(left.chunks_exact_mut(terms * BLOCK_ROWS)) {
                    copy_rows(a, rows, offsets, to);
                }
                for (panel, to) in right.chunks_exact_mut(terms * width).take(panels).enumerate() {
                    let columns = width.min(columns - panel * width);
                    for (term, to) in to.chunks_exact_mut(width).enumerate() {
                        let first = (chunk * together + term) * stride + panel * panel_stride;
                        to[..columns].copy_from_slice(&b[first..][..columns]);
                        to[columns..].fill(0.0);
                    }
                }
                let row = |row: usize| row / BLOCK_ROWS * BLOCK_ROWS * terms + row % BLOCK_ROWS;
                let copies = Product {
                    a: left,
                    rows_a: &(0..count).map(row).collect::<Vec<usize>>(),
                    step: BLOCK_ROWS,
                    chunks: &[(0, vec![Run { offset: 0, len: terms }])],
                    accumulate: product.accumulate || chunk > 0,
                    prefetch: if chunk == 0 { product.prefetch } else { &[] },
                    ..*product
                };
                // SAFETY: the caller's promise.
                run(unsafe { Compute::new(copies, right, width, terms * width) });
            }
        });
    });
}

/// The terms at `offsets` of up to [`BLOCK_ROWS`] rows, those of all rows next to each other.
fn copy_rows(a: &[f32], rows: &[usize], offsets: &[usize], to: &mut [f32]) {
    let neighbours = rows.len() == BLOCK_ROWS && rows.windows(2).all(|pair| pair[1] == pair[0] + 1);
    for (offset, to) in offsets.iter().zip(to.chunks_exact_mut(BLOCK_ROWS)) {
        match neighbours {
            true => to.copy_from_slice(&a[rows[0] + offset..][..BLOCK_ROWS]),
            false => to.iter_mut().zip(rows).for_each(|(to, row)| *to = a[row + offset]),
        }
    }
}

/// A product whose result nothing else accesses: [`Compute::new`], which is unsafe, is the only way to make one.
pub(super) struct Compute<'a> {
    product: Product<'a>,
    b: &'a [f32],
    stride_b: usize,
    panel_stride: usize,
}

impl<'a> Compute<'a> {
    /// # Safety
    ///
    /// Nothing else accesses the rows of the result until the value is gone.
    pub(super) unsafe fn new(
        product: Product<'a>,
        b: &'a [f32],
        stride_b: usize,
        panel_stride: usize,
    ) -> Self {
        product.assert_inside();
        Self { product, b, stride_b, panel_stride }
    }

    /// Checks that `b` holds whole vectors of `lanes` elements for every term and column, in panels of `width` columns.
    #[inline(always)]
    fn assert_right_inside(&self, lanes: usize, width: usize) {
        let (terms, columns) = (self.product.terms(), self.product.columns);
        if terms == 0 || columns == 0 {
            return;
        }
        let last_panel = (columns - 1) / width;
        let end = |panel: usize, columns: usize| {
            (terms - 1)
                .saturating_mul(self.stride_b)
                .saturating_add(panel.saturating_mul(self.panel_stride))
                .saturating_add(columns)
        };
        let last = end(last_panel, (columns - last_panel * width).next_multiple_of(lanes));
        let before = last_panel.checked_sub(1).map_or(0, |panel| end(panel, width));
        assert!(last.max(before) <= self.b.len(), "a term outside the right operand");
        if let Some(finish) = &self.product.finish {
            assert!(columns.next_multiple_of(lanes) <= finish.bias.len(), "the bias of whole vectors");
        }
    }
}

impl WithSimd for Compute<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let product = &self.product;
        let width = vectors_per_panel::<S>() * S::F32_LANES;
        self.assert_right_inside(S::F32_LANES, width);
        let panels = product.columns.div_ceil(width);
        let blocks = panels * product.chunks.len() * product.rows_a.len().div_ceil(BLOCK_ROWS);
        // The same number of whole cache lines with every block of rows.
        let per_block = product.prefetch.len().div_ceil(blocks.max(1)).max(1).next_multiple_of(LINE);
        let mut prefetched = product.prefetch.chunks(per_block);
        let (chunks, together) = (product.chunks.len(), chunks_together());
        for group in (0..chunks).step_by(together) {
            for panel in 0..panels {
                let columns = width.min(product.columns - panel * width);
                for chunk in group..chunks.min(group + together) {
                    // SAFETY: `Compute::new` has checked `a` and `c` and its caller promised that nothing else accesses the
                    // rows of `c`; `b` was checked above. `panel` and `chunk` exist, `columns` are the panel's.
                    unsafe {
                        match columns.div_ceil(S::F32_LANES) {
                            1 => rows::<S, 1, ROWS_OF_VECTOR>(
                                simd,
                                &self,
                                panel,
                                columns,
                                chunk,
                                &mut prefetched,
                            ),
                            2 => {
                                rows::<S, 2, BLOCK_ROWS>(simd, &self, panel, columns, chunk, &mut prefetched)
                            }
                            3 => {
                                rows::<S, 3, BLOCK_ROWS>(simd, &self, panel, columns, chunk, &mut prefetched)
                            }
                            _ => {
                                rows::<S, 4, BLOCK_ROWS>(simd, &self, panel, columns, chunk, &mut prefetched)
                            }
                        }
                    }
                }
            }
        }
    }
}

/// One panel and one chunk of terms, a block of `B` rows at a time.
///
/// # Safety
///
/// The bounds of `a` and `c` ([`Product::assert_inside`]) and of `b` ([`Compute::assert_right_inside`]) were checked,
/// nothing else accesses the rows of `c`, `panel` and `chunk` exist, `columns` is the number of columns of `panel`, and
/// `columns.div_ceil(lanes) == V`.
#[inline(always)]
unsafe fn rows<S: Simd, const V: usize, const B: usize>(
    simd: S,
    compute: &Compute<'_>,
    panel: usize,
    columns: usize,
    chunk: usize,
    prefetched: &mut Chunks<'_, f32>,
) {
    let Compute { product, b, stride_b, panel_stride } = compute;
    let width = vectors_per_panel::<S>() * S::F32_LANES;
    let (first_term, runs) = &product.chunks[chunk];
    let finish = product.finish.as_ref();
    // Vector `v` of the panel starts inside the bias, as was checked.
    let bias = finish.filter(|_| chunk == 0).map(|finish| finish.bias.as_ptr().wrapping_add(panel * width));
    let last = chunk + 1 == product.chunks.len();
    let activation = finish.filter(|_| last).and_then(|finish| finish.activation.in_registers());
    // SAFETY: every row of `c` has more than `panel * width` elements inside.
    let c = unsafe { product.c.as_mut_ptr().add(panel * width) };
    // Rows are added to the first chunk, and the bias with them; the activation follows the last chunk.
    let (start, rows_start) = match finish.filter(|_| chunk == 0).and_then(|finish| finish.add) {
        Some((values, rows)) => (Some(values.as_ptr().wrapping_add(panel * width)), rows),
        None => ((product.accumulate || chunk > 0).then_some(c.cast_const()), product.rows_c),
    };
    let part = Part {
        product,
        runs,
        // Wrapping: a chunk without terms may start after the end of `b`, which then is not read.
        b: b.as_ptr().wrapping_add(first_term * stride_b + panel * panel_stride),
        stride_b: *stride_b,
        c,
        columns,
        start,
        rows_start,
        ends: Ends { bias, activation },
    };
    // What follows in a packed operand is read next. Every block fetches one line a term, until all lines are; a block of few rows
    // alone fetches its own terms.
    let terms: usize = runs.iter().map(|run| run.len).sum();
    let following = part.b.wrapping_add(terms * stride_b);
    let lines_of_term = if *stride_b == width { (V * S::F32_LANES).div_ceil(LINE) } else { 0 };
    let (mut first, mut blocks, count) = (0, 0, product.rows_a.len());
    while first < count {
        if let Some(values) = prefetched.next() {
            prefetch(values, Cache::Second);
        }
        let ahead = if count <= 2 {
            Ahead { next: part.b.wrapping_add(TERMS_AHEAD * stride_b), step: *stride_b }
        } else if blocks < lines_of_term {
            Ahead { next: following.wrapping_add(blocks * terms * LINE), step: LINE }
        } else {
            Ahead { next: part.b, step: 0 }
        };
        // SAFETY: the caller's promise, and `first` is a row.
        first += unsafe {
            match (count - first, B) {
                (1 | 2, _) => part.rows::<S, V, 2>(simd, first, ahead),
                // Two blocks of 4 rows take less time than one of 6 and one of 2, whose sums are too few to hide the
                // latency of an addition.
                (3 | 4, _) | (7 | 8, BLOCK_ROWS) => part.rows::<S, V, 4>(simd, first, ahead),
                (5 | 6, _) => part.rows::<S, V, BLOCK_ROWS>(simd, first, ahead),
                _ => part.rows::<S, V, B>(simd, first, ahead),
            }
        };
        blocks += 1;
    }
}

/// One panel and one chunk of terms.
struct Part<'a> {
    product: &'a Product<'a>,
    runs: &'a [Run],
    /// The first term of the chunk and column of the panel.
    b: *const f32,
    stride_b: usize,
    /// The first column of the panel.
    c: *mut f32,
    columns: usize,
    /// The values that the sums start from, from the first column of the panel on, if they start from any.
    start: Option<*const f32>,
    /// Their rows.
    rows_start: &'a [usize],
    ends: Ends,
}

impl Part<'_> {
    /// The `R` rows from `first` on; returns `R`. If there are fewer, the last one is repeated: all copies compute and store
    /// the same values.
    ///
    /// # Safety
    ///
    /// As [`rows`], of whose arguments this was made, and `first` is a row.
    #[inline(always)]
    unsafe fn rows<S: Simd, const V: usize, const R: usize>(
        &self,
        simd: S,
        first: usize,
        ahead: Ahead,
    ) -> usize {
        let Self { product, runs, b, stride_b, c, columns, start, rows_start, ends } = *self;
        let lists = [product.rows_a, product.rows_c, rows_start];
        let repeated;
        let [rows_a, rows_c, rows_start] = match first + R <= product.rows_c.len() {
            true => lists.map(|rows| rows[first..].first_chunk::<R>().expect("as many of all lists")),
            false => {
                let last = product.rows_c.len() - 1;
                repeated = lists.map(|rows| std::array::from_fn(|i| rows[(first + i).min(last)]));
                repeated.each_ref()
            }
        };
        // The result's rows of the next block. Fetching the one line of each that narrow panels have takes longer than it saves.
        let following = product.rows_c.get(first + R..first + 2 * R).filter(|_| V * S::F32_LANES > LINE);
        for &row in following.unwrap_or_default() {
            for column in (0..V * S::F32_LANES).step_by(LINE) {
                prefetch_line(c.wrapping_add(row + column), Cache::First);
            }
        }
        let a = Rows { base: product.a.as_ptr(), rows: rows_a };
        let right = Columns { b, stride_b, ahead };
        let start = start.map(|base| Rows { base, rows: rows_start });
        let last = columns - (V - 1) * S::F32_LANES;
        // SAFETY: the terms of these rows are inside `a`, whole vectors of the panel inside `b` and the bias, and `V - 1`
        // vectors and `last` elements are the panel's columns of these rows of `c` and of the rows that are added.
        unsafe {
            match last == S::F32_LANES {
                true => {
                    block::<S, true, V, R>(simd, a, product.step, runs, right, c, rows_c, last, start, ends)
                }
                false => {
                    block::<S, false, V, R>(simd, a, product.step, runs, right, c, rows_c, last, start, ends)
                }
            }
        }
        R
    }
}

/// Rows that start so many elements after `base`.
#[derive(Clone, Copy)]
struct Rows<'a, const R: usize> {
    base: *const f32,
    rows: &'a [usize; R],
}

impl<const R: usize> Rows<'_, R> {
    #[inline(always)]
    fn row(self, i: usize) -> *const f32 {
        self.base.wrapping_add(self.rows[i])
    }
}

/// The right operand of a register block.
#[derive(Clone, Copy)]
struct Columns {
    b: *const f32,
    stride_b: usize,
    ahead: Ahead,
}

/// Elements that are fetched into the second-level cache with each term: a line, or all lines of a term with a block of two rows. They may
/// be anywhere.
#[derive(Clone, Copy)]
struct Ahead {
    next: *const f32,
    step: usize,
}

/// What is done with the sums before and after the terms of a chunk.
#[derive(Clone, Copy)]
struct Ends {
    /// Added to the start of every row.
    bias: Option<*const f32>,
    activation: Option<InRegisters>,
}

/// The register block: `R` rows by `V` vectors. The sums start from the rows of `start`, or from 0.
///
/// # Safety
///
/// * For every row `i`, run `r` of `runs` and `k < r.len`, element `r.offset + k * step` of row `i` of `a` is valid for reads.
/// * For every term `t` of `runs`, counted from 0, `V` vectors from `b + t * stride_b` are valid for reads.
/// * `V` vectors from every `c + rows_c[i]` are valid for reads and writes, and nothing else accesses them. Rows of `c` may
///   coincide if the matching rows of `a` and of `start` do: all rows are read before the first is written.
/// * `V` vectors from every row of `start` and from the bias are valid for reads.
///
/// Of rows of `c` and of `start`, the last vector has only `last` elements, exactly a vector if `WHOLE`.
#[inline(always)]
unsafe fn block<S: Simd, const WHOLE: bool, const V: usize, const R: usize>(
    simd: S,
    a: Rows<'_, R>,
    step: usize,
    runs: &[Run],
    Columns { mut b, stride_b, mut ahead }: Columns,
    c: *mut f32,
    rows_c: &[usize; R],
    last: usize,
    start: Option<Rows<'_, R>>,
    ends: Ends,
) {
    let mut bias = [simd.splat_f32s(0.0); V];
    if let Some(values) = ends.bias {
        for v in 0..V {
            // SAFETY: vector v of the bias.
            bias[v] = unsafe { load::<S>(values.add(v * S::F32_LANES)) };
        }
    }
    let mut sums = [bias; R];
    if let Some(start) = start {
        for i in 0..R {
            for v in 0..V {
                // SAFETY: vector v of row i of the start.
                let value = unsafe {
                    let address = start.row(i).add(v * S::F32_LANES);
                    match WHOLE || v + 1 < V {
                        true => load::<S>(address),
                        false => simd.partial_load_f32s(std::slice::from_raw_parts(address, last)),
                    }
                };
                sums[i][v] = if ends.bias.is_some() { simd.add_f32s(value, bias[v]) } else { value };
            }
        }
    }
    let a: [*const f32; R] = std::array::from_fn(|i| a.row(i));
    for run in runs {
        let mut at = run.offset;
        for _ in 0..run.len {
            prefetch_line(ahead.next, Cache::Second);
            if R == 2 {
                for first in (LINE..V * S::F32_LANES).step_by(LINE) {
                    prefetch_line(ahead.next.wrapping_add(first), Cache::Second);
                }
            }
            ahead.next = ahead.next.wrapping_add(ahead.step);
            let mut right = [simd.splat_f32s(0.0); V];
            for v in 0..V {
                // SAFETY: vector v of this term's row of `b`.
                right[v] = unsafe { load::<S>(b.add(v * S::F32_LANES)) };
            }
            for i in 0..R {
                // SAFETY: this term of row i of `a`.
                let left = simd.splat_f32s(unsafe { *a[i].add(at) });
                for v in 0..V {
                    sums[i][v] = simd.mul_add_e_f32s(left, right[v], sums[i][v]);
                }
            }
            at += step;
            b = b.wrapping_add(stride_b);
        }
    }
    if let Some(activation) = ends.activation {
        for sums in &mut sums {
            activation.apply(simd, sums);
        }
    }
    for i in 0..R {
        for v in 0..V {
            // SAFETY: vector v of row i of the result.
            unsafe {
                let address = c.add(rows_c[i] + v * S::F32_LANES);
                match WHOLE || v + 1 < V {
                    true => address.cast::<S::f32s>().write_unaligned(sums[i][v]),
                    false => {
                        simd.partial_store_f32s(std::slice::from_raw_parts_mut(address, last), sums[i][v]);
                    }
                }
            }
        }
    }
}

/// # Safety
///
/// One vector from `address` is valid for reads.
#[inline(always)]
unsafe fn load<S: Simd>(address: *const f32) -> S::f32s {
    // SAFETY: vectors of `f32` are plain data of `F32_LANES` elements; alignment is not assumed.
    unsafe { address.cast::<S::f32s>().read_unaligned() }
}
