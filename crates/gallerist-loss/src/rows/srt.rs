//! The rows of the soft ranking threshold.
//!
//! `R_ij = sum over k of sigmoid((d_ij - d_ik) / temperature)` for every `j` would take `n` passes over
//! a row of `n`. But `R` grows with the distance, and a negative costs something only where `R` is
//! small: the negatives are visited from the nearest on, and the first one over the threshold ends
//! the walk. What remains is a pass per positive and per negative that costs something.

use super::ice::softplus;
use super::lanes;
use super::{Counts, Measure, Row, RowLoss, Seen, Sides};
use crate::SrtHardest;

/// Softplus terms of a row that are smaller than its largest one by this factor's exponential are left
/// out.
const NEGLIGIBLE: f64 = 30.0;

/// The soft ranking threshold of a row; see [`crate::SrtConfig`].
pub(crate) struct SrtRows {
    /// Temperature of the sigmoids.
    pub temperature: f64,
    /// Weight of the positives; the negatives have the rest.
    pub balance: f64,
    /// Margin between the thresholds.
    pub margin: f64,
    /// Softplus instead of the hinge.
    pub soft: bool,
    /// The hard terms and their weight, where they are in force.
    pub hard: Option<(f64, SrtHardest)>,
}

impl SrtRows {
    /// A term and its derivative.
    fn cost(&self, excess: f64) -> (f64, f64) {
        if self.soft {
            (softplus(excess), 1.0 / (1.0 + (-excess).exp()))
        } else if excess > 0.0 {
            (excess, 1.0)
        } else {
            (0.0, 0.0)
        }
    }

    /// `sum over k of sigmoid((d - d_ik) / temperature)`, the query itself at distance 0 included.
    #[inline(always)]
    fn rank(&self, row: &Row<'_>, d: f32) -> f64 {
        let inverse = (1.0 / self.temperature) as f32;
        let sigmoid = |other: f32| 1.0 / (1.0 + lanes::exp((other - d) * inverse));
        let others = lanes::sum(row.negatives, sigmoid) + lanes::sum(row.positives, sigmoid);
        f64::from(others) + f64::from(sigmoid(0.0))
    }

    /// The derivatives of `slope * R(d)` by all distances but `d`; returns the one by `d`.
    #[inline(always)]
    fn differentiate(&self, row: &mut Row<'_>, d: f32, slope: f64) -> f32 {
        let inverse = (1.0 / self.temperature) as f32;
        let slope = slope as f32 * inverse;
        let derivative = |other: f32| {
            let small = lanes::exp(-((other - d) * inverse).abs());
            let whole = 1.0 + small;
            slope * small / (whole * whole)
        };
        let both = |other: f32| {
            let derivative = derivative(other);
            (-derivative, derivative)
        };
        lanes::add_map_sum(row.negatives, row.by_negatives, both)
            + lanes::add_map_sum(row.positives, row.by_positives, both)
            + derivative(0.0)
    }
}

impl RowLoss for SrtRows {
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
        let (p, n) = (row.positives.len() as f64, row.negative_count as f64);
        let (weight_p, weight_n) = (self.balance / p, (1.0 - self.balance) / n);
        let (bound_p, bound_n) = (p + 1.0 - self.margin, p + 2.0 + self.margin);
        let present = |v: f32| if v < f32::INFINITY { v } else { f32::NEG_INFINITY };
        let mut seen = Seen::default();

        // The hard terms' samples, as distances.
        let nearest = lanes::smallest(row.negatives, |v| v);
        let hard = self.hard.map(|(weight, terms)| {
            let (of_p, of_n) = match terms {
                SrtHardest::MaxMin => (lanes::largest(row.positives, |v| v), nearest),
                SrtHardest::AsPrinted => {
                    (lanes::smallest(row.positives, |v| v), lanes::largest(row.negatives, present))
                }
            };
            (weight, lanes::position(row.positives, of_p), lanes::position(row.negatives, of_n))
        });

        for at in 0..row.positives.len() {
            let d = row.positives[at];
            let rank = self.rank(row, d);
            let (cost, slope) = self.cost(rank - bound_p);
            seen.loss += weight_p * cost;
            let mut slope = weight_p * slope;
            if let Some((weight, of_p, _)) = hard
                && of_p == at
            {
                let excess = rank - p / 2.0;
                if excess > 0.0 {
                    seen.loss += weight * weight_p * excess;
                    slope += weight * weight_p;
                }
            }
            if slope > 0.0 {
                seen.mined_positives += 1;
                let own = self.differentiate(row, d, slope);
                row.by_positives[at] += own;
            }
        }

        // All negatives at one distance have one rank.
        let mut d = nearest;
        let first_rank = self.rank(row, d);
        let mut rank = first_rank;
        while d < f32::INFINITY {
            let (cost, slope) = self.cost(bound_n - rank);
            let done = if self.soft { rank > first_rank.max(bound_n) + NEGLIGIBLE } else { slope == 0.0 };
            if done {
                break;
            }
            let same = lanes::count(row.negatives, |v| v == d);
            let (same_, slope) = (f64::from(same), -weight_n * slope);
            seen.loss += same_ * weight_n * cost;
            seen.mined_negatives += same;
            let own = self.differentiate(row, d, same_ * slope) / same as f32;
            lanes::add_map_sum(row.negatives, row.by_negatives, |v| (if v == d { own } else { 0.0 }, 0.0));
            let here = d;
            d = lanes::smallest(row.negatives, |v| if v > here { v } else { f32::INFINITY });
            if d < f32::INFINITY {
                rank = self.rank(row, d);
            }
        }
        if let Some((weight, _, of_n)) = hard {
            let d = row.negatives[of_n];
            let rank = if d == nearest { first_rank } else { self.rank(row, d) };
            let excess = (n + p + 1.0 + p + 1.0) / 2.0 - rank;
            if excess > 0.0 {
                seen.loss += weight * weight_n * excess;
                if self.cost(bound_n - rank).1 == 0.0 {
                    seen.mined_negatives += 1;
                }
                let own = self.differentiate(row, d, -weight * weight_n);
                row.by_negatives[of_n] += own;
            }
        }
        if self.soft {
            // The walk leaves out what rounds to nothing; it counts all the same.
            seen.mined_negatives = if weight_n > 0.0 { row.negative_count as u32 } else { 0 };
        }
        seen
    }
}
