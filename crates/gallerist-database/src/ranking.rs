//! Search: the server returns candidates, exact scores rank them.
//!
//! A database computes scores in f32. Their last bits depend on the position of a row, and rows with equal
//! scores are returned in an unspecified order. So more candidates than results are requested, their embeddings are
//! fetched (each once), and [`search`](gallerist_retrieval::search::search()) ranks them: scores and
//! order are those of local exact search, to the last bit. If a collection is searched
//! exactly and an item after the last candidate may be as good as the k-th, twice as many are
//! requested.

use std::collections::HashMap;

use gallerist_retrieval::index::IdLists;
use gallerist_retrieval::search::{Metric, SearchOptions, search};
use gallerist_retrieval::{Error as Fault, Matrix, MatrixView};

use crate::collection::{Candidates, Collection};
use crate::layout::CollectionLayout;
use crate::{Error, Result};

/// Candidates beyond the k that are wanted.
const MARGIN: usize = 16;
/// Candidates of all queries of one call.
const RESULTS_PER_CALL: usize = 1 << 17;
/// Bytes of all queries of one call.
const QUERY_BYTES: usize = 8 << 20;
/// Bytes of embeddings that are kept for the queries to come.
const KEPT_BYTES: usize = 512 << 20;
/// A score's relative error in a database: sums of f32 in blocks, and the length of a cosine.
const ERROR: f64 = 1e-5;

/// Embeddings by id.
#[derive(Default)]
struct Embeddings {
    places: HashMap<u64, usize>,
    values: Vec<f32>,
}

/// The lists of checked queries, for a `k` [within the limit](within_limit).
pub(crate) fn ranked<C: Collection>(
    collection: &C,
    queries: MatrixView<'_>,
    k: usize,
    ef: usize,
    filter: &C::Filter,
) -> Result<IdLists> {
    let layout = collection.layout();
    let mut lists = vec![Vec::new(); queries.rows()];
    let mut kept = Embeddings::default();
    let mut limit = (k + MARGIN).min(C::MOST_RESULTS);
    let mut open: Vec<usize> = (0..queries.rows()).collect();
    while !open.is_empty() {
        let mut unclear = Vec::new();
        for rows in open.chunks(queries_per_call(layout, limit)) {
            let proposed = collection.candidates(queries, rows, limit, ef.max(limit), filter)?;
            fetch(collection, &proposed, &mut kept)?;
            for (&row, candidates) in rows.iter().zip(&proposed) {
                let query = MatrixView::new(1, queries.cols(), queries.row(row))?;
                let (list, clear) = rank(layout, query, k, candidates, &kept)?;
                lists[row] = list;
                if !clear && limit < C::MOST_RESULTS {
                    unclear.push(row);
                }
            }
        }
        open = unclear;
        limit = (2 * limit).min(C::MOST_RESULTS);
    }
    if lists.iter().all(Vec::is_empty) && !lists.is_empty() && collection.is_empty()? {
        return Err(Fault::Empty { what: "the index" }.into());
    }
    Ok(IdLists::from_candidates(k, layout.metric, lists))
}

/// `k`, or the number of items where that is less.
pub(crate) fn within_limit<C: Collection>(collection: &C, k: usize) -> Result<usize> {
    if k <= C::MOST_RESULTS {
        return Ok(k);
    }
    let count = collection.count()?;
    if count > C::MOST_RESULTS {
        return Err(Error::Results { system: C::SYSTEM, most: C::MOST_RESULTS, found: k });
    }
    Ok(count.max(1))
}

fn queries_per_call(layout: &CollectionLayout, limit: usize) -> usize {
    let by_bytes = QUERY_BYTES / (layout.dimensions * size_of::<f32>());
    by_bytes.min(RESULTS_PER_CALL / limit).max(1)
}

/// Sees to it that the embeddings of all candidates are there.
fn fetch<C: Collection>(collection: &C, proposed: &[Candidates], kept: &mut Embeddings) -> Result<()> {
    if kept.values.len() * size_of::<f32>() > KEPT_BYTES {
        *kept = Embeddings::default();
    }
    let ids = proposed.iter().flat_map(|candidates| &candidates.ids).copied();
    let mut missing: Vec<u64> = ids.filter(|id| !kept.places.contains_key(id)).collect();
    missing.sort_unstable();
    missing.dedup();
    collection.embeddings(&missing, &mut |id, row| {
        kept.places.insert(id, kept.values.len());
        kept.values.extend_from_slice(row);
    })
}

/// The best `k` of the candidates, and whether no other item can be among them.
fn rank(
    layout: &CollectionLayout,
    query: MatrixView<'_>,
    k: usize,
    candidates: &Candidates,
    kept: &Embeddings,
) -> Result<(Vec<(u64, f32)>, bool)> {
    // One that was removed since has no embedding any more. Equal scores come in the order of
    // rows, so these have the order of ids.
    let mut ids: Vec<u64> =
        candidates.ids.iter().copied().filter(|id| kept.places.contains_key(id)).collect();
    ids.sort_unstable();
    ids.dedup();
    if ids.is_empty() {
        return Ok((vec![], candidates.all));
    }
    let cols = query.cols();
    let mut rows = Vec::with_capacity(ids.len() * cols);
    for id in &ids {
        let at = kept.places[id];
        rows.extend_from_slice(&kept.values[at..at + cols]);
    }
    let rows = Matrix::new(ids.len(), cols, rows)?;
    let options = SearchOptions { metric: layout.metric, ..SearchOptions::new(k) };
    let ranked = search(query, &rows, &options)?;
    let scores = ranked.scores(0);
    let list = ranked.indices(0).iter().zip(scores).map(|(&at, &score)| (ids[at as usize], score)).collect();
    let clear = candidates.all
        || !layout.search.kind().is_exact
        || scores.get(k - 1).is_some_and(|&kth| is_clear(layout.metric, query, &rows, kth, candidates.last));
    Ok((list, clear))
}

/// Whether a k-th score is better than any that the server has ranked at `last` or later, by more
/// than its rounding.
fn is_clear(metric: Metric, query: MatrixView<'_>, rows: &Matrix, kth: f32, last: f64) -> bool {
    let square = |row: &[f32]| row.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>();
    let longest = (0..rows.rows()).map(|row| square(rows.row(row))).fold(0.0, f64::max);
    let kth = f64::from(kth);
    match metric {
        Metric::Cosine => kth - last > ERROR,
        Metric::InnerProduct => kth - last > ERROR * (square(query.row(0)) * longest).sqrt(),
        Metric::Euclidean => last - kth * kth > ERROR * (square(query.row(0)) + longest),
    }
}
