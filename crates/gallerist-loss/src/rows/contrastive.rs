//! The rows of the contrastive loss.

use super::lanes;
use super::{Counts, Measure, Row, RowLoss, Seen, Sides};

/// The contrastive loss of a row; see [`crate::ContrastiveConfig`].
pub(crate) struct ContrastiveRows {
    /// Distance beyond which a negative costs nothing.
    pub margin: f64,
}

impl RowLoss for ContrastiveRows {
    const MEASURE: Measure = Measure::Distance;

    fn sides(&self) -> Sides {
        Sides::Both
    }

    fn factor(&self, counts: &Counts) -> f64 {
        1.0 / counts.queries as f64
    }

    #[inline(always)]
    fn row(&self, row: &mut Row<'_>) -> Seen {
        let margin = self.margin as f32;
        // A query's loss is the mean over the others.
        let others = (row.positives.len() + row.negative_count).max(1) as f64;
        let slope = (2.0 / others) as f32;
        let positives = lanes::map_sum(row.positives, row.by_positives, |d| (slope * d, d * d));
        let negatives = lanes::map_sum(row.negatives, row.by_negatives, |d| {
            let hinge = lanes::larger(margin - d, 0.0);
            (-slope * hinge, hinge * hinge)
        });
        Seen {
            loss: (f64::from(positives) + f64::from(negatives)) / others,
            mined_positives: lanes::count(row.positives, |d| d > 0.0),
            mined_negatives: lanes::count(row.negatives, |d| d < margin),
            ..Seen::default()
        }
    }
}
