//! The rows of the ranked list loss.

use super::lanes;
use super::{Counts, Measure, Row, RowLoss, Seen, Sides};

/// The ranked list loss of a row; see [`crate::RllConfig`].
pub(crate) struct RllRows {
    /// Boundary of the negatives.
    pub alpha: f64,
    /// Width of the shell.
    pub margin: f64,
    /// Temperature of the positives' weights.
    pub t_pos: f64,
    /// Temperature of the negatives' weights, at this step.
    pub t_neg: f64,
    /// Weights of the positives' and of the negatives' part.
    pub parts: (f64, f64),
    /// Whether a query counts by its mass.
    pub mass: bool,
}

/// The weighted mean over the mined values.
struct Part {
    loss: f64,
    mined: u32,
    /// Sum of the weights, divided by `e^exponent`.
    total: f64,
    exponent: f64,
}

/// `hinge` is the pair's loss if that is above 0; its derivative by the distance is `slope`.
#[inline(always)]
fn part(
    values: &[f32],
    to: &mut [f32],
    temperature: f64,
    weight: f64,
    slope: f32,
    hinge: impl Fn(f32) -> f32,
) -> Part {
    let temperature = temperature as f32;
    let mined = lanes::count(values, |value| hinge(value) > 0.0);
    if mined == 0 {
        return Part { loss: 0.0, mined, total: 0.0, exponent: 0.0 };
    }
    // The largest exponent belongs to the largest loss, or to the smallest above 0.
    let extreme = if temperature >= 0.0 {
        lanes::largest(values, &hinge)
    } else {
        lanes::smallest(values, |value| {
            let hinge = hinge(value);
            if hinge > 0.0 { hinge } else { f32::INFINITY }
        })
    };
    let raw = |value: f32| {
        let hinge = hinge(value);
        if hinge > 0.0 { lanes::exp(temperature * (hinge - extreme)) } else { 0.0 }
    };
    let total = lanes::map_sum(values, to, |value| {
        let raw = raw(value);
        (raw, raw)
    });
    let scale = slope * weight as f32 / total;
    let sum = lanes::weighted_sum(to, values, |value| lanes::larger(hinge(value), 0.0));
    lanes::scale(to, scale);
    Part {
        loss: weight * f64::from(sum) / f64::from(total),
        mined,
        total: f64::from(total),
        exponent: f64::from(temperature) * f64::from(extreme),
    }
}

impl RowLoss for RllRows {
    const MEASURE: Measure = Measure::Distance;

    fn sides(&self) -> Sides {
        Sides::Query
    }

    fn factor(&self, counts: &Counts) -> f64 {
        if self.mass { 1.0 } else { 1.0 / counts.queries as f64 }
    }

    #[inline(always)]
    fn row(&self, row: &mut Row<'_>) -> Seen {
        let inner = (self.alpha - self.margin) as f32;
        let alpha = self.alpha as f32;
        let positives = part(row.positives, row.by_positives, self.t_pos, self.parts.0, 1.0, |d| d - inner);
        let negatives = part(row.negatives, row.by_negatives, self.t_neg, self.parts.1, -1.0, |d| alpha - d);
        let log_mass = |part: &Part| part.total.ln() + part.exponent;
        let (p, n) = (log_mass(&positives), log_mass(&negatives));
        let largest = p.max(n);
        let log_mass = if largest == f64::NEG_INFINITY {
            largest
        } else {
            largest + ((p - largest).exp() + (n - largest).exp()).ln()
        };
        Seen {
            loss: positives.loss + negatives.loss,
            mined_positives: positives.mined,
            mined_negatives: negatives.mined,
            log_mass,
            ..Seen::default()
        }
    }

    fn shares(&self, seen: &[Seen]) -> Option<Vec<f64>> {
        self.mass.then(|| {
            let largest = seen.iter().fold(f64::NEG_INFINITY, |a, s| a.max(s.log_mass));
            if largest == f64::NEG_INFINITY {
                return vec![0.0; seen.len()];
            }
            let mass = |seen: &Seen| (seen.log_mass - largest).exp();
            let total: f64 = seen.iter().map(mass).sum();
            seen.iter().map(|seen| mass(seen) / total).collect()
        })
    }
}
