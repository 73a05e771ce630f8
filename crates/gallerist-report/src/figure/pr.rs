//! Precision against recall.

use super::Figure;
use super::lines::{Named, plot};
use crate::Scale;
use crate::chart::Axis;
use crate::number::percent;

/// The curve of one run.
#[derive(Clone, Debug, Default)]
pub struct PrecisionRecall {
    /// The run.
    pub name: String,
    /// Recall and the precision there, in ascending recall, both shares.
    pub points: Vec<(f64, f64)>,
}

/// Precision-recall curves of several runs; each name is followed by the mean of its precisions.
pub fn pr(title: &str, note: &str, runs: &[PrecisionRecall]) -> Figure {
    let lines: Vec<Named> = (runs.iter())
        .map(|run| {
            let mean = run.points.iter().map(|point| point.1).sum::<f64>() / run.points.len().max(1) as f64;
            Named { name: format!("{}, mean {} %", run.name, percent(mean, 2)), points: run.points.clone() }
        })
        .collect();
    let unit = Axis::of_values(0.0, 1.0, Scale::Share);
    plot(title, note, &lines, (&unit, "recall, %"), &unit)
}
