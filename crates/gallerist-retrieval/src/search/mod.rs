//! Exact search: for every query the k best rows of a gallery.
//!
//! Queries and gallery are multiplied tile by tile and each tile is compared with the queries'
//! current k-th scores while it is in the cache, so memory is that of the packed queries, of
//! 128 MiB of the gallery at a time and of `queries * k` candidates, never of
//! `queries * gallery` scores. The gallery may be a [mapped file](crate::file::MappedMatrix) larger
//! than memory. [`Gallery`] packs once for many searches; [`CompactGallery`] takes half or a quarter
//! of the memory and gives the same lists. [`search_groups`] returns groups of rows, [`search_shard`] searches a part of a
//! gallery.

mod best;
mod candidates;
mod compact;
mod forecast;
mod gallery;
mod groups;
mod key;
mod lists;
mod metric;
mod options;
mod pairs;
mod prepare;
mod scorer;
mod shards;
mod split;
mod symmetric;

use std::borrow::Cow;

use crate::product::LANES;
use crate::{Error, MatrixView, Result};
pub(crate) use best::{rank_key, score_of, unrank_key};
pub use compact::{CompactGallery, Measures};
pub use gallery::Gallery;
pub use groups::{GroupScore, search_groups};
pub use key::RankKey;
pub use lists::RankedLists;
pub use metric::Metric;
pub use options::{Filter, SearchOptions};
pub(crate) use pairs::pair_scores;
pub(crate) use prepare::{check_count, check_query, pack_rows, panels_per_block};
use prepare::{pack, pack_unchecked};
pub(crate) use scorer::Scorer;
pub use shards::{merge_lists, search_shard};
pub(crate) use symmetric::rounds;

/// Ranks `gallery` for each of `queries`, on the threads of the current rayon pool.
///
/// The lists are the same, to the last bit, for any number of threads.
///
/// They are those of exact arithmetic, except that two rows may be exchanged if their scores differ by
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

/// Bytes of a gallery that are packed at a time.
const CHUNK_BYTES: usize = 128 << 20;
