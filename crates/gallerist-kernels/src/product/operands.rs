//! The operands of a product.

use super::runs::Run;
use super::tiles::TilesView;
use super::unit::Precision;
use crate::disjoint::Disjoint;
use crate::norm::Activation;
use crate::positions::greatest;

/// `c[i][j] (+)= sum over t of a[i][t] * b[t][j]`, where the rows of the left operand and of the result start anywhere:
/// a convolution needs no copy of its windows.
///
/// * Row `i` of the left operand starts at element `rows_a[i]` of `a`; its terms are named by `chunks`.
/// * The right operand `b` is [`Right`].
/// * Row `i` of the result starts at element `rows_c[i]` of `c` and has `columns` contiguous elements. Different rows do
///   not overlap.
///
/// Terms are accumulated in order, one fused multiply-add each, whatever the block a row is in: the result of a row does
/// not depend on the other rows.
pub(crate) struct Product<'a> {
    pub(crate) a: &'a [f32],
    pub(crate) rows_a: &'a [usize],
    /// Elements of `a` from one term of a run to the next.
    pub(crate) step: usize,
    /// Made by [`chunks`](super::chunks), for the same `precision`.
    pub(crate) chunks: &'a [(usize, Vec<Run>)],
    pub(crate) right: Right<'a>,
    pub(crate) precision: Precision,
    pub(crate) c: Disjoint<'a>,
    pub(crate) rows_c: &'a [usize],
    pub(crate) columns: usize,
    /// Accumulate into `c` instead of overwriting it.
    pub(crate) accumulate: bool,
    /// Values that the next product reads in place. An `f32` product prefetches them into the second-level cache while
    /// it leaves memory idle. bf16 products ignore them.
    pub(crate) prefetch: &'a [f32],
    /// What is done with the sums before they are written for the last time.
    pub(crate) finish: Option<Finish<'a>>,
}

/// `activation(sum + bias + add)` instead of the sum.
#[derive(Clone, Copy)]
pub(crate) struct Finish<'a> {
    /// One value for each column, and as many more as fill the last vector.
    pub(crate) bias: &'a [f32],
    /// Values of which as many elements as there are columns are added to each row, from these elements on.
    pub(crate) add: Option<(&'a [f32], &'a [usize])>,
    pub(crate) activation: Activation,
}

/// The right operand of a [`Product`].
#[derive(Clone, Copy)]
pub(crate) enum Right<'a> {
    /// Term `t` is the row that starts at element `t * stride` of `values`. Its columns are read in panels of
    /// [`panel_width`](super::panel_width) columns; panel `p` starts `p * panel_stride` elements further. Each row holds
    /// whole vectors of every panel.
    Rows { values: &'a [f32], stride: usize, panel_stride: usize },
    /// Tiles of bf16 operands, for [`Precision::Bf16`] only.
    Tiles(TilesView<'a>),
}

impl Product<'_> {
    /// Checks that `a` and `c` hold every element that the product names. Sums saturate, so that no overflow passes.
    ///
    /// # Panics
    ///
    /// If one is outside, or if there are not as many rows of `a` as of `c`.
    #[inline(always)]
    pub(super) fn assert_inside(&self) {
        assert_eq!(self.rows_a.len(), self.rows_c.len(), "rows of the left operand and of the result");
        let last_term = self.chunks.iter().flat_map(|(_, runs)| runs).filter(|run| run.len > 0);
        let last_term =
            last_term.map(|run| run.offset.saturating_add((run.len - 1).saturating_mul(self.step))).max();
        if let Some((row, term)) = greatest(self.rows_a).zip(last_term) {
            assert!(row.saturating_add(term) < self.a.len(), "a term outside the left operand");
        }
        if let Some(row) = greatest(self.rows_c) {
            assert!(row.saturating_add(self.columns) <= self.c.len(), "a row outside the result");
        }
        if let Some(Finish { add: Some((values, rows)), .. }) = self.finish {
            assert_eq!(rows.len(), self.rows_c.len(), "rows that are added, and rows of the result");
            let last = greatest(rows).map_or(0, |row| row.saturating_add(self.columns));
            assert!(last <= values.len(), "a row outside the values that are added");
        }
    }

    /// Applies `finish` to the finished sums in memory, but for the gate of an activation.
    ///
    /// # Safety
    ///
    /// Nothing else accesses the elements of the result's rows during the call.
    pub(super) unsafe fn finish_rows(&self) {
        let Some(Finish { bias, add, activation }) = self.finish else { return };
        let bounds = activation.bounds();
        for (row, &first) in self.rows_c.iter().enumerate() {
            // SAFETY: a row of the result; the caller's promise.
            let c = unsafe { self.c.slice(first, self.columns) };
            if let Some((values, rows)) = add {
                c.iter_mut().zip(&values[rows[row]..]).for_each(|(c, value)| *c += value);
            }
            c.iter_mut().zip(bias).for_each(|(c, bias)| *c = bounds.value(*c + bias));
        }
    }

    /// Number of terms of every sum: one more than the last row of the right operand that is read.
    #[inline(always)]
    pub(super) fn terms(&self) -> usize {
        let end = |(first, runs): &(usize, Vec<Run>)| {
            runs.iter().fold(*first, |end, run| end.saturating_add(run.len))
        };
        self.chunks.iter().map(end).max().unwrap_or(0)
    }
}
