//! The cumulative matching characteristic: the share of queries with a relevant item by each rank.

use super::Figure;
use super::lines::{Named, plot};
use crate::Scale;
use crate::chart::Axis;
use crate::number::percent;

/// The curve of one run.
#[derive(Clone, Debug, Default)]
pub struct Cmc {
    /// The run.
    pub name: String,
    /// The share of queries with a relevant item among the first 1, 2, 3… results.
    pub shares: Vec<f64>,
}

/// CMC curves of several runs; each name is followed by the share at rank 1.
pub fn cmc(title: &str, note: &str, runs: &[Cmc]) -> Figure {
    let shares = || runs.iter().flat_map(|run| &run.shares).copied();
    let low = shares().fold(1.0, f64::min);
    let ranks: Vec<u64> = (1..=runs.iter().map(|run| run.shares.len() as u64).max().unwrap_or(1)).collect();
    let lines: Vec<Named> = (runs.iter())
        .map(|run| Named {
            name: run.shares.first().map_or(run.name.clone(), |&first| {
                format!("{}, {} % at rank 1", run.name, percent(first, 2))
            }),
            points: (1..).map(f64::from).zip(run.shares.iter().copied()).collect(),
        })
        .collect();
    let y = Axis::of_values(low.min(0.999), 1.0, Scale::Share);
    plot(title, note, &lines, (&Axis::of_ks(&ranks), "rank"), &y)
}
