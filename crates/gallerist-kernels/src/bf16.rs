//! Products whose factors are rounded to bf16, the upper half of an `f32`, and whose sums are `f32`: by the
//! processor's matrix unit (AMX) or its dot products of pairs (AVX-512 BF16).
//!
//! Both take the factors in tiles of 64 bytes by 16: a tile of the left factor is 16 rows of 32 terms, one of the right
//! factor 16 pairs of terms of 16 columns, the two terms of a column next to each other. A product is cheap
//! enough that factors are put into tiles wherever they are used; only weights, which all tiles of maps meet,
//! are kept so.

use std::cell::Cell;
use std::sync::OnceLock;

use rayon::prelude::*;

use crate::buffer::{Buffer, with_scratch};
use crate::simd::{Product, Right, Run, panel_width};

/// Rows of a tile.
const ROWS: usize = 16;

/// Columns of a tile of the right factor.
pub(crate) const COLUMNS: usize = 16;

/// Terms of a tile.
pub(crate) const TERMS: usize = 32;

/// Most terms that are summed before the sums go back to memory. The tiles of two columns of tiles, 32 KB, stay
/// in the first-level cache meanwhile.
pub(crate) const MOST_TERMS: usize = 512;

/// Rows whose tiles are made at a time; they stay in the second-level cache.
const BLOCK: usize = 256;

/// Elements of [`Buffer`]'s type that a tile occupies.
const TILE: usize = 256;

/// What computes the products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unit {
    /// The matrix unit.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "not for this processor"))]
    Matrix,
    /// Dot products of pairs.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "not for this processor"))]
    Pairs,
    /// Neither: for tests.
    #[cfg_attr(not(test), allow(dead_code, reason = "slower than f32"))]
    Plain,
}

/// How the factors of products are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Factors {
    F32,
    Bf16(Unit),
}

thread_local! {
    static CURRENT: Cell<Factors> = const { Cell::new(Factors::F32) };
}

impl Factors {
    /// What this thread has chosen.
    pub(crate) fn current() -> Self {
        CURRENT.get()
    }

    /// Every product that `work` starts on this thread has such factors.
    pub(crate) fn scope<R>(self, work: impl FnOnce() -> R) -> R {
        struct Restore(Factors);
        impl Drop for Restore {
            fn drop(&mut self) {
                CURRENT.set(self.0);
            }
        }
        let _restore = Restore(CURRENT.replace(self));
        work()
    }
}

/// What computes products of bf16 on this processor: `"AMX"`, `"AVX-512 BF16"`, or nothing that is faster than `f32`.
pub fn bf16_unit() -> Option<&'static str> {
    unit().map(|unit| match unit {
        Unit::Matrix => "AMX",
        Unit::Pairs => "AVX-512 BF16",
        Unit::Plain => "plain",
    })
}

/// Runs `work`; convolutions that it starts, and gradients, on the calling thread round the factors of their products
/// to bf16 (8 significant bits) and add in `f32`. Maps, weights and gradients stay `f32`. Depthwise convolutions, whose
/// pace is set by memory, are not affected, and nothing is where [`bf16_unit`] has nothing.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor, ops::ConvOptions};
///
/// let device = Device::flex();
/// let x = Tensor::<4>::full([1, 32, 4, 4], 1.001, &device);
/// let weight = Tensor::<4>::ones([16, 32, 1, 1], &device);
/// let options = ConvOptions::new([1, 1], [0, 0], [1, 1], 1);
/// let y = gallerist_kernels::with_bf16_products(|| gallerist_kernels::conv2d(x, weight, None, options));
/// let y: Vec<f32> = y.into_data().try_into_vec().unwrap();
/// // 1.001 becomes 1.
/// let wanted = if gallerist_kernels::bf16_unit().is_some() { 32.0 } else { 32.0 * 1.001 };
/// assert!((y[0] - wanted).abs() < 1e-5);
/// ```
pub fn with_bf16_products<R>(work: impl FnOnce() -> R) -> R {
    unit().map_or(Factors::F32, Factors::Bf16).scope(work)
}

/// The fastest unit of this processor.
fn unit() -> Option<Unit> {
    static UNIT: OnceLock<Option<Unit>> = OnceLock::new();
    *UNIT.get_or_init(|| units().into_iter().next())
}

/// Everything that this processor has, the fastest first.
pub(crate) fn units() -> Vec<Unit> {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    return x86::units();
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    return vec![];
}

/// The right factor of a product in tiles: those of the first [`COLUMNS`] columns, term by term, then those of the
/// next.
pub(crate) struct Tiles {
    values: Buffer,
    /// Tiles of all terms of a column.
    per_column: usize,
}

impl Tiles {
    /// Puts `terms` rows of `columns` values into tiles: panels of `width` columns (a multiple of [`COLUMNS`]),
    /// `panel` values apart, whose rows are consecutive.
    pub(crate) fn of_panels(
        values: &[f32],
        [terms, columns, width]: [usize; 3],
        panel: usize,
        unit: Unit,
    ) -> Self {
        let per_column = terms.div_ceil(TERMS);
        let of_column = per_column * TILE;
        let mut tiles = Buffer::new(columns.div_ceil(COLUMNS) * of_column);
        if of_column > 0 {
            tiles.par_chunks_mut(of_column).enumerate().for_each(|(index, tiles)| {
                let first = index * COLUMNS;
                let values = &values[first / width * panel + first % width..];
                assert!(values.len() >= (terms - 1) * width + COLUMNS);
                // SAFETY: every row's columns are inside `values`.
                unsafe { pair_column(values.as_ptr(), width, terms, tiles, unit) };
            });
        }
        Self { values: tiles, per_column }
    }

    /// The tiles from column `first` (a multiple of [`COLUMNS`]) on.
    pub(crate) fn columns_from(&self, first: usize) -> TilesView<'_> {
        let tiles = &self.values[first / COLUMNS * self.per_column * TILE..];
        TilesView { tiles, per_column: self.per_column }
    }
}

/// Some columns of [`Tiles`].
#[derive(Clone, Copy)]
pub(crate) struct TilesView<'a> {
    tiles: &'a [f32],
    per_column: usize,
}

/// As [`Product::compute`], with rounded factors.
///
/// # Safety
///
/// As there; chunks but the last have a multiple of [`TERMS`] terms, of which none has more than [`MOST_TERMS`].
pub(crate) unsafe fn compute(product: &Product<'_>, unit: Unit) {
    let columns = product.columns.div_ceil(COLUMNS);
    let configured = Configured::new(unit);
    for (chunk, (first_term, runs)) in product.chunks.iter().enumerate() {
        let terms: usize = runs.iter().map(|run| run.len).sum();
        let per_row = terms.div_ceil(TERMS);
        let accumulate = product.accumulate || chunk > 0;
        match product.right {
            Right::Tiles(right) => {
                let right = TilesView { tiles: &right.tiles[first_term / TERMS * TILE..], ..right };
                // SAFETY: passed on.
                unsafe { blocks(product, &configured, runs, per_row, right, accumulate) };
            }
            Right::Rows { b, stride, panel_stride } => with_scratch(3, columns * per_row * TILE, |tiles| {
                debug_assert_eq!(panel_stride, panel_width(), "panels are packed into tiles");
                for (index, tiles) in tiles.chunks_exact_mut(per_row * TILE).enumerate() {
                    // SAFETY: the caller promises whole vectors of every row.
                    unsafe {
                        let b = b.add(first_term * stride + index * COLUMNS);
                        pair_column(b, stride, terms, tiles, unit);
                    }
                }
                let right = TilesView { tiles, per_column: per_row };
                // SAFETY: passed on.
                unsafe { blocks(product, &configured, runs, per_row, right, accumulate) };
            }),
        }
    }
}

/// One chunk of terms for all rows and columns.
///
/// # Safety
///
/// As [`compute`].
unsafe fn blocks(
    product: &Product<'_>,
    configured: &Configured,
    runs: &[Run],
    per_row: usize,
    right: TilesView<'_>,
    accumulate: bool,
) {
    let unit = configured.unit;
    let columns = product.columns.div_ceil(COLUMNS);
    let offsets: Vec<usize> = match product.step {
        1 => vec![],
        step => runs.iter().flat_map(|run| (0..run.len).map(move |k| run.offset + k * step)).collect(),
    };
    for first_row in (0..product.rows_a.len()).step_by(BLOCK) {
        let last_row = product.rows_a.len().min(first_row + BLOCK);
        let (rows_a, rows_c) = (&product.rows_a[first_row..last_row], &product.rows_c[first_row..last_row]);
        let tiles_of_rows = rows_a.len().div_ceil(ROWS);
        with_scratch(2, tiles_of_rows * per_row * TILE, |left| {
            for (rows, tiles) in rows_a.chunks(ROWS).zip(left.chunks_exact_mut(per_row * TILE)) {
                // SAFETY: the caller promises every term of every row.
                unsafe {
                    match product.step {
                        1 => round_rows(product.a, rows, runs, tiles, unit),
                        _ => round_columns(product.a, rows, &offsets, tiles, unit),
                    }
                }
            }
            for column in (0..columns).step_by(2) {
                for row in (0..tiles_of_rows).step_by(2) {
                    let rows_c = &rows_c[row * ROWS..rows_c.len().min((row + 2) * ROWS)];
                    let of_columns = (product.columns - column * COLUMNS).min(2 * COLUMNS);
                    // The second of each may not be there; its sums are not used.
                    let second_row = (row + 1).min(tiles_of_rows - 1);
                    let second_column = (column + 1).min(columns - 1);
                    let left = [row, second_row].map(|row| left[row * per_row * TILE..].as_ptr());
                    let right = [column, second_column]
                        .map(|column| right.tiles[column * right.per_column * TILE..].as_ptr());
                    // SAFETY: columns of the result that the caller promised.
                    let c = unsafe { product.c.add(column * COLUMNS) };
                    // SAFETY: `per_row` tiles from every address of `left` and `right`; the rows of the result.
                    unsafe { block(configured, left, right, per_row, c, rows_c, of_columns, accumulate) };
                }
            }
        });
    }
}

/// Up to 32 rows and columns of the result.
///
/// # Safety
///
/// `terms` tiles can be read from every address of `left` and `right`; `columns` elements from `c + row` for every row of
/// `rows_c` can be read and written.
unsafe fn block(
    configured: &Configured,
    left: [*const f32; 2],
    right: [*const f32; 2],
    terms: usize,
    c: *mut f32,
    rows_c: &[usize],
    columns: usize,
    accumulate: bool,
) {
    const SIDE: usize = 2 * ROWS;
    let stride = rows_c.get(1).map_or(0, |second| second.wrapping_sub(rows_c[0]));
    let even = rows_c.windows(2).all(|pair| pair[1].wrapping_sub(pair[0]) == stride);
    if rows_c.len() == SIDE && columns == SIDE && even && stride < usize::MAX / 8 {
        // SAFETY: 32 rows, `stride` elements apart, of 32 columns each.
        unsafe { configured.multiply(left, right, terms, c.add(rows_c[0]), stride, accumulate) };
        return;
    }
    let mut buffer = [[0f32; SIDE]; SIDE];
    for (row, buffer) in rows_c.iter().zip(&mut buffer).filter(|_| accumulate) {
        // SAFETY: this row of the result, of at most 32 columns.
        unsafe { std::ptr::copy_nonoverlapping(c.add(*row), buffer.as_mut_ptr(), columns) };
    }
    // SAFETY: the buffer has 32 rows of 32 columns.
    unsafe { configured.multiply(left, right, terms, buffer.as_mut_ptr().cast(), SIDE, accumulate) };
    for (row, buffer) in rows_c.iter().zip(&buffer) {
        // SAFETY: as above.
        unsafe { std::ptr::copy_nonoverlapping(buffer.as_ptr(), c.add(*row), columns) };
    }
}

/// Puts up to 16 rows, whose terms follow each other in `runs`, into tiles, zero behind the last term.
///
/// # Safety
///
/// Every run of every row can be read.
unsafe fn round_rows(a: *const f32, rows: &[usize], runs: &[Run], tiles: &mut [f32], unit: Unit) {
    for (index, row) in rows.iter().enumerate() {
        let mut line = tiles.chunks_exact_mut(TILE).map(|tile| &mut tile[index * COLUMNS..][..COLUMNS]);
        let mut write = |terms: &[f32; TERMS]| {
            round(terms, line.next().expect("as many tiles as the terms need"), unit);
        };
        let mut waiting = [0f32; TERMS];
        let mut count = 0;
        for run in runs {
            // SAFETY: the caller promises the run.
            let mut terms = unsafe { std::slice::from_raw_parts(a.add(row + run.offset), run.len) };
            if count > 0 {
                let (now, later) = terms.split_at(terms.len().min(TERMS - count));
                waiting[count..count + now.len()].copy_from_slice(now);
                count += now.len();
                terms = later;
                if count == TERMS {
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

/// Puts up to 16 rows, whose terms lie at `offsets`, into tiles, zero behind the last term.
///
/// # Safety
///
/// Every term of every row can be read.
unsafe fn round_columns(a: *const f32, rows: &[usize], offsets: &[usize], tiles: &mut [f32], unit: Unit) {
    let together = rows.iter().enumerate().all(|(index, row)| *row == rows[0] + index);
    for (offsets, tile) in offsets.chunks(TERMS).zip(tiles.chunks_exact_mut(TILE)) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if together && unit != Unit::Plain {
            // SAFETY: the unit's processor has the instructions; the rows' terms follow each other.
            unsafe { x86::round_columns(a.add(rows[0]), rows.len(), offsets, tile) };
            continue;
        }
        let _ = together;
        for (row, line) in rows.iter().zip(tile.chunks_exact_mut(COLUMNS)) {
            let mut terms = [0f32; TERMS];
            for (term, offset) in terms.iter_mut().zip(offsets) {
                // SAFETY: this term of this row.
                *term = unsafe { *a.add(row + offset) };
            }
            round(&terms, line, unit);
        }
    }
}

/// Puts `terms` rows of 16 columns, `stride` elements apart, into tiles, zero behind the last term.
///
/// # Safety
///
/// 16 elements of every row can be read.
unsafe fn pair_column(b: *const f32, stride: usize, terms: usize, tiles: &mut [f32], unit: Unit) {
    const ZEROS: [f32; COLUMNS] = [0.0; COLUMNS];
    for (pair, line) in tiles.chunks_exact_mut(COLUMNS).enumerate() {
        let [first, second] = [2 * pair, 2 * pair + 1].map(|term| match term < terms {
            // SAFETY: the caller promises this row.
            true => unsafe { &*b.add(term * stride).cast::<[f32; COLUMNS]>() },
            false => &ZEROS,
        });
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if unit != Unit::Plain {
            // SAFETY: the unit's processor has the instructions.
            unsafe { x86::pair(first, second, line) };
            continue;
        }
        let _ = unit;
        for column in 0..COLUMNS {
            line[column] = joined(first[column], second[column]);
        }
    }
}

/// Two values rounded to bf16 in the place of one.
fn joined(low: f32, high: f32) -> f32 {
    let [low, high] = [low, high].map(|value| u32::from(rounded(value)));
    f32::from_bits(high << 16 | low)
}

/// The nearest bf16, of two equally near the even one.
fn rounded(value: f32) -> u16 {
    let bits = value.to_bits();
    if value.is_nan() {
        return (bits >> 16) as u16 | 0x40;
    }
    ((bits + 0x7fff + (bits >> 16 & 1)) >> 16) as u16
}

/// Rounds the terms of a row of a tile.
#[inline(always)]
fn round(terms: &[f32; TERMS], line: &mut [f32], unit: Unit) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    if unit != Unit::Plain {
        // SAFETY: the unit's processor has the instructions.
        unsafe { x86::round(terms, line) };
        return;
    }
    let _ = unit;
    for (pair, line) in terms.as_chunks().0.iter().zip(line) {
        let [low, high] = *pair;
        *line = joined(low, high);
    }
}

/// The unit, ready for use by this thread until it is dropped.
struct Configured {
    unit: Unit,
}

impl Configured {
    fn new(unit: Unit) -> Self {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if unit == Unit::Matrix {
            // SAFETY: the unit was found to be there.
            unsafe { x86::configure() };
        }
        Self { unit }
    }

    /// `c[i][j] (+)= sum over t of left[i][t] * right[t][j]` for 32 rows and columns.
    ///
    /// # Safety
    ///
    /// `terms` tiles can be read from every address of `left` and `right`; 32 rows of 32 elements, `stride` elements
    /// apart, can be read and written from `c`.
    unsafe fn multiply(
        &self,
        left: [*const f32; 2],
        right: [*const f32; 2],
        terms: usize,
        c: *mut f32,
        stride: usize,
        accumulate: bool,
    ) {
        match self.unit {
            // SAFETY: passed on; the unit was found to be there and is configured.
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Unit::Matrix => unsafe { x86::multiply(left, right, terms, c, stride, accumulate) },
            // SAFETY: passed on; the unit was found to be there.
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            Unit::Pairs => unsafe { x86::multiply_pairs(left, right, terms, c, stride, accumulate) },
            // SAFETY: passed on.
            _ => unsafe { multiply_plain(left, right, terms, c, stride, accumulate) },
        }
    }
}

impl Drop for Configured {
    fn drop(&mut self) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if self.unit == Unit::Matrix {
            // SAFETY: the unit was found to be there; nothing uses its registers any more.
            unsafe { x86::release() };
        }
    }
}

/// # Safety
///
/// As [`Configured::multiply`].
unsafe fn multiply_plain(
    left: [*const f32; 2],
    right: [*const f32; 2],
    terms: usize,
    c: *mut f32,
    stride: usize,
    accumulate: bool,
) {
    let halves = |pair: f32| {
        let bits = pair.to_bits();
        [f32::from_bits(bits << 16), f32::from_bits(bits & 0xffff_0000)]
    };
    for row in 0..2 * ROWS {
        for column in 0..2 * COLUMNS {
            // SAFETY: an element of the result.
            let to = unsafe { &mut *c.add(row * stride + column) };
            let mut sum = if accumulate { *to } else { 0.0 };
            for pair in 0..terms * ROWS {
                let tile = pair / ROWS * TILE;
                // SAFETY: inside the tiles.
                let [a, b] = unsafe {
                    [
                        *left[row / ROWS].add(tile + row % ROWS * COLUMNS + pair % ROWS),
                        *right[column / COLUMNS].add(tile + pair % ROWS * COLUMNS + column % COLUMNS),
                    ]
                };
                let ([a, a2], [b, b2]) = (halves(a), halves(b));
                sum += a * b + a2 * b2;
            }
            *to = sum;
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use std::arch::asm;
    use std::arch::x86_64::*;

    use super::{COLUMNS, ROWS, TERMS, TILE, Unit};
    use crate::transpose::x86::transposed;

    pub(super) fn units() -> Vec<Unit> {
        let features = is_x86_feature_detected!("avx512bf16")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512f");
        match (features, has_matrix_unit()) {
            (false, _) => vec![],
            (true, true) => vec![Unit::Matrix, Unit::Pairs],
            (true, false) => vec![Unit::Pairs],
        }
    }

    /// Whether the processor multiplies matrices of bf16 and the system lets this process do so.
    fn has_matrix_unit() -> bool {
        const BF16: u32 = 1 << 22;
        const TILES: u32 = 1 << 24;
        __cpuid(0).eax >= 7 && __cpuid_count(7, 0).edx & (BF16 | TILES) == BF16 | TILES && may_use_tiles()
    }

    #[cfg(target_os = "linux")]
    fn may_use_tiles() -> bool {
        const ARCH_REQ_XCOMP_PERM: libc::c_long = 0x1023;
        const XFEATURE_XTILEDATA: libc::c_long = 18;
        // SAFETY: a system call without pointers: it asks that threads of this process may use the tile registers.
        unsafe { libc::syscall(libc::SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0 }
    }

    #[cfg(not(target_os = "linux"))]
    fn may_use_tiles() -> bool {
        false
    }

    /// Rounds the terms of a row of a tile.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    pub(super) fn round(terms: &[f32; TERMS], line: &mut [f32]) {
        assert!(line.len() >= COLUMNS);
        // SAFETY: 32 terms are two vectors, and the line has room for one.
        unsafe {
            let low = _mm512_loadu_ps(terms.as_ptr());
            let high = _mm512_loadu_ps(terms.as_ptr().add(COLUMNS));
            store(line.as_mut_ptr(), to_bits(_mm512_cvtne2ps_pbh(high, low)));
        }
    }

    /// Rounds 16 columns of two terms, those of a column next to each other.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    pub(super) fn pair(first: &[f32; COLUMNS], second: &[f32; COLUMNS], line: &mut [f32]) {
        assert!(line.len() >= COLUMNS);
        // SAFETY: each is one vector.
        unsafe {
            let both = interleaved(_mm512_loadu_ps(first.as_ptr()), _mm512_loadu_ps(second.as_ptr()));
            store(line.as_mut_ptr(), both);
        }
    }

    /// Rounds 32 terms, or as many as there are `offsets`, of `rows` rows, the elements of a term next to each other.
    ///
    /// # Safety
    ///
    /// `rows` elements from `a + offset` can be read for every offset.
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    pub(super) unsafe fn round_columns(a: *const f32, rows: usize, offsets: &[usize], tile: &mut [f32]) {
        assert!(tile.len() >= TILE && rows <= ROWS && offsets.len() <= TERMS);
        let mask = ((1u32 << rows) - 1) as __mmask16;
        let term = |index: usize| match offsets.get(index) {
            // SAFETY: the caller promises as many elements as the mask lets through.
            Some(offset) => unsafe { _mm512_maskz_loadu_ps(mask, a.add(*offset)) },
            None => _mm512_setzero_ps(),
        };
        let mut m = [_mm512_setzero_si512(); ROWS];
        for pair in 0..ROWS {
            m[pair] = interleaved(term(2 * pair), term(2 * pair + 1));
        }
        for (row, values) in transposed(m).into_iter().enumerate() {
            // SAFETY: row `row` of the tile.
            unsafe { store(tile.as_mut_ptr().add(row * COLUMNS), values) };
        }
    }

    /// Two vectors rounded, element by element next to each other.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    fn interleaved(low: __m512, high: __m512) -> __m512i {
        const ORDER: [u16; TERMS] = {
            let mut order = [0; TERMS];
            let mut i = 0;
            while i < TERMS {
                order[i] = (i / 2 + i % 2 * COLUMNS) as u16;
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
    /// The processor has tile registers and the process may use them.
    pub(super) unsafe fn configure() {
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

    /// Gives the tile registers up, so that the system need not keep them.
    ///
    /// # Safety
    ///
    /// As [`configure`].
    pub(super) unsafe fn release() {
        // SAFETY: compiled code does not use these registers.
        unsafe { asm!("tilerelease", options(nostack, nomem)) }
    }

    /// # Safety
    ///
    /// As [`super::Configured::multiply`]; the tile registers are configured.
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
                c1 = in(reg) c.wrapping_add(ROWS * stride),
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
    /// As [`super::Configured::multiply`].
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
        for first in (0..2 * ROWS).step_by(TOGETHER) {
            // SAFETY: row `first` of the left factor's tile, and of the result.
            let (left, c) =
                unsafe { (left[first / ROWS].add(first % ROWS * COLUMNS), c.add(first * stride)) };
            let mut sums = [[_mm512_setzero_ps(); 2]; TOGETHER];
            for row in 0..TOGETHER {
                for side in 0..2 {
                    if accumulate {
                        // SAFETY: a vector of the result.
                        sums[row][side] = unsafe { _mm512_loadu_ps(c.add(row * stride + side * COLUMNS)) };
                    }
                }
            }
            for tile in 0..terms {
                for pair in 0..ROWS {
                    // SAFETY: inside the tiles; both types are 64 bytes of plain data.
                    unsafe {
                        let b: [__m512bh; 2] = right.map(|right| {
                            std::mem::transmute(_mm512_loadu_ps(right.add(tile * TILE + pair * COLUMNS)))
                        });
                        for row in 0..TOGETHER {
                            let a = left.add(tile * TILE + row * COLUMNS + pair).cast::<i32>();
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
                    unsafe { _mm512_storeu_ps(c.add(row * stride + side * COLUMNS), sums[row][side]) };
                }
            }
        }
    }
}
