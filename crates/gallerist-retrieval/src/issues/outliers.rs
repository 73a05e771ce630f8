//! Outliers: rows far from their nearest neighbours.
//!
//! The distance of a row is the mean distance to its k nearest neighbours (Angiulli and Pizzuti, PKDD 2002). Its
//! modified z-score is (d - median) / (1.4826 MAD), where MAD is the median absolute deviation (Iglewicz and Hoaglin,
//! 1993): neither median is moved by the outliers themselves.

use serde::{Deserialize, Serialize};

use super::neighbours::{Neighbour, median, neighbours};
use super::options::IssueOptions;
use crate::search::RankedLists;

/// A row far from all others.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Outlier {
    /// The row.
    pub row: usize,
    /// The mean distance to its nearest neighbours.
    pub distance: f64,
    /// Its modified z-score.
    pub score: f64,
    /// The nearest rows.
    pub nearest: Vec<Neighbour>,
}

/// MAD times this is the standard deviation of a normal distribution.
const DEVIATIONS_PER_MAD: f64 = 1.4826;

/// The rows whose z-score is above the limit of the options, and the distance at the limit.
pub(super) fn find(lists: &RankedLists, options: &IssueOptions) -> (Vec<Outlier>, Option<f64>) {
    let mean = |scores: &[f32]| {
        let nearest = &scores[..scores.len().min(options.k)];
        nearest.iter().map(|&distance| f64::from(distance)).sum::<f64>() / nearest.len() as f64
    };
    let distances: Vec<f64> = lists.iter().map(|(_, scores)| mean(scores)).collect();
    let centre = median(&mut distances.clone());
    let mut deviations: Vec<f64> = distances.iter().map(|distance| (distance - centre).abs()).collect();
    let spread = DEVIATIONS_PER_MAD * median(&mut deviations);
    if spread == 0.0 {
        return (Vec::new(), None);
    }
    let scored = |(row, &distance): (usize, &f64)| {
        let score = (distance - centre) / spread;
        let nearest = || neighbours((lists.indices(row), lists.scores(row)));
        (score > options.outliers).then(|| Outlier { row, distance, score, nearest: nearest() })
    };
    let mut outliers: Vec<Outlier> = distances.iter().enumerate().filter_map(scored).collect();
    outliers.sort_by(|a, b| b.distance.total_cmp(&a.distance).then(a.row.cmp(&b.row)));
    (outliers, Some(centre + options.outliers * spread))
}
