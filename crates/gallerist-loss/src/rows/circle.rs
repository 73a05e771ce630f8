//! The rows of the circle loss.

use super::ice::softplus;
use super::lanes;
use super::{Counts, Measure, Row, RowLoss, Seen, Sides};

/// The circle loss of a row; see [`crate::CircleConfig`].
pub(crate) struct CircleRows {
    /// Relaxation.
    pub margin: f64,
    /// Scale.
    pub gamma: f64,
}

/// `log sum exp` of the logits and, in `to`, its derivatives by the values. `logit` gives a value's
/// logit and the logit's slope.
#[inline(always)]
fn log_sum_exp(values: &[f32], to: &mut [f32], logit: impl Fn(f32) -> (f32, f32)) -> f64 {
    let present = |v: f32| v > f32::NEG_INFINITY;
    let largest = lanes::largest(values, |v| if present(v) { logit(v).0 } else { f32::NEG_INFINITY });
    let total = lanes::map_sum(values, to, |v| {
        let (logit, slope) = logit(v);
        let raw = if present(v) { lanes::exp(logit - largest) } else { 0.0 };
        (if present(v) { raw * slope } else { 0.0 }, raw)
    });
    lanes::scale(to, 1.0 / total);
    f64::from(largest) + f64::from(total).ln()
}

impl RowLoss for CircleRows {
    const MEASURE: Measure = Measure::Similarity;

    fn sides(&self) -> Sides {
        Sides::Both
    }

    fn factor(&self, counts: &Counts) -> f64 {
        1.0 / counts.both.max(1) as f64
    }

    #[inline(always)]
    fn row(&self, row: &mut Row<'_>) -> Seen {
        if !row.has_both() {
            return Seen::default();
        }
        let (margin, gamma) = (self.margin as f32, self.gamma as f32);
        let positives = log_sum_exp(row.positives, row.by_positives, |v| {
            let slope = -gamma * lanes::larger(1.0 + margin - v, 0.0);
            (slope * (v - (1.0 - margin)), slope)
        });
        let negatives = log_sum_exp(row.negatives, row.by_negatives, |v| {
            let slope = gamma * lanes::larger(v + margin, 0.0);
            (slope * (v - margin), slope)
        });
        let lead = positives + negatives;
        let slope = (1.0 / (1.0 + (-lead).exp())) as f32;
        lanes::scale(row.by_positives, slope);
        lanes::scale(row.by_negatives, slope);
        let loss = softplus(lead);
        let mined = |all: usize| if loss > 0.0 { all as u32 } else { 0 };
        Seen {
            loss,
            mined_positives: mined(row.positives.len()),
            mined_negatives: mined(row.negative_count),
            ..Seen::default()
        }
    }
}
