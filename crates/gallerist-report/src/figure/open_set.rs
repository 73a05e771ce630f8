//! Detection and identification rate against false alarm rate.

use super::Figure;
use super::lines::{Named, plot};
use crate::Scale;
use crate::chart::Axis;

/// The curve of one run.
#[derive(Clone, Debug, Default)]
pub struct OpenSetCurve {
    /// The run.
    pub name: String,
    /// False alarm rate and detection and identification rate there, in ascending order. Rates of 0 are not drawn.
    pub points: Vec<(f64, f64)>,
}

/// Curves of open-set identification of several runs, over a logarithmic axis of false alarm rates.
pub fn open_set(title: &str, note: &str, runs: &[OpenSetCurve]) -> Figure {
    let lines: Vec<Named> = (runs.iter())
        .map(|run| Named {
            name: run.name.clone(),
            points: run.points.iter().copied().filter(|point| point.0 > 0.0).collect(),
        })
        .collect();
    let rates = lines.iter().flat_map(|line| &line.points).map(|point| point.0);
    let least = rates.fold(0.1, f64::min);
    let unit = Axis::of_values(0.0, 1.0, Scale::Share);
    plot(title, note, &lines, (&Axis::of_values(least, 1.0, Scale::Log), "false alarm rate"), &unit)
}
