//! Faults of a labelled image set, found from its embeddings: likely wrong labels, near-duplicates, outliers, and
//! classes that should be one.
//!
//! All comparisons are exact and leave the row itself out. Distances are Euclidean; rows that are compared by the
//! cosine are scaled to length 1 first. Memory: the lists of the nearest neighbours, and at most 256 class distances
//! for each row; time: two exact searches of the rows against themselves.
//!
//! | part | method | source |
//! | --- | --- | --- |
//! | [`WrongLabel`] | distances to classes, and a label that is random with a fitted probability | `labels.rs` |
//! | [`DuplicateGroup`] | pairs below a share of the median nearest-neighbour distance, joined into groups | `duplicates.rs` |
//! | [`Outlier`] | mean distance to the nearest neighbours, modified z-score | `outliers.rs` |
//! | [`SameClass`] | nearest-neighbour coincidences of two classes | `coincidence.rs` |
//!
//! ```
//! use gallerist_retrieval::{Matrix, issues::{IssueOptions, find_issues}};
//!
//! // Two classes on a line, and a row of the first that is labelled as the second.
//! let places = [0.0, 0.1, 0.25, 0.4, 0.6, 5.0, 5.1, 5.3, 5.4, 5.65, 0.33];
//! let rows = Matrix::new(11, 1, places.to_vec())?;
//! let labels = [0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1];
//! let options = IssueOptions { metric: gallerist_retrieval::search::Metric::Euclidean, ..Default::default() };
//! let issues = find_issues(&rows, Some(&labels), &options)?;
//! let wrong = &issues.wrong_labels[0];
//! assert_eq!((wrong.row, wrong.label, wrong.suggested), (10, 1, 0));
//! # Ok::<(), gallerist_retrieval::Error>(())
//! ```

mod coincidence;
mod duplicates;
mod labels;
mod noise;
mod outliers;

use serde::{Deserialize, Serialize};

use crate::eval::check_rows;
use crate::search::{Metric, SearchOptions, pack_rows, self_search};
use crate::{Error, Matrix, Result};

pub use coincidence::{Coincidence, SameClass, coincidence};
pub use duplicates::DuplicateGroup;
pub use labels::{Neighbour, WrongLabel};
pub use outliers::Outlier;

/// What counts as an issue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IssueOptions {
    /// How rows are compared: [`Metric::Cosine`] or [`Metric::Euclidean`].
    pub metric: Metric,
    /// Nearest neighbours for outliers. Default 10.
    pub k: usize,
    /// Nearest images of a class that define the distance to it. Default 5.
    pub per_class: usize,
    /// A label is reported if it is wrong with at least this probability, 0 to 1. Default 0.5; 0 reports all rows,
    /// ranked.
    pub probability: f64,
    /// Two rows are near-duplicates if their distance is at most this share of the median distance of a row to its
    /// nearest neighbour. Default 0.5.
    pub duplicates: f64,
    /// A row is an outlier if its modified z-score is above this. Default 3.5 (Iglewicz and Hoaglin, 1993).
    pub outliers: f64,
    /// Two classes are reported as one from this [mixing](SameClass::mixing) on, 0 to 1. Default 0.8.
    pub mixing: f64,
}

impl Default for IssueOptions {
    fn default() -> Self {
        Self {
            metric: Metric::Cosine,
            k: 10,
            per_class: 5,
            probability: 0.5,
            duplicates: 0.5,
            outliers: 3.5,
            mixing: 0.8,
        }
    }
}

/// The issues of a set of rows. Each list is ranked, the clearest issue first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Issues {
    /// Rows whose label is likely wrong, by falling probability.
    pub wrong_labels: Vec<WrongLabel>,
    /// The estimated share of random labels among the rows that were judged.
    pub noise_rate: f64,
    /// Rows that have no other image of their class except near-duplicates: their labels cannot be judged.
    pub not_judged: usize,
    /// Groups of near-duplicates, by rising smallest distance.
    pub duplicates: Vec<DuplicateGroup>,
    /// The largest distance of near-duplicates.
    pub duplicate_distance: f64,
    /// Rows far from all others, by falling distance.
    pub outliers: Vec<Outlier>,
    /// The mean distance to the nearest neighbours above which a row is an outlier; `None` if more than half of
    /// the rows have the same.
    pub outlier_distance: Option<f64>,
    /// Pairs of classes whose images are mixed, by falling mixing.
    pub same_class: Vec<SameClass>,
}

impl IssueOptions {
    fn check(&self) -> Result<()> {
        let refuse = |option, wanted, found: String| Err(Error::Option { option, wanted, found });
        if self.metric == Metric::InnerProduct {
            return refuse("the metric", "cosine or euclidean", self.metric.name().to_owned());
        }
        for (option, value) in [("k", self.k), ("per_class", self.per_class)] {
            if value == 0 {
                return refuse(option, "at least 1", "0".to_owned());
            }
        }
        for (option, value) in [("probability", self.probability), ("mixing", self.mixing)] {
            if !(0.0..=1.0).contains(&value) {
                return refuse(option, "from 0 to 1", value.to_string());
            }
        }
        for (option, value) in [("duplicates", self.duplicates), ("outliers", self.outliers)] {
            if !(value.is_finite() && value >= 0.0) {
                return refuse(option, "a number from 0 on", value.to_string());
            }
        }
        Ok(())
    }
}

/// Finds the issues of `embeddings`; `labels` has the class of each row. Without labels, only near-duplicates and
/// outliers are found.
///
/// The result is the same for any number of threads.
///
/// # Errors
/// [`Error::Count`] if there is not one label per row, [`Error::Option`], [`Error::Empty`] for fewer than two rows,
/// [`Error::NonFinite`], [`Error::ZeroRows`] for rows of zeros that are compared by the cosine, and
/// [`Error::TooLong`].
pub fn find_issues(embeddings: &Matrix, labels: Option<&[u32]>, options: &IssueOptions) -> Result<Issues> {
    options.check()?;
    let rows = embeddings.rows();
    if let Some(labels) = labels.filter(|labels| labels.len() != rows) {
        return Err(Error::Count { what: "labels", rows: "embeddings", wanted: rows, found: labels.len() });
    }
    if rows < 2 {
        return Err(Error::Empty { what: "the set without one image" });
    }
    let scaled = scaled(embeddings, options.metric)?;
    let matrix = scaled.as_ref().unwrap_or(embeddings);
    let search =
        SearchOptions { metric: Metric::Euclidean, ..SearchOptions::new(options.k.max(options.per_class)) };
    let lists = self_search(matrix, &search)?;
    let mut nearest: Vec<f64> = (0..rows).map(|row| f64::from(lists.scores(row)[0])).collect();
    let radius = options.duplicates * median(&mut nearest);

    let classes = labels::Classes::new(labels, rows);
    let packed = pack_rows(matrix.view(), classes.order(), "embeddings", Metric::Euclidean)?;
    let compared = labels::compare(&packed, &classes, radius as f32, options.per_class);
    let pairs: Vec<_> = compared.iter().flat_map(|row| row.duplicates.iter().copied()).collect();
    let (outliers, outlier_distance) = outliers::find(&lists, options);
    let mut issues = Issues {
        duplicates: duplicates::groups(rows, pairs, |a, b| distance(matrix.row(a), matrix.row(b))),
        duplicate_distance: radius,
        outliers,
        outlier_distance,
        ..Issues::default()
    };
    if let Some(labels) = labels {
        labels::judge(matrix, labels, &classes, &compared, radius as f32, options, &mut issues)?;
        issues.same_class = coincidence::find(matrix, labels, &lists, options)?;
    }
    Ok(issues)
}

/// The rows scaled to length 1 where they are compared by the cosine.
fn scaled(embeddings: &Matrix, metric: Metric) -> Result<Option<Matrix>> {
    if metric != Metric::Cosine {
        return Ok(None);
    }
    embeddings.check_finite("embeddings")?;
    check_rows(embeddings.view(), metric, "embeddings")?;
    Ok(Some(embeddings.l2_normalized().0))
}

/// The median: of an even number of values the mean of the two in the middle. Reorders the values.
fn median(values: &mut [f64]) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    let half = values.len() / 2;
    if values.len() % 2 == 1 { values[half] } else { (values[half - 1] + values[half]) / 2.0 }
}

/// The Euclidean distance of two rows.
fn distance(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| (f64::from(*a) - f64::from(*b)).powi(2)).sum::<f64>().sqrt()
}

/// A list of neighbours.
fn neighbours((rows, scores): (&[u32], &[f32])) -> Vec<Neighbour> {
    let neighbour =
        |(&row, &distance): (&u32, &f32)| Neighbour { row: row as usize, distance: distance.into() };
    rows.iter().zip(scores).map(neighbour).collect()
}
