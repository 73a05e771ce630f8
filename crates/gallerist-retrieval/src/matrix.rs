//! A matrix of f32 with one embedding per row.

use crate::{Error, Result};

/// A row-major matrix of f32: one embedding per row.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix {
    data: Vec<f32>,
    rows: usize,
    cols: usize,
}

/// A [`Matrix`] that belongs to someone else: another matrix, a slice, a memory-mapped file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MatrixView<'a> {
    data: &'a [f32],
    rows: usize,
    cols: usize,
}

impl Matrix {
    /// Takes `data` as `rows` rows of `cols` values, row after row.
    ///
    /// # Errors
    /// [`Error::Shape`] when `data` does not hold exactly `rows * cols` values.
    pub fn new(rows: usize, cols: usize, data: Vec<f32>) -> Result<Self> {
        MatrixView::new(rows, cols, &data)?;
        Ok(Self { data, rows, cols })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns: the dimension of the embeddings.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// All values, row after row.
    pub fn as_slice(&self) -> &[f32] {
        &self.data
    }

    /// The values, given back.
    pub fn into_vec(self) -> Vec<f32> {
        self.data
    }

    /// Row `i`, of length [`cols`](Self::cols).
    ///
    /// # Panics
    /// When there is no row `i`.
    pub fn row(&self, i: usize) -> &[f32] {
        self.view().row(i)
    }

    /// The rows named by `indices`, in that order.
    ///
    /// # Panics
    /// When an index names no row.
    pub fn select(&self, indices: &[usize]) -> Self {
        self.view().select(indices)
    }

    /// The matrix as a view.
    pub fn view(&self) -> MatrixView<'_> {
        MatrixView { data: &self.data, rows: self.rows, cols: self.cols }
    }

    /// Every row divided by its Euclidean length (summed in f64), and how many rows were all
    /// zero: those stay zero.
    pub fn l2_normalized(&self) -> (Self, usize) {
        let mut data = self.data.clone();
        let mut zero_rows = 0;
        for i in 0..self.rows {
            zero_rows += usize::from(!normalize(&mut data[i * self.cols..(i + 1) * self.cols]));
        }
        (Self { data, ..*self }, zero_rows)
    }

    /// Refuses a matrix with a NaN or an infinity; `what` names the matrix in the message.
    ///
    /// # Errors
    /// [`Error::NonFinite`] with the first such row and column.
    pub fn check_finite(&self, what: &'static str) -> Result<()> {
        self.view().check_finite(what)
    }
}

impl<'a> MatrixView<'a> {
    /// Takes `data` as `rows` rows of `cols` values, row after row.
    ///
    /// # Errors
    /// [`Error::Shape`] when `data` does not hold exactly `rows * cols` values.
    pub fn new(rows: usize, cols: usize, data: &'a [f32]) -> Result<Self> {
        if rows.checked_mul(cols) != Some(data.len()) {
            return Err(Error::Shape { rows, cols, found: data.len() });
        }
        Ok(Self { data, rows, cols })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns: the dimension of the embeddings.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// All values, row after row.
    pub fn as_slice(&self) -> &'a [f32] {
        self.data
    }

    /// Row `i`, of length [`cols`](Self::cols).
    ///
    /// # Panics
    /// When there is no row `i`.
    pub fn row(&self, i: usize) -> &'a [f32] {
        assert!(i < self.rows, "row {i} of a matrix of {} rows", self.rows);
        &self.data[i * self.cols..(i + 1) * self.cols]
    }

    /// The rows named by `indices`, in that order.
    ///
    /// # Panics
    /// When an index names no row.
    pub fn select(&self, indices: &[usize]) -> Matrix {
        let mut data = Vec::with_capacity(indices.len() * self.cols);
        for &i in indices {
            data.extend_from_slice(self.row(i));
        }
        Matrix { data, rows: indices.len(), cols: self.cols }
    }

    /// A copy of the rows.
    pub fn to_matrix(&self) -> Matrix {
        Matrix { data: self.data.to_vec(), rows: self.rows, cols: self.cols }
    }

    /// Refuses a matrix with a NaN or an infinity; `what` names the matrix in the message.
    ///
    /// # Errors
    /// [`Error::NonFinite`] with the first such row and column.
    pub fn check_finite(&self, what: &'static str) -> Result<()> {
        match self.data.iter().position(|value| !value.is_finite()) {
            None => Ok(()),
            Some(at) => {
                Err(Error::NonFinite { what, row: at / self.cols, col: at % self.cols, value: self.data[at] })
            }
        }
    }
}

impl<'a> From<&'a Matrix> for MatrixView<'a> {
    fn from(matrix: &'a Matrix) -> Self {
        matrix.view()
    }
}

/// Divides `row` by its length; false, and `row` untouched, when all of it is zero.
///
/// The squares are summed in f64, in which no f32 over- or underflows.
pub(crate) fn normalize(row: &mut [f32]) -> bool {
    let squared = squared_length(row);
    if squared == 0.0 {
        return false;
    }
    let inverse = 1.0 / squared.sqrt();
    for value in row {
        *value = (f64::from(*value) * inverse) as f32;
    }
    true
}

/// The sum of squares in f64, in eight interleaved partial sums.
pub(crate) fn squared_length(row: &[f32]) -> f64 {
    let (chunks, rest) = row.as_chunks::<8>();
    let mut sums = [0.0f64; 8];
    for chunk in chunks {
        for (sum, &value) in sums.iter_mut().zip(chunk) {
            *sum += f64::from(value) * f64::from(value);
        }
    }
    let tail: f64 = rest.iter().map(|&value| f64::from(value) * f64::from(value)).sum();
    sums.iter().sum::<f64>() + tail
}

/// The squared Euclidean distance in f64, in eight interleaved partial sums.
pub(crate) fn squared_distance(a: &[f32], b: &[f32]) -> f64 {
    let (a, a_rest) = a.as_chunks::<8>();
    let (b, b_rest) = b.as_chunks::<8>();
    let mut sums = [0.0f64; 8];
    for (a, b) in a.iter().zip(b) {
        for lane in 0..8 {
            let difference = f64::from(a[lane]) - f64::from(b[lane]);
            sums[lane] += difference * difference;
        }
    }
    let rest = a_rest.iter().zip(b_rest).map(|(&a, &b)| (f64::from(a) - f64::from(b)).powi(2));
    sums.iter().sum::<f64>() + rest.sum::<f64>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_matrix_needs_exactly_its_values() {
        let error = Matrix::new(2, 3, vec![0.0; 5]).unwrap_err();
        assert_eq!(error.to_string(), "a matrix of 2 x 3 needs 6 values, 5 given");
        let error = Matrix::new(usize::MAX, 2, vec![]).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("a matrix of {} x 2 needs more than 2^64 values, 0 given", usize::MAX)
        );
    }

    #[test]
    fn normalising_leaves_zero_rows_zero_and_counts_them() {
        let matrix = Matrix::new(3, 2, vec![3.0, 4.0, 0.0, 0.0, 1e-30, 0.0]).unwrap();
        let (normalised, zero_rows) = matrix.l2_normalized();
        assert_eq!(normalised.as_slice(), [0.6, 0.8, 0.0, 0.0, 1.0, 0.0]);
        assert_eq!(zero_rows, 1);
    }

    #[test]
    fn the_first_value_that_is_not_finite_is_named() {
        let matrix = Matrix::new(2, 2, vec![0.0, 1.0, 2.0, f32::NAN]).unwrap();
        let error = matrix.check_finite("gallery").unwrap_err();
        assert_eq!(error.to_string(), "gallery: row 1, column 1 is NaN; every value must be finite");
        assert!(Matrix::new(0, 0, vec![]).unwrap().check_finite("gallery").is_ok());
    }

    #[test]
    fn rows_are_selected_in_the_order_asked_for() {
        let matrix = Matrix::new(3, 1, vec![1.0, 2.0, 3.0]).unwrap();
        assert_eq!(matrix.select(&[2, 0]).as_slice(), [3.0, 1.0]);
    }
}
