//! Neighbours, distances, medians.

use serde::{Deserialize, Serialize};

/// A row and its distance.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Neighbour {
    /// The row.
    pub row: usize,
    /// Its distance.
    pub distance: f64,
}

/// The median: of an even number of values the mean of the two in the middle. Reorders the values.
pub(super) fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 }
}

/// The Euclidean distance of two rows.
pub(super) fn distance(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum::<f64>().sqrt()
}

/// A list of neighbours.
pub(super) fn neighbours((rows, scores): (&[u32], &[f32])) -> Vec<Neighbour> {
    let neighbour =
        |(&row, &distance): (&u32, &f32)| Neighbour { row: row as usize, distance: distance.into() };
    rows.iter().zip(scores).map(neighbour).collect()
}
