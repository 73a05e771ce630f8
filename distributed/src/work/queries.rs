//! Queries against one shard.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, UInt32Array, UInt64Array};
use gallerist_retrieval::eval::{PlaceCount, QueryCounts};
use gallerist_retrieval::search::{Metric, RankKey, SearchOptions, search_shard};

use crate::job::{Block, Rules};
use crate::shards::{LoadedShard, ShardFile};
use crate::{Error, Result};

/// The rows of the queries. A block of queries that is a part of the shard is read once more: it is small.
fn queries(block: &Block) -> Result<LoadedShard> {
    Ok(LoadedShard::load_counted(&block.file)?.part(block.rows.clone()))
}

pub(super) fn search(
    file: &ShardFile,
    block: &Block,
    (metric, k, one_set): (Metric, usize, bool),
) -> Result<Vec<ArrayRef>> {
    let (queries, shard) = (queries(block)?, LoadedShard::load_counted(file)?);
    let options = SearchOptions { metric, exclude_self: one_set, ..SearchOptions::new(k) };
    let lists =
        search_shard(queries.rows()?, shard.rows()?, &options).map_err(|error| shard.refused(error))?;
    Ok(keys(block, &lists))
}

pub(super) fn relevant(file: &ShardFile, block: &Block, rules: &Rules) -> Result<Vec<ArrayRef>> {
    let (queries, shard) = (queries(block)?, LoadedShard::load_counted(file)?);
    let found = rules.plan()?.relevant_in_shard(queries.labelled()?, shard.labelled()?, rules.one_set);
    Ok(keys(block, &found.map_err(|error| shard.refused(error))?))
}

/// One row per query and key.
fn keys(block: &Block, lists: &[Vec<RankKey>]) -> Vec<ArrayRef> {
    let all = || {
        (block.first() as u32..).zip(lists).flat_map(|(query, keys)| keys.iter().map(move |key| (query, key)))
    };
    vec![
        Arc::new(UInt32Array::from_iter_values(all().map(|(query, _)| query))),
        Arc::new(UInt64Array::from_iter_values(all().map(|(_, key)| key.to_bits()))),
    ]
}

pub(super) fn count(
    file: &ShardFile,
    block: &Block,
    rules: &Rules,
    relevant: &[Vec<u64>],
) -> Result<Vec<ArrayRef>> {
    if relevant.len() != block.rows.len() {
        let problem = format!("the job has keys for {} of {} queries", relevant.len(), block.rows.len());
        return Err(Error::input(problem, None));
    }
    let (queries, shard) = (queries(block)?, LoadedShard::load_counted(file)?);
    let known = |keys: &Vec<u64>| QueryCounts::new(keys.iter().copied().map(RankKey::from_bits).collect());
    let mut counts: Vec<QueryCounts> = relevant.iter().map(known).collect();
    rules
        .plan()?
        .count_in_shard(queries.labelled()?, shard.labelled()?, rules.one_set, &mut counts)
        .map_err(|error| shard.refused(error))?;
    let all = || {
        let queries = (block.first() as u32..).zip(&counts);
        queries.flat_map(|(query, counts)| counts.places().map(move |count| (query, count)))
    };
    let numbers = |of: fn(PlaceCount) -> u32| -> ArrayRef {
        Arc::new(UInt64Array::from_iter_values(all().map(|(_, count)| of(count).into())))
    };
    Ok(vec![
        Arc::new(UInt32Array::from_iter_values(all().map(|(query, _)| query))),
        Arc::new(UInt32Array::from_iter_values(all().map(|(_, count)| count.place))),
        numbers(|count| count.between),
        numbers(|count| count.tied),
        numbers(|count| count.tied_ahead),
    ])
}
