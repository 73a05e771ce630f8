//! Products of matrices on slices. This module checks the bounds; `gemm` computes.
//!
//! `gemm` packs the right operand unless its rows are contiguous. So a product with a transposed matrix is split by
//! columns, each of which is then packed once, and any other product by rows.

use rayon::prelude::*;

use super::real::Real;

/// A matrix in a slice: the value at `(row, column)` has the index `row * row_step + column * column_step`.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a, F> {
    values: &'a [F],
    rows: usize,
    columns: usize,
    row_step: usize,
    column_step: usize,
}

impl<'a, F: Real> Matrix<'a, F> {
    /// `rows x columns`, rows starting every `step` values.
    pub(super) fn new(values: &'a [F], rows: usize, columns: usize, step: usize) -> Self {
        assert!(step >= columns, "rows of {columns} values every {step}");
        assert!(
            values.len() >= extent(rows, columns, step),
            "{} values for {rows} rows of {step}",
            values.len()
        );
        Matrix { values, rows, columns, row_step: step, column_step: 1 }
    }

    /// Rows and columns exchanged.
    pub(super) fn transposed(self) -> Self {
        Matrix {
            rows: self.columns,
            columns: self.rows,
            row_step: self.column_step,
            column_step: self.row_step,
            ..self
        }
    }

    /// Rows `first..first + count`.
    fn some_rows(self, first: usize, count: usize) -> Self {
        assert!(first + count <= self.rows, "rows {first}..{} of {}", first + count, self.rows);
        Matrix { values: &self.values[(first * self.row_step).min(self.values.len())..], rows: count, ..self }
    }

    /// Columns `first..first + count`.
    fn some_columns(self, first: usize, count: usize) -> Self {
        self.transposed().some_rows(first, count).transposed()
    }
}

/// The number of values of `rows x columns`, rows starting every `step` values. It saturates, so that an assertion with it
/// fails instead of an overflow.
fn extent(rows: usize, columns: usize, step: usize) -> usize {
    if rows == 0 { 0 } else { (rows - 1).saturating_mul(step).saturating_add(columns) }
}

/// The result of a product, which several tasks write, each at places of its own.
#[derive(Clone, Copy)]
struct Places<'a, F> {
    start: *mut F,
    len: usize,
    slice: std::marker::PhantomData<&'a mut [F]>,
}

// SAFETY: a pointer to places that are borrowed mutably for as long as `Places` lives. Only unsafe functions read or write
// through it, and their callers promise that no other thread uses the same places.
unsafe impl<F: Real> Send for Places<'_, F> {}
// SAFETY: a shared reference allows what a copy allows, and copies may be sent to other threads, as shown above.
unsafe impl<F: Real> Sync for Places<'_, F> {}

impl<'a, F: Real> Places<'a, F> {
    fn new(slice: &'a mut [F]) -> Self {
        Places { start: slice.as_mut_ptr(), len: slice.len(), slice: std::marker::PhantomData }
    }

    /// A copy of `N` values from `first` on.
    ///
    /// # Safety
    ///
    /// No other thread writes them meanwhile.
    #[inline]
    unsafe fn read<const N: usize>(self, first: usize) -> [F; N] {
        assert!(first.saturating_add(N) <= self.len, "{N} values from {first} of {}", self.len);
        // SAFETY: inside the slice by the assertion; an array is aligned as its values are.
        unsafe { self.start.add(first).cast::<[F; N]>().read() }
    }

    /// Writes `N` values from `first` on.
    ///
    /// # Safety
    ///
    /// No other thread reads or writes them meanwhile.
    #[inline]
    unsafe fn write<const N: usize>(self, first: usize, values: [F; N]) {
        assert!(first.saturating_add(N) <= self.len, "{N} values from {first} of {}", self.len);
        // SAFETY: inside the slice by the assertion; an array is aligned as its values are.
        unsafe { self.start.add(first).cast::<[F; N]>().write(values) }
    }

    /// `factor * left * right`, written to or, if `add`, added to the places from `first` on, rows
    /// every `step`.
    ///
    /// # Safety
    ///
    /// No other thread reads or writes the places of the result meanwhile.
    unsafe fn product(
        self,
        first: usize,
        step: usize,
        add: bool,
        factor: F,
        left: Matrix<'_, F>,
        right: Matrix<'_, F>,
    ) {
        let (m, n, k) = (left.rows, right.columns, left.columns);
        assert_eq!(k, right.rows, "a product of {m} x {k} and {} x {n}", right.rows);
        assert!(step >= n, "rows of {n} values every {step}");
        if m == 0 || n == 0 {
            return;
        }
        let end = extent(m, n, step).saturating_add(first);
        assert!(end <= self.len, "{} places for {m} rows of {step} from {first} on", self.len);
        // SAFETY: the last value touched of each matrix lies inside its slice: of the result by the
        // assertion above, of `left` and `right` because `Matrix::new` checked it and its other
        // constructors only narrow or exchange. The result is borrowed mutably, so it overlaps neither,
        // and no other thread uses its places by this function's own condition. All steps fit `isize`
        // because they are below the length of a slice or multiply an index of 0.
        unsafe {
            let to = self.start.add(first);
            if cfg!(miri) {
                touch(to, step, add, factor, left, right);
                return;
            }
            gemm::gemm(
                m,
                n,
                k,
                to,
                1,
                step as isize,
                add,
                left.values.as_ptr(),
                left.column_step as isize,
                left.row_step as isize,
                right.values.as_ptr(),
                right.column_step as isize,
                right.row_step as isize,
                F::ONE,
                factor,
                false,
                false,
                false,
                gemm::Parallelism::None,
            );
        }
    }
}

/// The computation of `gemm` through the same pointers and steps. Miri does not support its vector intrinsics; here it
/// checks every place that is read or written.
///
/// # Safety
///
/// As for [`gemm::gemm`].
unsafe fn touch<F: Real>(
    to: *mut F,
    step: usize,
    add: bool,
    factor: F,
    left: Matrix<'_, F>,
    right: Matrix<'_, F>,
) {
    let (l, r) = (left.values.as_ptr(), right.values.as_ptr());
    for i in 0..left.rows {
        for j in 0..right.columns {
            // SAFETY: by the caller's promise.
            unsafe {
                let term = |t: usize| {
                    *l.add(i * left.row_step + t * left.column_step)
                        * *r.add(t * right.row_step + j * right.column_step)
                };
                let to = to.add(i * step + j);
                let old = if add { *to } else { F::ZERO };
                *to = old + factor * (0..left.columns).map(term).sum::<F>();
            }
        }
    }
}

/// Runs `task` on `0..count`, in parallel.
fn in_parallel(count: usize, task: impl Fn(usize) + Send + Sync) {
    if cfg!(miri) {
        (0..count).for_each(task);
    } else {
        (0..count).into_par_iter().for_each(task);
    }
}

/// Rows of the result that one task computes. Fixed by the shape alone, never by the number of
/// threads, because `gemm` may split its sums by the shape.
fn task_rows(rows: usize) -> usize {
    rows.div_ceil(8).next_multiple_of(8).clamp(16, 128)
}

/// Rows of a product with a transposed matrix that one task computes at most; only lists with fewer places than queries
/// have more.
const MOST_ROWS: usize = 4096;

/// Columns of the result that one task computes: whole panels of `gemm`'s widest kernel.
fn task_columns(columns: usize) -> usize {
    columns.div_ceil(16).next_multiple_of(64).clamp(64, 512)
}

/// `to = factor * left * right`, or added to what `to` holds if `add`, in parallel. The rows of `to`
/// start every `step` values.
pub(super) fn product<F: Real>(
    to: &mut [F],
    step: usize,
    add: bool,
    factor: F,
    left: Matrix<'_, F>,
    right: Matrix<'_, F>,
) {
    let (m, n) = (left.rows, right.columns);
    // Also shows that no index of a place overflows.
    assert!(step >= n && (n == 0 || to.len() >= extent(m, n, step)), "{} places for {m} x {n}", to.len());
    let places = Places::new(to);
    if right.column_step == 1 && left.rows >= PACKED_ROWS && right.rows >= PACKED_ROWS {
        let packed = Packed::new(right);
        let rows = task_rows(left.rows);
        in_parallel(left.rows.div_ceil(rows), |task| {
            let first = task * rows;
            let left = left.some_rows(first, rows.min(left.rows - first));
            for panel in 0..packed.panels() {
                let place = first * step + panel * PANEL;
                // SAFETY: each task has rows of its own.
                unsafe { places.product(place, step, add, factor, left, packed.panel(panel)) }
            }
        });
        packed.keep();
    } else if right.column_step == 1 {
        let rows = task_rows(left.rows);
        in_parallel(left.rows.div_ceil(rows), |task| {
            let first = task * rows;
            let left = left.some_rows(first, rows.min(left.rows - first));
            // SAFETY: each task has rows of its own.
            unsafe { places.product(first * step, step, add, factor, left, right) }
        });
    } else {
        let columns = task_columns(right.columns);
        let rows = if left.rows > MOST_ROWS { MOST_ROWS } else { left.rows.max(1) };
        let across = right.columns.div_ceil(columns);
        in_parallel(across * left.rows.div_ceil(rows), |task| {
            let (row, column) = (task / across * rows, task % across * columns);
            let left = left.some_rows(row, rows.min(left.rows - row));
            let right = right.some_columns(column, columns.min(right.columns - column));
            // SAFETY: each task has places of its own.
            unsafe { places.product(row * step + column, step, add, factor, left, right) }
        });
    }
}

/// Columns of a panel of a packed matrix: whole panels of `gemm`'s widest kernel.
const PANEL: usize = 64;

/// Rows from which packing the right operand pays.
const PACKED_ROWS: usize = 64;

/// A matrix in panels of [`PANEL`] columns, each contiguous: a panel in place has its rows in a few sets of the caches,
/// and in as many pages as rows.
struct Packed<F> {
    values: Vec<F>,
    rows: usize,
    columns: usize,
}

impl<F: Real> Packed<F> {
    /// Packs a matrix whose rows are contiguous.
    fn new(matrix: Matrix<'_, F>) -> Self {
        let Matrix { rows, columns, .. } = matrix;
        assert!(matrix.column_step == 1 && rows > 0, "rows are contiguous");
        let mut values = F::take_block();
        let size = columns.div_ceil(PANEL) * PANEL * rows;
        if values.len() < size {
            values.resize(size, F::ZERO);
        }
        let panels = values[..size].par_chunks_mut(PANEL * rows).enumerate();
        panels.for_each(|(panel, to)| {
            let first = panel * PANEL;
            let width = PANEL.min(columns - first);
            for (row, to) in to.chunks_exact_mut(PANEL).enumerate() {
                to[..width].copy_from_slice(&matrix.values[row * matrix.row_step + first..][..width]);
            }
        });
        Packed { values, rows, columns }
    }

    fn panels(&self) -> usize {
        self.columns.div_ceil(PANEL)
    }

    fn panel(&self, panel: usize) -> Matrix<'_, F> {
        let columns = PANEL.min(self.columns - panel * PANEL);
        Matrix::new(&self.values[panel * PANEL * self.rows..], self.rows, columns, PANEL)
    }

    /// Keeps the memory for the next product.
    fn keep(self) {
        F::keep_block(self.values);
    }
}

/// `to = rows * rows^T` for a square result of `rows.rows` rows: the values on and below the diagonal
/// blocks are computed, the others mirrored.
pub(super) fn symmetric_product<F: Real>(to: &mut [F], step: usize, rows: Matrix<'_, F>) {
    let n = rows.rows;
    assert!(step >= n && to.len() >= extent(n, n, step), "{} places for {n} x {n}", to.len());
    let places = Places::new(to);
    let width = task_columns(n);
    in_parallel(n.div_ceil(width), |task| {
        let (first, end) = (task * width, ((task + 1) * width).min(n));
        let (left, right) = (rows.some_rows(first, n - first), rows.some_rows(first, end - first));
        // SAFETY: a task has the places (i, j) whose smaller index is in first..end: below, the columns
        // first..end from row `first` on; right of the diagonal block, their mirror images.
        unsafe {
            places.product(first * step + first, step, false, F::ONE, left, right.transposed());
            for_mirrored(
                first..end,
                n,
                |i, j| places.write(j * step + i, places.read::<1>(i * step + j)),
                |i, j| {
                    write_tile(places, step, j, i, transposed(read_tile(places, step, i, j)));
                },
            );
        }
    });
}

/// `to = to + to^T` for a square matrix of `n` rows.
pub(super) fn add_transposed<F: Real>(to: &mut [F], step: usize, n: usize) {
    assert!(step >= n && to.len() >= extent(n, n, step), "{} places for {n} x {n}", to.len());
    let places = Places::new(to);
    let width = task_columns(n);
    in_parallel(n.div_ceil(width), |task| {
        let (first, end) = (task * width, ((task + 1) * width).min(n));
        // SAFETY: the places of a task are those of `symmetric_product`.
        unsafe {
            let both = |i: usize, j: usize| {
                let [below] = places.read(i * step + j);
                let [above] = places.read(j * step + i);
                places.write(i * step + j, [below + above]);
                places.write(j * step + i, [below + above]);
            };
            for i in first..end {
                (first..=i).for_each(|j| both(i, j));
            }
            for_mirrored(first..end, n, both, |i, j| {
                let mut sum = read_tile(places, step, i, j);
                let above = transposed(read_tile(places, step, j, i));
                for row in 0..TILE {
                    for column in 0..TILE {
                        sum[row][column] += above[row][column];
                    }
                }
                write_tile(places, step, i, j, sum);
                write_tile(places, step, j, i, transposed(sum));
            });
        }
    });
}

/// Side of the tiles that are mirrored at once: a cache line.
const TILE: usize = 16;

type Tile<F> = [[F; TILE]; TILE];

/// Visits the places `(i, j)` below the diagonal block of `columns`, in whole tiles where they are,
/// the rest one by one.
#[inline]
fn for_mirrored(
    columns: std::ops::Range<usize>,
    n: usize,
    one: impl Fn(usize, usize),
    tile: impl Fn(usize, usize),
) {
    let whole = columns.start + columns.len() / TILE * TILE;
    for i in (columns.end..n).step_by(TILE) {
        if i + TILE <= n {
            (columns.start..whole).step_by(TILE).for_each(|j| tile(i, j));
            (i..i + TILE).for_each(|i| (whole..columns.end).for_each(|j| one(i, j)));
        } else {
            (i..n).for_each(|i| columns.clone().for_each(|j| one(i, j)));
        }
    }
}

/// # Safety
///
/// No other thread writes the tile at `(i, j)` meanwhile.
#[inline]
unsafe fn read_tile<F: Real>(places: Places<'_, F>, step: usize, i: usize, j: usize) -> Tile<F> {
    let mut tile = [[F::ZERO; TILE]; TILE];
    for row in 0..TILE {
        // SAFETY: by the caller's promise.
        tile[row] = unsafe { places.read((i + row) * step + j) };
    }
    tile
}

/// # Safety
///
/// No other thread reads or writes the tile at `(i, j)` meanwhile.
#[inline]
unsafe fn write_tile<F: Real>(places: Places<'_, F>, step: usize, i: usize, j: usize, tile: Tile<F>) {
    for row in 0..TILE {
        // SAFETY: by the caller's promise.
        unsafe { places.write((i + row) * step + j, tile[row]) }
    }
}

#[inline]
fn transposed<F: Real>(tile: Tile<F>) -> Tile<F> {
    let mut turned = [[F::ZERO; TILE]; TILE];
    for i in 0..TILE {
        for j in 0..TILE {
            turned[i][j] = tile[j][i];
        }
    }
    turned
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(count: usize, seed: u32) -> Vec<f32> {
        let mut state = seed;
        (0..count)
            .map(|_| {
                state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                // Multiples of 1/16 below 1: every sum of the tests is exact.
                ((state >> 27) as f32 - 16.0) / 16.0
            })
            .collect()
    }

    fn naive(left: &[f32], m: usize, right: &[f32], n: usize, k: usize) -> Vec<f32> {
        let at = |i: usize, j: usize| (0..k).map(|t| left[i * k + t] * right[j * k + t]).sum();
        (0..m * n).map(|p| at(p / n, p % n)).collect()
    }

    /// Shapes at the edges of tiles and tasks; few and small under Miri.
    fn sizes() -> &'static [usize] {
        if cfg!(miri) { &[1, 2, 17, 81] } else { &[1, 2, 15, 16, 17, 63, 64, 65, 81, 128, 129, 300, 1100] }
    }

    #[test]
    fn products_are_those_of_the_definition_at_every_edge() {
        let shapes = [
            (1, 1, 1),
            (3, 17, 5),
            (16, 16, 4),
            (17, 33, 8),
            (129, 40, 3),
            (300, 7, 2),
            (5, 1100, 3),
            (4100, 70, 2),
        ];
        for (m, n, k) in shapes.into_iter().take(if cfg!(miri) { 4 } else { 8 }) {
            let (left, right) = (values(m * k, 1), values(n * k, 2));
            let turned: Vec<f32> = (0..k * n).map(|at| right[at % n * k + at / n]).collect();
            let step = n.next_multiple_of(16) + 3;
            let wanted = naive(&left, m, &right, n, k);
            // The right side by rows and by columns, the left side as it is and transposed.
            let left_turned: Vec<f32> = (0..k * m).map(|at| left[at % m * k + at / m]).collect();
            for l in [Matrix::new(&left, m, k, k), Matrix::new(&left_turned, k, m, m).transposed()] {
                for r in [Matrix::new(&right, n, k, k).transposed(), Matrix::new(&turned, k, n, n)] {
                    let mut to = vec![7.0; (m - 1) * step + n];
                    product(&mut to, step, false, 2.0, l, r);
                    product(&mut to, step, true, -1.0, l, r);
                    for (i, row) in to.chunks(step).enumerate() {
                        assert_eq!(row[..n], wanted[i * n..][..n], "{m} {n} {k}");
                        assert!(row[n..].iter().all(|&v| v == 7.0), "{m} {n} {k}: between the rows");
                    }
                }
            }
        }
    }

    #[test]
    fn empty_products_touch_nothing() {
        let none = Matrix::<f32>::new(&[], 0, 3, 3);
        product(&mut [], 0, false, 1.0, none, none.transposed());
        symmetric_product(&mut [], 0, none);
        add_transposed::<f32>(&mut [], 0, 0);
    }

    #[test]
    #[should_panic(expected = "6 places for 3 x 2")]
    fn a_step_whose_multiple_overflows_is_refused() {
        let (left, right) = (values(3, 1), values(2, 2));
        let (left, right) = (Matrix::new(&left, 3, 1, 1), Matrix::new(&right, 1, 2, 2));
        // Twice this step is 0 in 64 bits.
        product(&mut [0.0; 6], 1 << (usize::BITS - 1), false, 1.0, left, right);
    }

    #[test]
    fn mirrored_products_are_whole() {
        for &n in sizes() {
            let k = 3;
            let rows = values(n * k, n as u32);
            let step = n.next_multiple_of(16);
            let mut to = vec![7.0; n * step];
            symmetric_product(&mut to, step, Matrix::new(&rows, n, k, k));
            let wanted = naive(&rows, n, &rows, n, k);
            for i in 0..n {
                assert_eq!(to[i * step..][..n], wanted[i * n..][..n], "{n}");
                assert!(to[i * step + n..][..step - n].iter().all(|&v| v == 7.0), "{n}: between the rows");
            }
        }
    }

    #[test]
    fn adding_the_transposed_fills_both_triangles() {
        for &n in sizes() {
            let step = n.next_multiple_of(16);
            let old = values(n * step, n as u32);
            let mut to = old.clone();
            add_transposed(&mut to, step, n);
            for i in 0..n {
                for j in 0..n {
                    assert_eq!(to[i * step + j], old[i * step + j] + old[j * step + i], "{n}: {i} {j}");
                }
            }
        }
    }
}
