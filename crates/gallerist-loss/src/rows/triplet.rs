//! The rows of the triplet losses.

use super::ice::softplus;
use super::lanes;
use super::{Counts, Measure, Row, RowLoss, Seen, Sides};

/// `[margin + d_p - d_n]_+` for the farthest positive and the nearest negative.
pub(crate) struct BatchHardRows {
    /// Margin.
    pub margin: f64,
    /// Softplus without margin instead of the hinge.
    pub soft: bool,
}

impl RowLoss for BatchHardRows {
    const MEASURE: Measure = Measure::Distance;

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
        let farthest = lanes::largest(row.positives, |v| v);
        let nearest = lanes::smallest(row.negatives, |v| v);
        let gap = f64::from(farthest) - f64::from(nearest);
        let (loss, slope) = if self.soft {
            (softplus(gap), 1.0 / (1.0 + (-gap).exp()))
        } else {
            let hinge = (self.margin + gap).max(0.0);
            (hinge, if hinge > 0.0 { 1.0 } else { 0.0 })
        };
        if slope > 0.0 {
            row.by_positives[lanes::position(row.positives, farthest)] = slope as f32;
            row.by_negatives[lanes::position(row.negatives, nearest)] = -slope as f32;
        }
        let mined = u32::from(slope > 0.0);
        Seen { loss, mined_positives: mined, mined_negatives: mined, ..Seen::default() }
    }
}

/// `[margin + d_p - d_n]_+` for every positive and the nearest negative.
pub(crate) struct HardNegativeRows {
    /// Margin.
    pub margin: f64,
}

impl RowLoss for HardNegativeRows {
    const MEASURE: Measure = Measure::Distance;

    fn sides(&self) -> Sides {
        Sides::Both
    }

    fn factor(&self, counts: &Counts) -> f64 {
        1.0 / counts.positive_pairs_of_both.max(1) as f64
    }

    #[inline(always)]
    fn row(&self, row: &mut Row<'_>) -> Seen {
        if !row.has_both() {
            return Seen::default();
        }
        let nearest = lanes::smallest(row.negatives, |v| v);
        let offset = (self.margin - f64::from(nearest)) as f32;
        let loss = lanes::map_sum(row.positives, row.by_positives, |d| {
            let hinge = lanes::larger(d + offset, 0.0);
            (if hinge > 0.0 { 1.0 } else { 0.0 }, hinge)
        });
        let mined = lanes::count(row.by_positives, |by| by > 0.0);
        if mined > 0 {
            row.by_negatives[lanes::position(row.negatives, nearest)] = -(mined as f32);
        }
        let positives = row.positives.len() as f64;
        Seen {
            loss: f64::from(loss) / positives,
            weight: positives,
            mined_positives: mined,
            mined_negatives: u32::from(mined > 0),
            ..Seen::default()
        }
    }
}

/// `[d_p^2 + margin - d_n^2]_+` for every positive and its nearest farther negative, or the farthest of
/// all where none is farther.
pub(crate) struct SemihardRows {
    /// Margin.
    pub margin: f64,
}

impl RowLoss for SemihardRows {
    const MEASURE: Measure = Measure::Distance;

    fn sides(&self) -> Sides {
        Sides::Both
    }

    fn factor(&self, counts: &Counts) -> f64 {
        1.0 / counts.positive_pairs_of_both.max(1) as f64
    }

    #[inline(always)]
    fn row(&self, row: &mut Row<'_>) -> Seen {
        if !row.has_both() {
            return Seen::default();
        }
        let present = |v: f32| if v < f32::INFINITY { v } else { f32::NEG_INFINITY };
        let farthest = lanes::largest(row.negatives, present);
        let mut seen = Seen::default();
        for (&positive, by) in row.positives.iter().zip(row.by_positives.iter_mut()) {
            let farther = lanes::smallest(row.negatives, |v| if v > positive { v } else { f32::INFINITY });
            let negative = if farther < f32::INFINITY { farther } else { farthest };
            let square = |v: f32| f64::from(v) * f64::from(v);
            let hinge = square(positive) + self.margin - square(negative);
            if hinge > 0.0 {
                seen.loss += hinge;
                seen.mined_positives += 1;
                *by = 2.0 * positive;
                row.by_negatives[lanes::position(row.negatives, negative)] -= 2.0 * negative;
            }
        }
        seen.mined_negatives = lanes::count(row.by_negatives, |by| by != 0.0);
        seen.weight = row.positives.len() as f64;
        seen.loss /= seen.weight;
        seen
    }
}

/// `[d_p^2 + margin - d_n^2]_+` for every triplet.
pub(crate) struct AllTripletsRows {
    /// Margin.
    pub margin: f64,
}

impl RowLoss for AllTripletsRows {
    const MEASURE: Measure = Measure::Distance;

    fn sides(&self) -> Sides {
        Sides::Both
    }

    fn factor(&self, counts: &Counts) -> f64 {
        1.0 / counts.triplets.max(1) as f64
    }

    #[inline(always)]
    fn row(&self, row: &mut Row<'_>) -> Seen {
        if !row.has_both() {
            return Seen::default();
        }
        let mut seen = Seen::default();
        for (&positive, by) in row.positives.iter().zip(row.by_positives.iter_mut()) {
            let bound = positive * positive + self.margin as f32;
            let hinges = lanes::add_map_sum(row.negatives, row.by_negatives, |d| {
                let hinge = bound - d * d;
                if hinge > 0.0 { (1.0, hinge) } else { (0.0, 0.0) }
            });
            let active = lanes::count(row.negatives, |d| bound - d * d > 0.0);
            seen.loss += f64::from(hinges);
            seen.mined_positives += u32::from(active > 0);
            *by = active as f32 * 2.0 * positive;
        }
        seen.mined_negatives = lanes::count(row.by_negatives, |by| by > 0.0);
        for (by, &d) in row.by_negatives.iter_mut().zip(row.negatives) {
            *by = if *by > 0.0 { *by * -2.0 * d } else { 0.0 };
        }
        seen.weight = row.positives.len() as f64 * row.negative_count as f64;
        seen.loss /= seen.weight;
        seen
    }
}

/// `[margin + sum softmax(d_p) d_p - sum softmax(-d_n) d_n]_+`, the weights differentiated.
pub(crate) struct AdaptiveRows {
    /// Margin.
    pub margin: f64,
}

/// The softmax of `sign * value` as weights in `to`, and the weighted mean of the values.
#[inline(always)]
fn soft_extreme(values: &[f32], to: &mut [f32], sign: f32) -> f32 {
    let present = |v: f32| v < f32::INFINITY;
    let largest = lanes::largest(values, |v| if present(v) { sign * v } else { f32::NEG_INFINITY });
    let total = lanes::map_sum(values, to, |v| {
        let raw = if present(v) { lanes::exp(sign * v - largest) } else { 0.0 };
        (raw, raw)
    });
    lanes::scale(to, 1.0 / total);
    lanes::weighted_sum(to, values, |v| if present(v) { v } else { 0.0 })
}

impl RowLoss for AdaptiveRows {
    const MEASURE: Measure = Measure::Distance;

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
        let far = soft_extreme(row.positives, row.by_positives, 1.0);
        let near = soft_extreme(row.negatives, row.by_negatives, -1.0);
        let hinge = self.margin + f64::from(far) - f64::from(near);
        if hinge > 0.0 {
            for (by, &d) in row.by_positives.iter_mut().zip(row.positives) {
                *by *= 1.0 + d - far;
            }
            for (by, &d) in row.by_negatives.iter_mut().zip(row.negatives) {
                *by *= if d < f32::INFINITY { d - near - 1.0 } else { 0.0 };
            }
            Seen {
                loss: hinge,
                mined_positives: row.positives.len() as u32,
                mined_negatives: row.negative_count as u32,
                ..Seen::default()
            }
        } else {
            row.by_positives.fill(0.0);
            row.by_negatives.fill(0.0);
            Seen::default()
        }
    }
}
