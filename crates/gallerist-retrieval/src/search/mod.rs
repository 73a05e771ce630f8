//! Exact search: for every query the k best rows of a gallery.
//!
//! Queries and gallery are multiplied tile by tile and each tile is compared with the queries'
//! current k-th scores while it is in the cache, so memory is that of the packed queries, of
//! 128 MiB of the gallery at a time and of `queries * k` candidates, never of
//! `queries * gallery` scores. The gallery may be a [mapped file](crate::file::MappedMatrix) larger
//! than memory. [`Gallery`] packs once for many searches; [`CompactGallery`] takes half or a quarter
//! of the memory and gives the same lists.

mod best;
mod candidates;
mod compact;
mod forecast;
mod gallery;
mod lists;
mod metric;
mod pairs;
mod split;
mod symmetric;

use std::borrow::Cow;
use std::fmt;

use crate::product::{LANES, Panels};
use crate::{Error, MatrixView, Result};
pub(crate) use best::{rank_key, score_of, unrank_key};
pub use compact::CompactGallery;
pub use gallery::Gallery;
pub use lists::RankedLists;
pub use metric::Metric;
pub(crate) use metric::Scorer;
pub(crate) use pairs::pair_scores;
pub(crate) use symmetric::rounds;

/// Which pairs may be ranked: `filter(query, gallery)` by index.
///
/// It is asked only for pairs that would enter a list, in no particular order and from several
/// threads.
pub type Filter<'a> = &'a (dyn Fn(usize, usize) -> bool + Sync);

/// What to search for.
#[derive(Clone, Copy)]
pub struct SearchOptions<'a> {
    /// Results per query, at least 1. A gallery with fewer admissible rows gives shorter lists.
    pub k: usize,
    /// How rows are compared.
    pub metric: Metric,
    /// Leaves gallery row `i` out of the list of query `i`: for queries that are the gallery.
    pub exclude_self: bool,
    /// Leaves out every pair for which this is false.
    pub filter: Option<Filter<'a>>,
}

impl SearchOptions<'_> {
    /// The `k` most similar rows by cosine; nothing is left out.
    pub fn new(k: usize) -> Self {
        Self { k, metric: Metric::Cosine, exclude_self: false, filter: None }
    }
}

impl fmt::Debug for SearchOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SearchOptions")
            .field("k", &self.k)
            .field("metric", &self.metric)
            .field("exclude_self", &self.exclude_self)
            .field("filter", &self.filter.map(|_| "a predicate"))
            .finish()
    }
}

/// Ranks `gallery` for each of `queries`, on the threads of the current rayon pool.
///
/// The lists are the same, to the last bit, for any number of threads.
///
/// They are those of exact arithmetic except that two rows may change places whose scores differ by
/// less than twice the rounding of one. With rows of d values and u = 2^-24 that is at most
/// `(d + 2) u |a| |b|` for inner products (6e-5 for d = 1,000 and rows of length 1; about the root of
/// d instead of d is usual), `(d + 4) u` for cosines, and `4 (d + 6) u sqrt(|a|^2 + |b|^2)` for
/// distances, which lose less where they are small: see [`Metric::Euclidean`].
///
/// ```
/// use gallerist_retrieval::{Matrix, search::{Metric, SearchOptions, search}};
///
/// let gallery = Matrix::new(3, 1, vec![1.0, 5.0, 2.0])?;
/// let queries = Matrix::new(1, 1, vec![1.5])?;
/// let options = SearchOptions { metric: Metric::Euclidean, ..SearchOptions::new(2) };
/// let lists = search(&queries, &gallery, &options)?;
/// assert_eq!(lists.indices(0), [0, 2]);
/// assert_eq!(lists.scores(0), [0.5, 0.5]);
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
///
/// # Errors
/// [`Error::Dimensions`], [`Error::Empty`] for a gallery without rows, [`Error::NonFinite`],
/// [`Error::TooLong`], [`Error::TooManyRows`], and [`Error::Option`] for `k` = 0. No queries
/// give no lists.
pub fn search<'a>(
    queries: impl Into<MatrixView<'a>>,
    gallery: impl Into<MatrixView<'a>>,
    options: &SearchOptions,
) -> Result<RankedLists> {
    let (queries, gallery) = (queries.into(), gallery.into());
    check(queries, gallery, options)?;
    let queries = pack(queries, "queries", options.metric)?;
    check_count(gallery.rows(), "gallery")?;
    let rows_per_chunk = (CHUNK_BYTES / (gallery.cols() * size_of::<f32>()).max(1)).max(LANES);
    let chunks = (0..gallery.rows()).step_by(rows_per_chunk).map(|start| {
        let rows = start..gallery.rows().min(start + rows_per_chunk);
        options.metric.check(gallery, rows.clone(), "gallery")?;
        Ok((start, Cow::Owned(pack_unchecked(gallery, rows.len(), |i| start + i, options.metric))))
    });
    split::search(&queries, gallery.rows(), chunks, options)
}

/// Ranks the rows of `gallery` for each other: row `i` is left out of its own list.
///
/// # Errors
/// As [`search`].
pub fn self_search<'a>(gallery: impl Into<MatrixView<'a>>, options: &SearchOptions) -> Result<RankedLists> {
    let gallery = gallery.into();
    check(gallery, gallery, options)?;
    let gallery = pack(gallery, "gallery", options.metric)?;
    Ok(symmetric::search(&gallery, options))
}

fn check(queries: MatrixView, gallery: MatrixView, options: &SearchOptions) -> Result<()> {
    if gallery.rows() == 0 {
        return Err(Error::Empty { what: "the gallery" });
    }
    check_query(queries, gallery.cols(), options.k)
}

pub(crate) fn check_query(queries: MatrixView, cols: usize, k: usize) -> Result<()> {
    if k == 0 {
        return Err(Error::Option { option: "k", wanted: "at least 1", found: "0".to_owned() });
    }
    if queries.cols() != cols {
        return Err(Error::Dimensions { queries: queries.cols(), gallery: cols });
    }
    Ok(())
}

pub(crate) fn check_count(rows: usize, what: &'static str) -> Result<()> {
    if rows >= u32::MAX as usize {
        return Err(Error::TooManyRows { what, rows });
    }
    Ok(())
}

/// Checks and packs a matrix for `metric`.
fn pack(matrix: MatrixView, what: &'static str, metric: Metric) -> Result<Panels> {
    check_count(matrix.rows(), what)?;
    metric.check(matrix, 0..matrix.rows(), what)?;
    Ok(pack_unchecked(matrix, matrix.rows(), |i| i, metric))
}

/// Checks `matrix` and packs the rows named, for `metric`.
pub(crate) fn pack_rows(
    matrix: MatrixView,
    rows: &[usize],
    what: &'static str,
    metric: Metric,
) -> Result<Panels> {
    check_count(matrix.rows(), what)?;
    metric.check(matrix, 0..matrix.rows(), what)?;
    Ok(pack_unchecked(matrix, rows.len(), |i| rows[i], metric))
}

fn pack_unchecked(
    matrix: MatrixView,
    count: usize,
    row: impl Fn(usize) -> usize + Sync,
    metric: Metric,
) -> Panels {
    Panels::gather(
        matrix.cols(),
        count,
        |i, to| {
            to.copy_from_slice(matrix.row(row(i)));
            metric.prepare(to);
        },
        |row| metric.bias(row),
    )
}

/// Bytes of a gallery that are packed at a time.
const CHUNK_BYTES: usize = 128 << 20;

/// Bytes of packed rows that stay in a core's second cache (1 MiB and more) while other rows pass by.
pub(crate) const BLOCK_BYTES: usize = 768 << 10;

/// Panels of `depth` values a row in [`BLOCK_BYTES`].
pub(crate) fn panels_per_block(depth: usize) -> usize {
    (BLOCK_BYTES / (depth * LANES * size_of::<f32>()).max(1)).max(1)
}
