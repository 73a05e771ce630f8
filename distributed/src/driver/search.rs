//! Exact search over shards.

use std::path::PathBuf;

use datafusion::arrow::datatypes::{UInt32Type, UInt64Type};
use gallerist_retrieval::search::{Metric, RankKey, RankedLists, SearchOptions, merge_lists};

use super::columns::numbers;
use super::gallery::{Gallery, check_pair};
use super::hash::ResultHash;
use super::{Progress, QUERIES_PER_JOB};
use crate::job::{Block, Job, Work};
use crate::{Engine, Error, Result};

/// What to search for.
#[derive(Clone, Debug)]
pub struct SearchRequest {
    /// A folder of shards, or one file.
    pub gallery: PathBuf,
    /// The queries, in the same form; the rows of the gallery by default, which do not find themselves.
    pub queries: Option<PathBuf>,
    /// Rows per query.
    pub k: usize,
    /// How rows are compared; by default as the files declare, else by the cosine.
    pub metric: Option<Metric>,
    /// Accepts rows of different networks.
    pub force: bool,
}

/// The ranked lists of all queries.
#[derive(Debug)]
pub struct Lists {
    /// What was searched.
    pub gallery: Gallery,
    /// How rows were compared.
    pub metric: Metric,
    /// The lists of at most 16,384 queries each, in the order of the queries.
    pub blocks: Vec<RankedLists>,
    /// The hash of all lists: for each query the length, then row number and score of each place, little-endian.
    pub sha256: String,
}

/// Finds the best `k` rows of the gallery for each query: the lists of
/// [`search`](gallerist_retrieval::search::search()) in the whole gallery, to the last bit.
///
/// Every shard gives its best `k` rows per query; DataFusion keeps the best `k` of them.
///
/// # Errors
/// [`Error::Input`] and [`Error::Retrieval`] for files that do not fit together, and [`Error::Job`].
pub async fn search(engine: &Engine, request: &SearchRequest, progress: &mut dyn Progress) -> Result<Lists> {
    if request.k == 0 {
        return Err(Error::input("a list of 0 rows is asked for", Some("give -k 1 or more")));
    }
    let gallery = Gallery::open(engine, &request.gallery, request.force).await?;
    let queries = match &request.queries {
        Some(path) => Some(Gallery::open(engine, path, request.force).await?),
        None => None,
    };
    if let Some(queries) = &queries {
        check_pair(queries, &gallery, request.metric, request.force)?;
    }
    let one_set = queries.is_none();
    let queries = queries.as_ref().unwrap_or(&gallery);
    let metric = request.metric.or(gallery.metric).or(queries.metric).unwrap_or_default();
    let options = SearchOptions { metric, ..SearchOptions::new(request.k) };
    let (mut blocks, mut hash, mut done) = (Vec::new(), ResultHash::default(), 0);
    for block in Block::of(&queries.files, QUERIES_PER_JOB) {
        let lists = search_block(engine, &gallery, &block, one_set, &options).await?;
        for (rows, scores) in lists.iter() {
            hash.add(&(rows.len() as u64).to_le_bytes());
            for (row, score) in rows.iter().zip(scores) {
                hash.add(&row.to_le_bytes());
                hash.add(&score.to_bits().to_le_bytes());
            }
        }
        blocks.push(lists);
        done += block.rows.len();
        progress.done(done, queries.rows);
    }
    Ok(Lists { gallery, metric, blocks, sha256: hash.digits() })
}

async fn search_block(
    engine: &Engine,
    gallery: &Gallery,
    block: &Block,
    one_set: bool,
    options: &SearchOptions<'_>,
) -> Result<RankedLists> {
    let (metric, k) = (options.metric, options.k);
    let work = Work::Search { queries: block.clone(), metric, k, one_set };
    let job = Job { gallery: gallery.files.clone(), work, relevant: Vec::new() };
    let best = format!(
        "SELECT query, key FROM (SELECT query, key, ROW_NUMBER() OVER (PARTITION BY query ORDER BY key DESC) AS place \
         FROM found) WHERE place <= {k}"
    );
    let keys = keys_by_query(&engine.run(job, &best).await?, block)?;
    Ok(merge_lists(keys, options))
}

/// The keys of each query of a block.
pub(super) fn keys_by_query(
    batches: &[datafusion::arrow::record_batch::RecordBatch],
    block: &Block,
) -> Result<Vec<Vec<RankKey>>> {
    let mut lists = vec![Vec::new(); block.rows.len()];
    for batch in batches {
        let queries = numbers::<UInt32Type>(batch, "query")?.values();
        let keys = numbers::<UInt64Type>(batch, "key")?.values();
        for (&query, &key) in queries.iter().zip(keys) {
            list_of(&mut lists, block, query)?.push(RankKey::from_bits(key));
        }
    }
    Ok(lists)
}

/// What is kept of query number `query`.
pub(super) fn list_of<'a, T>(lists: &'a mut [T], block: &Block, query: u32) -> Result<&'a mut T> {
    let place = (query as usize).checked_sub(block.first());
    place.and_then(|place| lists.get_mut(place)).ok_or_else(|| {
        Error::input(format!("a job gave a result for query {query}, which it was not asked for"), None)
    })
}
