//! The rows of the nonlinear rank approximation.

use super::lanes;
use super::{Counts, Measure, Row, RowLoss, Seen, Sides};

/// The nonlinear rank approximation of a row; see [`crate::NraConfig`].
pub(crate) struct NraRows {
    /// Steepness of the rank approximation.
    pub alpha: f64,
    /// Added inside the logarithms.
    pub eps: f64,
}

impl NraRows {
    /// `-log(w + eps)`, or `-log(1 - w + eps)` if `complement`, of the approximated rank `w` of the
    /// distance `low` above the smallest and `high` below the largest; its derivative by the rank.
    fn term(&self, low: f64, high: f64, complement: bool) -> (f64, f64) {
        let range = low + high;
        let (rank, rest) = (low / range, high / range);
        // The smaller one of w and 1 - w is a power, the other its complement.
        let upper = rank >= 0.5;
        let base = 2.0 * if upper { rest } else { rank };
        let small = 0.5 * base.powf(self.alpha);
        let slope = self.alpha * base.powf(self.alpha - 1.0);
        let kept = if upper == complement { small } else { 1.0 - small };
        let sign = if complement { 1.0 } else { -1.0 };
        (-(kept + self.eps).ln(), sign * slope / (kept + self.eps))
    }
}

impl RowLoss for NraRows {
    const MEASURE: Measure = Measure::Distance;
    const DEAD_TERMS: bool = true;

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
        let present = |v: f32| if v < f32::INFINITY { v } else { f32::NEG_INFINITY };
        let farthest_positive = lanes::largest(row.positives, |v| v);
        let nearest_positive = lanes::smallest(row.positives, |v| v);
        let farthest_negative = lanes::largest(row.negatives, present);
        let nearest_negative = lanes::smallest(row.negatives, |v| v);
        let largest = farthest_positive.max(farthest_negative);
        let smallest = nearest_positive.min(nearest_negative);
        if largest <= smallest {
            return Seen { terms: 2, dead_terms: 2, ..Seen::default() };
        }
        let wide = f64::from;
        let (top, bottom) = (wide(largest), wide(smallest));
        let (p, n) = (wide(farthest_positive), wide(nearest_negative));
        let (loss_p, by_rank_p) = self.term(p - bottom, top - p, true);
        let (loss_n, by_rank_n) = self.term(n - bottom, top - n, false);
        // r = (d - Dmin) / (Dmax - Dmin).
        let range = top - bottom;
        let rank = |d: f64| (d - bottom) / range;
        let mut by_top = -(by_rank_p * rank(p) + by_rank_n * rank(n)) / range;
        let mut by_bottom = -(by_rank_p * (top - p) + by_rank_n * (top - n)) / (range * range);
        let (mut by_p, mut by_n) = (by_rank_p / range, by_rank_n / range);
        // Where one pair is two extremes its derivatives are added before they are rounded: at an
        // end of the ranks they are as large as 1 / eps and cancel.
        for (value, by) in [(p, &mut by_p), (n, &mut by_n)] {
            if value == top {
                *by += std::mem::take(&mut by_top);
            } else if value == bottom {
                *by += std::mem::take(&mut by_bottom);
            }
        }
        row.by_positives[lanes::position(row.positives, farthest_positive)] += by_p as f32;
        row.by_negatives[lanes::position(row.negatives, nearest_negative)] += by_n as f32;
        // What is left belongs to the farthest negative and to the nearest positive.
        if by_top != 0.0 {
            row.by_negatives[lanes::position(row.negatives, farthest_negative)] += by_top as f32;
        }
        if by_bottom != 0.0 {
            row.by_positives[lanes::position(row.positives, nearest_positive)] += by_bottom as f32;
        }
        let mined_positives = u32::from(farthest_positive < largest);
        let mined_negatives = u32::from(nearest_negative > smallest);
        Seen {
            loss: loss_p + loss_n,
            mined_positives,
            mined_negatives,
            terms: 2,
            dead_terms: 2 - mined_positives - mined_negatives,
            ..Seen::default()
        }
    }
}
