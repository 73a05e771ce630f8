//! Faults of a labelled image set, found from its embeddings: likely wrong labels, near-duplicates, outliers, and
//! classes that should be one.
//!
//! All comparisons are exact and leave the row itself out. Distances are Euclidean; rows that are compared by the
//! cosine are scaled to length 1 first. Memory: the lists of the nearest neighbours, and at most 256 class distances
//! for each row; time: two exact searches of the rows against themselves. Near-duplicates of a set that is stored in
//! shards are found from pairs of shards: [`duplicate_pairs`].
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
mod neighbours;
mod noise;
mod options;
mod outliers;
mod scaled;
mod shards;

use serde::{Deserialize, Serialize};

use crate::search::{Metric, SearchOptions, pack_rows, self_search};
use crate::{Error, Matrix, Result};

pub use coincidence::{Coincidence, SameClass, coincidence};
pub use duplicates::DuplicateGroup;
pub use labels::WrongLabel;
pub use neighbours::Neighbour;
pub use options::IssueOptions;
pub use outliers::Outlier;
pub use shards::{
    DuplicatePair, duplicate_pairs, join_duplicates, largest_duplicate_distance, row_distance, scaled_shard,
};

use neighbours::distance;
use scaled::scaled;

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
    let radius = largest_duplicate_distance(&mut nearest, options);

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
        let judged = labels::judge(matrix, labels, &classes, &compared, radius as f32, options)?;
        issues.wrong_labels = judged.wrong;
        issues.noise_rate = judged.noise_rate;
        issues.not_judged = judged.not_judged;
        issues.same_class = coincidence::find(matrix, labels, &lists, options)?;
    }
    Ok(issues)
}
