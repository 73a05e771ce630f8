//! A shard against other shards of its set.

use std::sync::Arc;

use datafusion::arrow::array::{ArrayRef, Float32Array, UInt32Array};
use gallerist_retrieval::Matrix;
use gallerist_retrieval::issues::{DuplicatePair, IssueOptions, duplicate_pairs, scaled_shard};
use gallerist_retrieval::search::{Metric, RankKey, SearchOptions, search_shard};

use crate::job::partners;
use crate::shards::{LoadedShard, ShardFile};
use crate::{Error, Result};

/// A shard in the form in which duplicates are compared.
pub(super) struct Scaled {
    pub(super) shard: LoadedShard,
    pub(super) rows: Matrix,
}

impl Scaled {
    pub(super) fn load(file: &ShardFile, metric: Metric) -> Result<Self> {
        let shard = LoadedShard::load_counted(file)?;
        let options = IssueOptions { metric, ..IssueOptions::default() };
        let rows = scaled_shard(&shard.set().embeddings, &options).map_err(|error| shard.refused(error))?;
        let rows = rows.into_owned();
        Ok(Self { shard, rows })
    }
}

pub(super) fn nearest(files: &[ShardFile], at: usize, metric: Metric) -> Result<Vec<ArrayRef>> {
    let own = Scaled::load(&files[at], metric)?;
    let options = SearchOptions { metric: Metric::Euclidean, exclude_self: true, ..SearchOptions::new(1) };
    let queries = own.shard.rows_of(&own.rows)?;
    let mut best: Vec<Option<RankKey>> = vec![None; own.rows.rows()];
    let mut compare = |other: &Scaled| -> Result<()> {
        let lists = search_shard(queries, other.shard.rows_of(&other.rows)?, &options);
        for (best, keys) in best.iter_mut().zip(lists.map_err(|error| other.shard.refused(error))?) {
            *best = (*best).max(keys.first().copied());
        }
        Ok(())
    };
    compare(&own)?;
    for file in files.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, file)| file) {
        compare(&Scaled::load(file, metric)?)?;
    }
    let distance = |key: &Option<RankKey>| match key {
        Some(key) => Ok(key.score(Metric::Euclidean)),
        None => Err(Error::input("duplicates are pairs, and the set has one row", None)),
    };
    let distances = best.iter().map(distance).collect::<Result<Vec<f32>>>()?;
    Ok(vec![Arc::new(Float32Array::from(distances))])
}

pub(super) fn pairs(files: &[ShardFile], at: usize, metric: Metric, largest: f64) -> Result<Vec<ArrayRef>> {
    let own = Scaled::load(&files[at], metric)?;
    let rows = own.shard.rows_of(&own.rows)?;
    let mut found = duplicate_pairs(rows, None, largest).map_err(|error| own.shard.refused(error))?;
    for other in partners(at, files.len()) {
        let other = Scaled::load(&files[other], metric)?;
        let pairs = duplicate_pairs(rows, Some(other.shard.rows_of(&other.rows)?), largest);
        found.extend(pairs.map_err(|error| other.shard.refused(error))?);
    }
    let numbers = |of: fn(&DuplicatePair) -> u32| -> ArrayRef {
        Arc::new(UInt32Array::from_iter_values(found.iter().map(of)))
    };
    Ok(vec![
        numbers(|pair| pair.a),
        numbers(|pair| pair.b),
        Arc::new(Float32Array::from_iter_values(found.iter().map(|pair| pair.distance))),
    ])
}
