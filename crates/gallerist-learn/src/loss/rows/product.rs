//! Products of matrices on slices: the bounds are checked here, the work is `gemm`'s.

use rayon::prelude::*;

/// A matrix in a slice: the value at `(row, column)` lies at `row * row_step + column * column_step`.
#[derive(Clone, Copy)]
pub(super) struct Matrix<'a> {
    values: &'a [f32],
    rows: usize,
    columns: usize,
    row_step: usize,
    column_step: usize,
}

impl<'a> Matrix<'a> {
    /// `rows x columns`, rows starting every `step` values.
    pub(super) fn new(values: &'a [f32], rows: usize, columns: usize, step: usize) -> Self {
        assert!(step >= columns, "rows of {columns} values every {step}");
        let needed = if rows == 0 { 0 } else { (rows - 1) * step + columns };
        assert!(values.len() >= needed, "{} values for {rows} rows of {step}", values.len());
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
}

/// `to = factor * left * right`, or added to what `to` holds if `add`. The rows of `to` start every
/// `step` values.
pub(super) fn product(
    to: &mut [f32],
    step: usize,
    add: bool,
    factor: f32,
    left: Matrix<'_>,
    right: Matrix<'_>,
) {
    let (m, n, k) = (left.rows, right.columns, left.columns);
    assert_eq!(k, right.rows, "a product of {m} x {k} and {} x {n}", right.rows);
    assert!(step >= n, "rows of {n} values every {step}");
    if m == 0 || n == 0 {
        return;
    }
    assert!(to.len() >= (m - 1) * step + n, "{} places for {m} rows of {step}", to.len());
    // SAFETY: the last value touched of each matrix lies inside its slice: of `to` by the assertion
    // above, of `left` and `right` because `Matrix::new` checked it and its other constructors only
    // narrow or exchange. `to` is borrowed mutably, so it overlaps neither. All steps fit `isize`
    // because they are below the length of a slice or multiply an index of 0.
    unsafe {
        gemm::gemm(
            m,
            n,
            k,
            to.as_mut_ptr(),
            1,
            step as isize,
            add,
            left.values.as_ptr(),
            left.column_step as isize,
            left.row_step as isize,
            right.values.as_ptr(),
            right.column_step as isize,
            right.row_step as isize,
            1.0f32,
            factor,
            false,
            false,
            false,
            gemm::Parallelism::None,
        );
    }
}

/// Rows of the result that one task computes. Fixed by the shape alone, never by the number of
/// threads, because `gemm` may split its sums by the shape.
pub(super) fn task_rows(rows: usize) -> usize {
    rows.div_ceil(8).next_multiple_of(8).clamp(16, 128)
}

/// As [`product`], in parallel over blocks of rows.
pub(super) fn parallel_product(
    to: &mut [f32],
    step: usize,
    add: bool,
    factor: f32,
    left: Matrix<'_>,
    right: Matrix<'_>,
) {
    let rows = task_rows(left.rows);
    to.par_chunks_mut(rows * step).take(left.rows.div_ceil(rows)).enumerate().for_each(|(task, to)| {
        let first = task * rows;
        product(to, step, add, factor, left.some_rows(first, rows.min(left.rows - first)), right);
    });
}

/// `to = rows * rows^T` for a square result of `rows.rows` rows: the blocks on and below the diagonal
/// are computed, the others mirrored.
pub(super) fn symmetric_product(to: &mut [f32], step: usize, rows: Matrix<'_>) {
    let n = rows.rows;
    let block = task_rows(n);
    // From the last, which has the most work.
    to.par_chunks_mut(block * step).take(n.div_ceil(block)).enumerate().rev().for_each(|(task, to)| {
        let first = task * block;
        let count = block.min(n - first);
        let right = rows.some_rows(0, first + count).transposed();
        product(to, step, false, 1.0, rows.some_rows(first, count), right);
    });
    join_mirrored(to, step, n, block, |_, mirrored| mirrored);
}

/// `to = to + to^T` for a square matrix of `n` rows.
pub(super) fn add_transposed(to: &mut [f32], step: usize, n: usize) {
    let block = task_rows(n);
    to.par_chunks_mut(block * step).take(n.div_ceil(block)).enumerate().for_each(|(task, rows)| {
        let first = task * block;
        for i in 0..block.min(n - first) {
            for j in 0..=i {
                let sum = rows[i * step + first + j] + rows[j * step + first + i];
                rows[i * step + first + j] = sum;
                rows[j * step + first + i] = sum;
            }
        }
    });
    join_mirrored(to, step, n, block, |value, mirrored| value + mirrored);
    // Now the blocks below the diagonal.
    for first in (block..n).step_by(block) {
        let (above, below) = to.split_at_mut(first * step);
        let above = &*above;
        below.par_chunks_mut(STRIP * step).take(block.min(n - first).div_ceil(STRIP)).enumerate().for_each(
            |(strip, rows)| {
                let first_row = first + strip * STRIP;
                mirror(rows, step, first_row, 0, &above[..first * step], |_, mirrored| mirrored);
            },
        );
    }
}

/// Rows mirrored at a time: a cache line of the columns they come from.
const STRIP: usize = 16;

/// Joins every value right of the diagonal blocks with its mirror image.
fn join_mirrored(to: &mut [f32], step: usize, n: usize, block: usize, join: impl Fn(f32, f32) -> f32 + Sync) {
    for first in (0..n).step_by(block) {
        let end = first + block;
        if end >= n {
            return;
        }
        let (above, below) = to.split_at_mut(end * step);
        let below = &below[..(n - end) * step];
        above[first * step..].par_chunks_mut(STRIP * step).enumerate().for_each(|(strip, rows)| {
            mirror(rows, step, first + strip * STRIP, end, below, &join);
        });
    }
}

/// Joins into `rows` (the first is number `first_row`), from column `first_column` on, the
/// transposed of `from`, whose rows they mirror.
fn mirror(
    rows: &mut [f32],
    step: usize,
    first_row: usize,
    first_column: usize,
    from: &[f32],
    join: impl Fn(f32, f32) -> f32,
) {
    let count = rows.len().div_ceil(step).min(STRIP);
    for (tile, from) in from.chunks(STRIP * step).enumerate() {
        let column = first_column + tile * STRIP;
        for i in 0..count {
            let row = &mut rows[i * step + column..];
            for (value, from) in row.iter_mut().zip(from.chunks(step)) {
                *value = join(*value, from[first_row + i]);
            }
        }
    }
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

    #[test]
    fn products_are_those_of_the_definition_at_every_edge() {
        for (m, n, k) in [(1, 1usize, 1), (3, 17, 5), (16, 16, 4), (17, 33, 8), (129, 40, 3), (300, 7, 2)] {
            let (left, right) = (values(m * k, 1), values(n * k, 2));
            let step = n.next_multiple_of(16);
            let (l, r) = (Matrix::new(&left, m, k, k), Matrix::new(&right, n, k, k));
            let mut to = vec![7.0; m * step];
            parallel_product(&mut to, step, false, 2.0, l, r.transposed());
            parallel_product(&mut to, step, true, -1.0, l, r.transposed());
            let wanted = naive(&left, m, &right, n, k);
            for i in 0..m {
                assert_eq!(to[i * step..][..n], wanted[i * n..][..n], "{m} {n} {k}");
            }
        }
    }

    #[test]
    fn mirrored_products_are_whole() {
        for n in [1usize, 2, 15, 16, 17, 33, 127, 128, 129, 300] {
            let k = 3;
            let rows = values(n * k, n as u32);
            let step = n.next_multiple_of(16);
            let mut to = vec![7.0; n * step];
            symmetric_product(&mut to, step, Matrix::new(&rows, n, k, k));
            let wanted = naive(&rows, n, &rows, n, k);
            for i in 0..n {
                assert_eq!(to[i * step..][..n], wanted[i * n..][..n], "{n}");
            }
        }
    }

    #[test]
    fn adding_the_transposed_fills_both_triangles() {
        for n in [1usize, 2, 15, 16, 17, 33, 127, 128, 129, 300] {
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
