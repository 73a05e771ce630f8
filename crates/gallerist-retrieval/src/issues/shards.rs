//! Near-duplicates of a set that is stored in shards, the same groups as [`find_issues`](super::find_issues) finds:
//!
//! 1. each shard is scaled ([`scaled_shard`]);
//! 2. the distance of each row to its nearest neighbour is the first of its list over all shards
//!    ([`search_shard`](crate::search::search_shard) with `k` = 1, Euclidean, `exclude_self`); their median gives the
//!    largest distance of near-duplicates ([`largest_duplicate_distance`]);
//! 3. the pairs of each two shards, and of each shard with itself ([`duplicate_pairs`]), are joined
//!    ([`join_duplicates`]).

use std::borrow::Cow;

use super::duplicates::{DuplicateGroup, groups};
use super::neighbours::{distance, median};
use super::options::IssueOptions;
use super::scaled::scaled;
use crate::score_rows::{Against, score_rows};
use crate::search::{Metric, pack_rows};
use crate::shard_rows::ShardRows;
use crate::{Matrix, Result};

/// The rows in the form in which duplicates are compared: scaled to length 1 for the cosine, else unchanged.
///
/// # Errors
/// [`Error::Option`](crate::Error::Option) for the inner product, [`Error::NonFinite`](crate::Error::NonFinite),
/// [`Error::ZeroRows`](crate::Error::ZeroRows). A shard may have no rows.
pub fn scaled_shard<'a>(embeddings: &'a Matrix, options: &IssueOptions) -> Result<Cow<'a, Matrix>> {
    options.check()?;
    let scaled = match embeddings.rows() {
        0 => None,
        _ => scaled(embeddings, options.metric)?,
    };
    Ok(scaled.map_or(Cow::Borrowed(embeddings), Cow::Owned))
}

/// The largest distance of near-duplicates: the share [`IssueOptions::duplicates`] of the median of the distances of
/// all rows to their nearest neighbours. Reorders the distances.
///
/// # Panics
/// When there are no distances.
pub fn largest_duplicate_distance(nearest: &mut [f64], options: &IssueOptions) -> f64 {
    options.duplicates * median(nearest)
}

/// Two rows that are near-duplicates.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DuplicatePair {
    /// The number of one row in the whole set.
    pub a: u32,
    /// The number of the other.
    pub b: u32,
    /// Their Euclidean distance.
    pub distance: f32,
}

/// The pairs of a row of `a` and a row of `b` with a distance of at most `largest`; without `b`, the pairs within `a`.
/// Rows are compared as they are.
///
/// ```
/// use gallerist_retrieval::{Matrix, ShardRows, issues::{DuplicatePair, duplicate_pairs, join_duplicates}};
///
/// let rows = [Matrix::new(2, 1, vec![0.0, 5.0])?, Matrix::new(2, 1, vec![5.25, 9.0])?];
/// let pairs = duplicate_pairs(ShardRows::new(&rows[0], 0)?, Some(ShardRows::new(&rows[1], 2)?), 0.5)?;
/// assert_eq!(pairs, [DuplicatePair { a: 1, b: 2, distance: 0.25 }]);
/// let groups = join_duplicates(&pairs, |_, _| 0.25);
/// assert_eq!(groups[0].rows, [1, 2]);
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
///
/// # Errors
/// [`Error::NonFinite`](crate::Error::NonFinite), [`Error::TooLong`](crate::Error::TooLong).
///
/// # Panics
/// When the rows of `a` and `b` have different lengths.
pub fn duplicate_pairs(a: ShardRows, b: Option<ShardRows>, largest: f64) -> Result<Vec<DuplicatePair>> {
    let pack = |shard: ShardRows| {
        let order: Vec<usize> = (0..shard.embeddings.rows()).collect();
        pack_rows(shard.embeddings, &order, "embeddings", Metric::Euclidean)
    };
    let queries = pack(a)?;
    let other = b.map(pack).transpose()?;
    let (gallery, against) = match &other {
        Some(other) => (other, Against::All),
        None => (&queries, Against::Later),
    };
    let first = b.unwrap_or(a).first;
    let found = score_rows(Metric::Euclidean, (&queries, gallery), against, |row, scores| {
        let start = if against == Against::Later { row + 1 } else { 0 };
        let pairs = scores[start..].iter().enumerate().filter_map(|(at, &score)| {
            let distance = Metric::Euclidean.present(score);
            let (a, b) = ((a.first + row) as u32, (first + start + at) as u32);
            (distance <= largest as f32).then_some(DuplicatePair { a, b, distance })
        });
        pairs.collect::<Vec<_>>()
    });
    Ok(found.into_iter().flatten().collect())
}

/// The groups of rows that the pairs join, by rising smallest distance, then by the first row. `distance` compares two
/// rows by their numbers: [`row_distance`](super::row_distance) of the scaled rows.
pub fn join_duplicates(
    pairs: &[DuplicatePair],
    distance: impl Fn(usize, usize) -> f64,
) -> Vec<DuplicateGroup> {
    // Only rows of pairs: most rows of a large set have no duplicate.
    let mut rows: Vec<u32> = pairs.iter().flat_map(|pair| [pair.a, pair.b]).collect();
    rows.sort_unstable();
    rows.dedup();
    let place = |row: u32| rows.binary_search(&row).expect("a row of a pair") as u32;
    let dense = pairs.iter().map(|pair| (place(pair.a), place(pair.b), pair.distance)).collect();
    let number = |place: usize| rows[place] as usize;
    let mut found = groups(rows.len(), dense, |a, b| distance(number(a), number(b)));
    found.iter_mut().flat_map(|group| &mut group.rows).for_each(|row| *row = number(*row));
    found
}

/// The Euclidean distance of two rows, summed in f64.
pub fn row_distance(a: &[f32], b: &[f32]) -> f64 {
    distance(a, b)
}
