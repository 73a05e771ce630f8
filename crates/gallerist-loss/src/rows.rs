//! A loss on rows in memory, without the tensor engine.

use crate::diagnostics::{Progress, Queries};
use crate::labels::Labels;

/// A batch of rows in memory.
#[derive(Clone, Copy, Debug)]
pub struct RowBatch<'a, F> {
    /// The queries row by row, `n x dimensions`.
    pub rows: &'a [F],
    /// Values of a row, 1 or more.
    pub dimensions: usize,
    /// Labels of the `n` rows.
    pub labels: Labels<'a>,
    /// Rows of earlier batches that lengthen every list, `m x dimensions`, and their labels; they get no gradient.
    pub memory: Option<(&'a [F], Labels<'a>)>,
    /// Whether rows and memory are scaled to length 1 first; the gradient is that by the rows as they are given.
    pub normalize: bool,
}

/// A list loss on rows in memory: it reads the rows in place and writes the gradient where it is wanted.
///
/// [`RankingLoss::on_rows`](crate::RankingLoss::on_rows) gives it for every [`ListLoss`](crate::ListLoss).
///
/// # Example
///
/// ```
/// use gallerist_loss::engine::RowBatch;
/// use gallerist_loss::{Labels, Progress, RankingLoss, RllConfig};
///
/// let rows = [1.0f32, 0.0, 0.8, 0.6, 0.0, 1.0];
/// let batch = RowBatch {
///     rows: &rows,
///     dimensions: 2,
///     labels: Labels::Classes(&[0, 0, 1]),
///     memory: None,
///     normalize: true,
/// };
/// let loss = RllConfig::simpler().init();
/// let mut gradient = [0.0f32; 6];
/// let (value, queries) = loss.on_rows().unwrap().forward_f32(&batch, Progress::default(), Some(&mut gradient));
/// assert!(value > 0.0 && queries.positives == [1, 1, 0]);
/// ```
pub trait RowLoss {
    /// Value and diagnostics in single precision. The gradient by the rows is written to `gradient`, if there is one,
    /// `n x dimensions`; what it held does not matter.
    ///
    /// A batch with a value that is not finite has the value NaN and a gradient of NaN.
    ///
    /// # Panics
    ///
    /// If rows, labels and gradient disagree about their sizes.
    fn forward_f32(
        &self,
        batch: &RowBatch<'_, f32>,
        progress: Progress,
        gradient: Option<&mut [f32]>,
    ) -> (f64, Queries);

    /// [`forward_f32`](Self::forward_f32) in double precision.
    fn forward_f64(
        &self,
        batch: &RowBatch<'_, f64>,
        progress: Progress,
        gradient: Option<&mut [f64]>,
    ) -> (f64, Queries);
}
