//! The rows of the multi-similarity loss.

use super::lanes;
use super::{Counts, Measure, Row, RowLoss, Seen, Sides};

/// The multi-similarity loss of a row; see [`crate::MultiSimilarityConfig`].
pub(crate) struct MultiSimilarityRows {
    /// Scale of the positives.
    pub alpha: f64,
    /// Scale of the negatives.
    pub beta: f64,
    /// Similarity at which neither side is weighted.
    pub base: f64,
    /// Slack of the pair mining; none: every pair takes part.
    pub epsilon: Option<f64>,
}

/// `log(1 + sum exp(slope * (value - base))) / |slope|` over the values that `fits`, its derivatives,
/// and how many fit.
#[inline(always)]
fn part(values: &[f32], to: &mut [f32], slope: f64, base: f64, fits: impl Fn(f32) -> bool) -> (f64, u32) {
    let (slope_, base_) = (slope as f32, base as f32);
    let exponent = |value: f32| slope_ * (value - base_);
    let mined = lanes::count(values, &fits);
    if mined == 0 {
        return (0.0, 0);
    }
    // The 1 is the exponent 0.
    let largest = lanes::largest(values, |v| if fits(v) { exponent(v) } else { 0.0 });
    let largest = lanes::larger(largest, 0.0);
    let sum = lanes::map_sum(values, to, |v| {
        let raw = if fits(v) { lanes::exp(exponent(v) - largest) } else { 0.0 };
        (raw, raw)
    });
    let one = (-f64::from(largest)).exp();
    let total = f64::from(sum) + one;
    lanes::scale(to, (slope.signum() / total) as f32);
    // log(total) = log(1 + (one - 1) + sum), precise for small sums.
    let log = f64::from(largest) + (one - 1.0 + f64::from(sum)).ln_1p();
    (log / slope.abs(), mined)
}

impl RowLoss for MultiSimilarityRows {
    const MEASURE: Measure = Measure::Similarity;

    fn sides(&self) -> Sides {
        Sides::Both
    }

    fn factor(&self, counts: &Counts) -> f64 {
        1.0 / counts.queries as f64
    }

    #[inline(always)]
    fn row(&self, row: &mut Row<'_>) -> Seen {
        let (least_negative, most_positive) = match self.epsilon {
            Some(epsilon) => (
                lanes::smallest(row.positives, |v| v) - epsilon as f32,
                lanes::largest(row.negatives, |v| v) + epsilon as f32,
            ),
            // Below every similarity, above the mark of what is absent.
            None => (f32::MIN, f32::INFINITY),
        };
        let fits = |v: f32| v > least_negative && v > f32::NEG_INFINITY;
        let (loss_n, mined_negatives) = part(row.negatives, row.by_negatives, self.beta, self.base, fits);
        let fits = |v: f32| v < most_positive;
        let (loss_p, mined_positives) = part(row.positives, row.by_positives, -self.alpha, self.base, fits);
        Seen { loss: loss_p + loss_n, mined_positives, mined_negatives, ..Seen::default() }
    }
}
