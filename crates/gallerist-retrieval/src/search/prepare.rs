//! Checks of queries and rows, and rows packed for the kernels.

use super::metric::Metric;
use crate::matrix::MatrixView;
use crate::product::{LANES, Panels};
use crate::{Error, Result};

pub(crate) fn check_query(queries: MatrixView, cols: usize, k: usize) -> Result<()> {
    if k == 0 {
        return Err(Error::Option { option: "k", wanted: "at least 1", found: "0".to_owned() });
    }
    if queries.cols() != cols {
        return Err(Error::Dimensions { queries: queries.cols(), gallery: cols });
    }
    Ok(())
}

pub(crate) fn check_count(rows: usize, what: &'static str) -> Result<()> {
    if rows >= u32::MAX as usize {
        return Err(Error::TooManyRows { what, rows });
    }
    Ok(())
}

/// Checks and packs a matrix for `metric`.
pub(super) fn pack(matrix: MatrixView, what: &'static str, metric: Metric) -> Result<Panels> {
    check_count(matrix.rows(), what)?;
    metric.check(matrix, 0..matrix.rows(), what)?;
    Ok(pack_unchecked(matrix, matrix.rows(), |i| i, metric))
}

/// Checks `matrix` and packs the rows named, for `metric`.
pub(crate) fn pack_rows(
    matrix: MatrixView,
    rows: &[usize],
    what: &'static str,
    metric: Metric,
) -> Result<Panels> {
    check_count(matrix.rows(), what)?;
    metric.check(matrix, 0..matrix.rows(), what)?;
    Ok(pack_unchecked(matrix, rows.len(), |i| rows[i], metric))
}

pub(super) fn pack_unchecked(
    matrix: MatrixView,
    count: usize,
    row: impl Fn(usize) -> usize + Sync,
    metric: Metric,
) -> Panels {
    Panels::gather(
        matrix.cols(),
        count,
        |i, to| {
            to.copy_from_slice(matrix.row(row(i)));
            metric.prepare(to);
        },
        |row| metric.bias(row),
    )
}

/// Bytes of packed rows that stay in a core's second cache (1 MiB and more) while other rows pass by.
pub(crate) const BLOCK_BYTES: usize = 768 << 10;

/// Panels of `depth` values a row in [`BLOCK_BYTES`].
pub(crate) fn panels_per_block(depth: usize) -> usize {
    (BLOCK_BYTES / (depth * LANES * size_of::<f32>()).max(1)).max(1)
}
