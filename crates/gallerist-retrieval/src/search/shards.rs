//! Exact search in a gallery that is stored in shards.

use super::key::RankKey;
use super::lists::RankedLists;
use super::options::SearchOptions;
use crate::shard_rows::ShardRows;
use crate::{Error, Result};

/// The best `k` rows of one shard for each of `queries`, with their numbers in the whole gallery, the best first.
///
/// The lists of [`search`](super::search()) in the whole gallery are the best of the lists of its shards, to the
/// last bit: [`merge_lists`]. `exclude_self` and `filter` of the options take the numbers in the whole sets.
///
/// ```
/// use gallerist_retrieval::search::{SearchOptions, merge_lists, search, search_shard};
/// use gallerist_retrieval::{Matrix, ShardRows};
///
/// let gallery = Matrix::new(4, 1, vec![0.5, -1.0, 2.0, -2.0])?;
/// let queries = Matrix::new(1, 1, vec![1.0])?;
/// let options = SearchOptions::new(3);
/// let found = [0..2, 2..4].map(|rows| {
///     let part = gallery.select(&rows.clone().collect::<Vec<_>>());
///     search_shard(ShardRows::new(&queries, 0)?, ShardRows::new(&part, rows.start)?, &options)
/// });
/// let mut keys = vec![Vec::new()];
/// for lists in found {
///     keys[0].extend(lists?.remove(0));
/// }
/// assert_eq!(merge_lists(keys, &options), search(&queries, &gallery, &options)?);
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
///
/// # Errors
/// As [`search`](super::search()). A shard without rows gives empty lists.
pub fn search_shard(
    queries: ShardRows,
    gallery: ShardRows,
    options: &SearchOptions,
) -> Result<Vec<Vec<RankKey>>> {
    let (rows, cols) = (gallery.embeddings.rows(), gallery.embeddings.cols());
    if rows == 0 {
        return Ok(vec![Vec::new(); queries.embeddings.rows()]);
    }
    if queries.embeddings.cols() != cols {
        return Err(Error::Dimensions { queries: queries.embeddings.cols(), gallery: cols });
    }
    let admits = |query: usize, item: usize| options.admits(queries.first + query, gallery.first + item);
    let everything = !options.exclude_self && options.filter.is_none();
    let filter = (!everything).then_some(&admits as super::Filter);
    let within = SearchOptions { exclude_self: false, filter, ..*options };
    let lists = super::search(queries.embeddings, gallery.embeddings, &within)?;
    let number = |&row: &u32| gallery.first as u32 + row;
    let keys = lists.iter().map(|(rows, scores)| {
        let found = rows.iter().map(number).zip(scores);
        found.map(|(row, &score)| RankKey::new(score, row, options.metric)).collect()
    });
    Ok(keys.collect())
}

/// The ranked lists of the whole gallery: of the keys that the shards gave for each query, the best `k`.
pub fn merge_lists(keys: Vec<Vec<RankKey>>, options: &SearchOptions) -> RankedLists {
    let best = |mut keys: Vec<RankKey>| {
        keys.sort_unstable_by(|a, b| b.cmp(a));
        keys.truncate(options.k);
        keys.into_iter().map(RankKey::to_bits).collect()
    };
    let lists = keys.into_iter().map(best).collect();
    RankedLists::from_keys(options.k, lists, |score| options.metric.present(score))
}
