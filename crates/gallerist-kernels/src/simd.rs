//! The vector unit: choice of the instruction set and the one inner loop of every product.

use std::slice::Chunks;

use gallerist_util::memory::{Cache, prefetch};
use gallerist_util::simd::run;
use pulp::{Simd, WithSimd};

use crate::bf16::{self, Factors, TilesView};

/// Rows of the register block of [`Product`].
pub(crate) const BLOCK_ROWS: usize = 6;

/// Widest panel of columns any instruction set uses: 4 vectors of 16 lanes.
pub(crate) const MAX_PANEL: usize = 64;

/// Terms of a product that are summed before the accumulators go back to memory. A panel of
/// `TERMS x MAX_PANEL` weights (24 KB) stays in the first-level cache meanwhile.
const TERMS: usize = 96;

/// Number of columns that one pass of [`Product`] computes: the width of a packed panel.
pub(crate) fn panel_width() -> usize {
    run(PanelWidth)
}

struct PanelWidth;

impl WithSimd for PanelWidth {
    type Output = usize;

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) -> usize {
        vectors_per_panel::<S>() * S::F32_LANES
    }
}

/// 6 x 4 accumulators need 29 registers, 6 x 2 need 15.
#[inline(always)]
const fn vectors_per_panel<S: Simd>() -> usize {
    if S::REGISTER_COUNT >= 32 { 4 } else { 2 }
}

/// A run of consecutive terms of the sum: their left factors start `offset` elements behind the
/// row's address and lie [`Product::step`] elements apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) offset: usize,
    pub(crate) len: usize,
}

/// Splits `runs` into chunks of at most [`TERMS`] terms, more if the factors are rounded. Each chunk comes with the
/// number of terms before it. The split depends on the runs alone, so sums have the same bits on every machine.
pub(crate) fn chunks(runs: &[Run], step: usize, factors: Factors) -> Vec<(usize, Vec<Run>)> {
    let total: usize = runs.iter().map(|run| run.len).sum();
    let (most, multiple) = match factors {
        Factors::F32 => (TERMS, 1),
        Factors::Bf16(_) => (bf16::MOST_TERMS, bf16::TERMS),
    };
    let per_chunk = total.div_ceil(total.div_ceil(most).max(1)).max(1).next_multiple_of(multiple);
    let mut chunks = vec![];
    let mut chunk = vec![];
    let (mut done, mut room) = (0, per_chunk);
    for run in runs {
        let mut run = *run;
        while run.len > 0 {
            let len = run.len.min(room);
            chunk.push(Run { offset: run.offset, len });
            run = Run { offset: run.offset + len * step, len: run.len - len };
            room -= len;
            if room == 0 {
                chunks.push((done, std::mem::take(&mut chunk)));
                done += per_chunk;
                room = per_chunk;
            }
        }
    }
    if !chunk.is_empty() {
        chunks.push((done, chunk));
    }
    chunks
}

/// `c[i][j] (+)= sum over t of a[i][t] * b[t][j]`: a product whose left rows and result rows lie at
/// arbitrary addresses, so that a convolution needs no copy of its windows.
///
/// * Row `i` of the left factor starts at `a + rows_a[i]`; its terms are found through `chunks`.
/// * The right factor is [`Right`].
/// * Row `i` of the result starts at `c + rows_c[i]` and has `columns` consecutive elements.
///
/// Terms are added in order, one fused multiply-add each, whatever the block a row falls into: the
/// result of a row does not depend on the other rows.
pub(crate) struct Product<'a> {
    pub(crate) a: *const f32,
    pub(crate) rows_a: &'a [usize],
    pub(crate) step: usize,
    /// Of [`chunks`], for the same `factors`.
    pub(crate) chunks: &'a [(usize, Vec<Run>)],
    pub(crate) right: Right<'a>,
    pub(crate) factors: Factors,
    pub(crate) c: *mut f32,
    pub(crate) rows_c: &'a [usize],
    pub(crate) columns: usize,
    /// Add to what is in `c` instead of overwriting it.
    pub(crate) accumulate: bool,
    /// What the next product reads where it lies, if anything. It is brought into the second-level cache during this one,
    /// which leaves memory idle; a copy would be made at memory's pace anyway. Products of rounded factors do not ask
    /// for it.
    pub(crate) ahead: &'a [f32],
}

/// The right factor of a [`Product`].
#[derive(Clone, Copy)]
pub(crate) enum Right<'a> {
    /// Term `t` is the row `b + t * stride`; columns are taken in panels of [`panel_width`] columns, panel `p`
    /// starting `p * panel_stride` elements further.
    Rows { b: *const f32, stride: usize, panel_stride: usize },
    /// Tiles of rounded factors, for [`Factors::Bf16`] only.
    Tiles(TilesView<'a>),
}

impl Product<'_> {
    /// Computes the product.
    ///
    /// # Safety
    ///
    /// * For every row `i`, run `r` of `chunks` and `k < r.len`,
    ///   `a + rows_a[i] + r.offset + k * step` is valid for reads.
    /// * For every term `t` and panel `p` of a right factor in rows, the next `columns of the panel, rounded
    ///   up to whole vectors` (of 16 elements if the factors are rounded) from
    ///   `b + t * stride + p * panel_stride` are valid for reads; tiles hold all terms and columns.
    /// * For every row `i`, `columns` elements from `c + rows_c[i]` are valid for reads and writes
    ///   and nothing else accesses them during the call. Different rows do not overlap each other,
    ///   nor `a` or `b`.
    /// * `rows_a` and `rows_c` have the same length.
    pub(crate) unsafe fn compute(self) {
        debug_assert_eq!(self.rows_a.len(), self.rows_c.len());
        if self.rows_a.is_empty() {
            return;
        }
        match (self.factors, self.right) {
            // SAFETY: passed on; `chunks` makes chunks of such lengths.
            (Factors::Bf16(unit), _) => unsafe { bf16::compute(&self, unit) },
            (Factors::F32, Right::Rows { b, stride, panel_stride }) => {
                run(Compute { product: self, b, stride_b: stride, panel_stride });
            }
            (Factors::F32, Right::Tiles(_)) => unreachable!("tiles are made for rounded factors"),
        }
    }
}

struct Compute<'a> {
    product: Product<'a>,
    b: *const f32,
    stride_b: usize,
    panel_stride: usize,
}

impl WithSimd for Compute<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let product = &self.product;
        let width = vectors_per_panel::<S>() * S::F32_LANES;
        let panels = product.columns.div_ceil(width);
        let blocks = panels * product.chunks.len() * product.rows_a.len().div_ceil(BLOCK_ROWS);
        // As many whole cache lines with every block of rows.
        let mut ahead =
            product.ahead.chunks(product.ahead.len().div_ceil(blocks.max(1)).max(1).next_multiple_of(16));
        for panel in 0..panels {
            let columns = width.min(product.columns - panel * width);
            for chunk in 0..product.chunks.len() {
                // SAFETY: `Product::compute`, the only constructor of `Compute`, passes on its
                // caller's promises; `columns.div_ceil(lanes)` vectors are what they cover.
                unsafe {
                    match columns.div_ceil(S::F32_LANES) {
                        1 => rows::<S, 1>(simd, &self, panel, columns, chunk, &mut ahead),
                        2 => rows::<S, 2>(simd, &self, panel, columns, chunk, &mut ahead),
                        3 => rows::<S, 3>(simd, &self, panel, columns, chunk, &mut ahead),
                        _ => rows::<S, 4>(simd, &self, panel, columns, chunk, &mut ahead),
                    }
                }
            }
        }
    }
}

/// One panel and one chunk of terms for all rows, a block of rows at a time.
///
/// # Safety
///
/// As [`Product::compute`]; `columns` is the number of columns of `panel` and
/// `columns.div_ceil(lanes) == V`.
#[inline(always)]
unsafe fn rows<S: Simd, const V: usize>(
    simd: S,
    compute: &Compute<'_>,
    panel: usize,
    columns: usize,
    chunk: usize,
    ahead: &mut Chunks<'_, f32>,
) {
    let Compute { product, b, stride_b, panel_stride } = compute;
    let width = vectors_per_panel::<S>() * S::F32_LANES;
    let (first_term, runs) = &product.chunks[chunk];
    let accumulate = product.accumulate || chunk > 0;
    // SAFETY: both offsets stay inside what the caller promised for this panel and chunk.
    let (b, c) =
        unsafe { (b.add(first_term * stride_b + panel * panel_stride), product.c.add(panel * width)) };
    let count = product.rows_a.len();
    let whole = columns == V * S::F32_LANES;
    let mut first = 0;
    while first < count {
        if let Some(some) = ahead.next() {
            prefetch(some, Cache::Second);
        }
        let mut a_rows = [product.a; BLOCK_ROWS];
        let mut c_rows = [c; BLOCK_ROWS];
        for i in 0..BLOCK_ROWS {
            // The last block repeats its last row. All copies compute and store the same values.
            let row = (first + i).min(count - 1);
            // SAFETY: row < count, so these are the addresses the caller promised.
            unsafe {
                a_rows[i] = product.a.add(product.rows_a[row]);
                c_rows[i] = c.add(product.rows_c[row]);
            }
        }
        if whole {
            // SAFETY: a whole panel of V vectors is inside the promised columns.
            unsafe {
                block::<S, V>(simd, &a_rows, product.step, runs, b, *stride_b, &c_rows, accumulate);
            }
        } else {
            // The last vector is partly outside the result's row: compute in a buffer.
            let mut buffer = [[0f32; MAX_PANEL]; BLOCK_ROWS];
            let mut buffer_rows = c_rows;
            for i in 0..BLOCK_ROWS {
                if accumulate {
                    // SAFETY: `columns` elements from c_rows[i] are the promised columns of this
                    // panel, and `columns <= MAX_PANEL`.
                    unsafe {
                        std::ptr::copy_nonoverlapping(c_rows[i], buffer[i].as_mut_ptr(), columns);
                    }
                }
                buffer_rows[i] = buffer[i].as_mut_ptr();
            }
            // SAFETY: the buffer's rows hold MAX_PANEL >= V * lanes elements; copying back is the
            // converse of the above.
            unsafe {
                block::<S, V>(simd, &a_rows, product.step, runs, b, *stride_b, &buffer_rows, accumulate);
                for i in 0..BLOCK_ROWS {
                    std::ptr::copy_nonoverlapping(buffer_rows[i], c_rows[i], columns);
                }
            }
        }
        first += BLOCK_ROWS;
    }
}

/// The register block: [`BLOCK_ROWS`] rows by `V` vectors.
///
/// # Safety
///
/// Every address of the terms of `a` and `b` and `V` vectors from every address of `c` are valid as
/// in [`Product::compute`]. Rows of `c` may coincide if the matching rows of `a` do: all rows are
/// read before the first is written.
#[inline(always)]
unsafe fn block<S: Simd, const V: usize>(
    simd: S,
    a: &[*const f32; BLOCK_ROWS],
    step: usize,
    runs: &[Run],
    b: *const f32,
    stride_b: usize,
    c: &[*mut f32; BLOCK_ROWS],
    accumulate: bool,
) {
    let mut sums = [[simd.splat_f32s(0.0); V]; BLOCK_ROWS];
    if accumulate {
        for i in 0..BLOCK_ROWS {
            for v in 0..V {
                // SAFETY: vector v of row i of the result.
                sums[i][v] = unsafe { load::<S>(c[i].add(v * S::F32_LANES)) };
            }
        }
    }
    let mut b = b;
    for run in runs {
        let mut at = run.offset;
        for _ in 0..run.len {
            let mut right = [simd.splat_f32s(0.0); V];
            for v in 0..V {
                // SAFETY: vector v of this term's row of `b`.
                right[v] = unsafe { load::<S>(b.add(v * S::F32_LANES)) };
            }
            for i in 0..BLOCK_ROWS {
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
    for i in 0..BLOCK_ROWS {
        for v in 0..V {
            // SAFETY: vector v of row i of the result.
            unsafe {
                c[i].add(v * S::F32_LANES).cast::<S::f32s>().write_unaligned(sums[i][v]);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bf16::Unit;

    /// What computes a product.
    #[derive(Clone, Copy, Debug)]
    enum Set {
        Vectors(pulp::Arch),
        Rounded(Unit),
    }

    /// Everything that this processor has.
    fn sets() -> Vec<Set> {
        let rounded = [Unit::Plain].into_iter().chain(bf16::units()).map(Set::Rounded);
        instruction_sets().into_iter().map(Set::Vectors).chain(rounded).collect()
    }

    /// Every instruction set of this processor.
    fn instruction_sets() -> Vec<pulp::Arch> {
        #[allow(unused_mut, reason = "some processors have no others")]
        let mut sets = vec![pulp::Arch::Scalar];
        #[cfg(all(target_arch = "aarch64", not(miri)))]
        sets.extend(pulp::aarch64::Neon::try_new().map(pulp::Arch::Neon));
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        {
            sets.extend(pulp::x86::V3::try_new().map(pulp::Arch::V3));
            sets.extend(pulp::x86::V4::try_new().map(pulp::Arch::V4));
        }
        sets
    }

    /// Number of `f32` lanes of a vector register.
    struct Lanes;

    impl WithSimd for Lanes {
        type Output = usize;

        #[inline(always)]
        fn with_simd<S: Simd>(self, _: S) -> usize {
            S::F32_LANES
        }
    }

    /// The product of a left factor whose rows overlap, as windows do: row `i` starts at `spread * i` and
    /// has two runs of terms, `gap` elements apart.
    fn product(
        set: Set,
        [rows, columns]: [usize; 2],
        terms: [usize; 2],
        [spread, step]: [usize; 2],
        c: &mut [f32],
        add: bool,
    ) {
        let gap = 5;
        let total = terms[0] + terms[1];
        let runs = [Run { offset: 0, len: terms[0] }, Run { offset: terms[0] * step + gap, len: terms[1] }];
        let a: Vec<f32> = (0..spread * rows + total * step + gap).map(small).collect();
        let (width, lanes, factors) = match set {
            Set::Vectors(set) => (set.dispatch(PanelWidth), set.dispatch(Lanes), Factors::F32),
            Set::Rounded(unit) => (panel_width(), bf16::COLUMNS, Factors::Bf16(unit)),
        };
        let stride_b = columns.next_multiple_of(lanes);
        let b: Vec<f32> = (0..total * stride_b).map(|i| small(i + 7)).collect();
        let rows_a: Vec<usize> = (0..rows).map(|row| spread * row).collect();
        // Rows of the result in reverse order, with a stretch in between that stays untouched.
        let rows_c: Vec<usize> = (0..rows).rev().map(|row| row * (columns + 1)).collect();
        let product = Product {
            a: a.as_ptr(),
            rows_a: &rows_a,
            step,
            chunks: &chunks(&runs, step, factors),
            right: Right::Rows { b: b.as_ptr(), stride: stride_b, panel_stride: width },
            factors,
            c: c.as_mut_ptr(),
            rows_c: &rows_c,
            columns,
            accumulate: add,
            ahead: &[],
        };
        let mut wanted = c.to_vec();
        for row in 0..rows {
            for column in 0..columns {
                let of_run = |run: usize, first: usize| -> f32 {
                    (0..terms[run])
                        .map(|k| {
                            let a = a[rows_a[row] + runs[run].offset + k * step];
                            a * b[(first + k) * stride_b + column]
                        })
                        .sum()
                };
                let sum = of_run(0, 0) + of_run(1, terms[0]);
                let at = &mut wanted[rows_c[row] + column];
                *at = if add { *at + sum } else { sum };
            }
        }
        // SAFETY: `a` and `b` hold all terms, `b` whole vectors; `c` holds all rows, which do not
        // overlap.
        match set {
            Set::Vectors(set) => {
                set.dispatch(Compute { product, b: b.as_ptr(), stride_b, panel_stride: width });
            }
            // SAFETY: as above.
            Set::Rounded(_) => unsafe { product.compute() },
        }
        assert_eq!(c, wanted, "{set:?}, {rows} x {columns}, {terms:?}, {spread}, {step}");
    }

    /// Small whole numbers, whose sums of products are exact in any order.
    fn small(i: usize) -> f32 {
        (i * 7 % 11) as f32 - 5.0
    }

    #[test]
    fn products_equal_the_definition_on_every_instruction_set() {
        let (rows, columns): (&[usize], &[usize]) = if cfg!(miri) {
            (&[1, 7], &[1, 5])
        } else {
            (&[1, 5, 6, 7, 12, 13, 31, 33], &[1, 7, 8, 9, 15, 16, 17, 31, 33, 48, 63, 64, 65, 130])
        };
        let terms: &[[usize; 2]] =
            if cfg!(miri) { &[[1, 0], [31, 4]] } else { &[[1, 0], [3, 4], [60, 70], [64, 32], [500, 99]] };
        for set in sets() {
            for (rows, columns) in rows.iter().flat_map(|rows| columns.iter().map(move |c| (*rows, *c))) {
                for terms in terms {
                    for layout in [[2, 3], [2, 1], [1, 3]] {
                        let mut c: Vec<f32> = (0..rows * (columns + 1)).map(small).collect();
                        product(set, [rows, columns], *terms, layout, &mut c, false);
                        product(set, [rows, columns], *terms, layout, &mut c, true);
                    }
                }
            }
        }
    }

    #[test]
    fn chunks_hold_every_term_once_and_in_order() {
        let lens = [vec![1], vec![96], vec![97], vec![192, 192, 192], vec![7; 40], vec![500, 3]];
        for (lens, factors) in lens
            .iter()
            .flat_map(|lens| [Factors::F32, Factors::Bf16(Unit::Plain)].map(|factors| (lens, factors)))
        {
            let step = 2;
            let mut runs = vec![];
            for (index, len) in lens.iter().enumerate() {
                runs.push(Run { offset: 10_000 * index, len: *len });
            }
            let terms = |runs: &[Run]| -> Vec<usize> {
                let of_run = |run: &Run| (0..run.len).map(move |k| k * step);
                runs.iter().flat_map(|run| of_run(run).map(move |k| run.offset + k)).collect()
            };
            let wanted = terms(&runs);
            let mut found = vec![];
            for (first, chunk) in chunks(&runs, step, factors) {
                assert_eq!(first, found.len());
                let of_chunk = terms(&chunk);
                match factors {
                    Factors::F32 => assert!(of_chunk.len() <= TERMS),
                    Factors::Bf16(_) => {
                        assert!(of_chunk.len() <= bf16::MOST_TERMS && first.is_multiple_of(bf16::TERMS));
                    }
                }
                assert!(!of_chunk.is_empty());
                found.extend(of_chunk);
            }
            assert_eq!(found, wanted);
        }
    }
}
