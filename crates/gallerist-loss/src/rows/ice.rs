//! The rows of the instance cross entropy.

use super::lanes;
use super::{Counts, Measure, Row, RowLoss, Seen, Sides};

/// The instance cross entropy of a row; see [`crate::IceConfig`].
pub(crate) struct IceRows {
    /// Scale of the similarities.
    pub scale: f64,
    /// Whether the gradient is the paper's (normalised per anchor, anchor held constant) instead of
    /// the derivative.
    pub paper_gradient: bool,
}

impl RowLoss for IceRows {
    const MEASURE: Measure = Measure::Similarity;

    fn sides(&self) -> Sides {
        if self.paper_gradient { Sides::Gallery } else { Sides::Both }
    }

    fn factor(&self, counts: &Counts) -> f64 {
        1.0 / counts.queries as f64
    }

    #[inline(always)]
    fn row(&self, row: &mut Row<'_>) -> Seen {
        if !row.has_both() {
            return Seen::default();
        }
        let scale = self.scale as f32;
        let nearest = if scale >= 0.0 {
            lanes::largest(row.negatives, |v| v)
        } else {
            -lanes::largest(row.negatives, |v| if v > f32::NEG_INFINITY { -v } else { v })
        };
        let total = lanes::map_sum(row.negatives, row.by_negatives, |v| {
            let raw = if v > f32::NEG_INFINITY { lanes::exp(scale * (v - nearest)) } else { 0.0 };
            (raw, raw)
        });
        // log sum over the negatives of exp(scale x_a.x_j).
        let log_negatives = self.scale * f64::from(nearest) + f64::from(total).ln();
        let mut loss = 0.0;
        // Sum over the positives of 1 - p(i|a), and of that over the largest one: at large scales the
        // terms themselves may vanish, their ratios do not.
        let gap = |v: f32| log_negatives - self.scale * f64::from(v);
        let largest = row.positives.iter().fold(f64::NEG_INFINITY, |a, &v| a.max(log_not(gap(v))));
        let mut sum = 0.0;
        for &v in row.positives {
            loss += softplus(gap(v));
            sum += (log_not(gap(v)) - largest).exp();
        }
        let (by_positive, by_negative) = if self.paper_gradient {
            // Both sides sum to the same, so each gets half of the anchor's 1.
            (0.5 / sum, 0.5)
        } else {
            (self.scale * largest.exp(), self.scale * largest.exp() * sum)
        };
        for (&v, by) in row.positives.iter().zip(row.by_positives.iter_mut()) {
            *by = (-by_positive * (log_not(gap(v)) - largest).exp()) as f32;
        }
        lanes::scale(row.by_negatives, (by_negative / f64::from(total)) as f32);
        Seen {
            loss,
            mined_positives: row.positives.len() as u32,
            mined_negatives: row.negative_count as u32,
            ..Seen::default()
        }
    }
}

/// `log(1 + e^x)`.
#[inline(always)]
pub(super) fn softplus(x: f64) -> f64 {
    x.max(0.0) + (-x.abs()).exp().ln_1p()
}

/// `log(1 - p)` where `p = 1 / (1 + e^gap)`.
#[inline(always)]
fn log_not(gap: f64) -> f64 {
    -softplus(-gap)
}
