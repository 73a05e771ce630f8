//! Rows that no metric can be computed from.

use crate::search::Metric;
use crate::{Error, MatrixView, Result};

/// Returns an error for rows without meaningful lists: no rows, rows without values, and for the cosine
/// rows of zeros, which have no direction. `what` names the rows in the message.
///
/// ```
/// use gallerist_retrieval::{Matrix, eval::check_rows, search::Metric};
///
/// let rows = Matrix::new(2, 2, vec![1.0, 0.0, 0.0, 0.0])?;
/// assert!(check_rows(rows.view(), Metric::Cosine, "gallery").is_err());
/// assert!(check_rows(rows.view(), Metric::Euclidean, "gallery").is_ok());
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
///
/// # Errors
/// [`Error::Empty`], [`Error::Option`] for 0 dimensions, [`Error::ZeroRows`].
pub fn check_rows(rows: MatrixView<'_>, metric: Metric, what: &'static str) -> Result<()> {
    if rows.rows() == 0 {
        return Err(Error::Empty { what });
    }
    if rows.cols() == 0 {
        return Err(Error::Option { option: "dimensions", wanted: "at least 1", found: "0".to_owned() });
    }
    if metric != Metric::Cosine {
        return Ok(());
    }
    let is_zero = |row: &usize| rows.row(*row).iter().all(|&value| value == 0.0);
    let mut zeros = (0..rows.rows()).filter(is_zero);
    match zeros.next() {
        None => Ok(()),
        Some(row) => Err(Error::ZeroRows { what, row, count: 1 + zeros.count() }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Matrix;

    fn message(rows: usize, cols: usize, data: Vec<f32>, metric: Metric) -> Option<String> {
        let rows = Matrix::new(rows, cols, data).unwrap();
        check_rows(rows.view(), metric, "gallery").err().map(|error| error.to_string())
    }

    #[test]
    fn rows_without_a_direction_are_refused_where_directions_are_compared() {
        let rows = || vec![1.0, 0.0, 0.0, -0.0, 0.0, 2.0, 0.0, 0.0];
        let wanted = "gallery: row 1 is all zeros, as are 1 more; the cosine of such a row is not defined";
        assert_eq!(message(4, 2, rows(), Metric::Cosine).unwrap(), wanted);
        assert_eq!(message(4, 2, rows(), Metric::Euclidean), None);
        assert_eq!(message(1, 2, vec![0.0, 1e-45], Metric::Cosine), None);
        for metric in [Metric::Cosine, Metric::Euclidean, Metric::InnerProduct] {
            assert_eq!(message(0, 2, vec![], metric).unwrap(), "gallery has no rows");
            assert_eq!(message(3, 0, vec![], metric).unwrap(), "dimensions must be at least 1, 0 given");
        }
    }
}
