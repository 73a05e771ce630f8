//! Search: Milvus returns candidates, exact scores rank them.
//!
//! Milvus computes scores in f32. Their last bits depend on the position of a row, and rows with equal
//! scores are returned in an unspecified order. So more candidates than results are requested, their embeddings are
//! fetched (each once), and [`search`](gallerist_retrieval::search::search()) ranks them: scores and
//! order are those of local exact search, to the last bit. If a collection is searched
//! exactly and an item after the last candidate may be as good as the k-th, twice as many are
//! requested.

use std::collections::HashMap;

use gallerist_retrieval::index::{IdLists, ItemFilter};
use gallerist_retrieval::search::{Metric, SearchOptions, search};
use gallerist_retrieval::{Error as Fault, Matrix, MatrixView};
use prost::Message;

use crate::Result;
use crate::index::{MAX_RESULTS, MilvusIndex};
use crate::layout::{self, Search};
use crate::wire::messages as wire;
use crate::wire::schema::KeyValuePair;

/// Candidates beyond the k that are wanted.
const MARGIN: usize = 16;
/// Candidates of all queries of one call.
const RESULTS_PER_CALL: usize = 1 << 17;
/// Bytes of all queries of one call.
const QUERY_BYTES: usize = 8 << 20;
/// Bytes of embeddings that are kept for the queries to come.
const KEPT_BYTES: usize = 512 << 20;
/// A score's relative error in Milvus: sums of f32 in blocks.
const ERROR: f64 = 1e-5;

/// What Milvus proposes for one query.
struct Candidates {
    ids: Vec<u64>,
    /// Its score of the last, as Milvus writes it: the squared distance for the metric L2.
    last: f64,
    /// There are no others.
    all: bool,
}

/// Embeddings by id.
#[derive(Default)]
struct Embeddings {
    places: HashMap<u64, usize>,
    values: Vec<f32>,
}

impl MilvusIndex {
    /// The lists of checked queries.
    pub(crate) fn ranked(&self, queries: MatrixView<'_>, k: usize, filter: &ItemFilter) -> Result<IdLists> {
        let k = self.within_limit(k)?;
        let filter = self.expression(filter)?;
        let mut lists = vec![Vec::new(); queries.rows()];
        let mut kept = Embeddings::default();
        let mut limit = (k + MARGIN).min(MAX_RESULTS);
        let mut open: Vec<usize> = (0..queries.rows()).collect();
        while !open.is_empty() {
            let mut unclear = Vec::new();
            for rows in open.chunks(self.queries_per_call(limit)) {
                let proposed = self.candidates(queries, rows, limit, &filter)?;
                self.fetch(&proposed, &mut kept)?;
                for (&row, candidates) in rows.iter().zip(&proposed) {
                    let query = MatrixView::new(1, queries.cols(), queries.row(row))?;
                    let (list, clear) = self.rank(query, k, candidates, &kept)?;
                    lists[row] = list;
                    if !clear && limit < MAX_RESULTS {
                        unclear.push(row);
                    }
                }
            }
            open = unclear;
            limit = (2 * limit).min(MAX_RESULTS);
        }
        if lists.iter().all(Vec::is_empty) && !lists.is_empty() && self.count()? == 0 {
            return Err(Fault::Empty { what: "the index" }.into());
        }
        Ok(IdLists::from_candidates(k, self.layout.metric, lists))
    }

    /// `k`, or the number of items where that is less.
    fn within_limit(&self, k: usize) -> Result<usize> {
        if k <= MAX_RESULTS {
            return Ok(k);
        }
        let count = self.count()?;
        if count > MAX_RESULTS {
            let wanted = "at most 16,384 for a collection of Milvus";
            return Err(Fault::Option { option: "k", wanted, found: k.to_string() }.into());
        }
        Ok(count.max(1))
    }

    fn queries_per_call(&self, limit: usize) -> usize {
        let by_bytes = QUERY_BYTES / (self.layout.dimensions * size_of::<f32>());
        by_bytes.min(RESULTS_PER_CALL / limit).max(1)
    }

    /// Asks Milvus for `limit` candidates for each of the rows of `queries` named.
    fn candidates(
        &self,
        queries: MatrixView<'_>,
        rows: &[usize],
        limit: usize,
        filter: &str,
    ) -> Result<Vec<Candidates>> {
        let bytes = |&row: &usize| queries.row(row).iter().flat_map(|value| value.to_le_bytes()).collect();
        let vectors = wire::PlaceholderValue {
            tag: "$0".to_owned(),
            kind: wire::FLOAT_VECTORS,
            values: rows.iter().map(bytes).collect(),
        };
        let params = match self.layout.search {
            Search::Flat => "{}".to_owned(),
            Search::Hnsw { .. } => serde_json::json!({ "ef": self.ef.max(limit) }).to_string(),
        };
        let request = wire::SearchRequest {
            collection_name: self.client.collection(),
            dsl: filter.to_owned(),
            placeholder_group: wire::PlaceholderGroup { placeholders: vec![vectors] }.encode_to_vec(),
            dsl_type: wire::EXPRESSION,
            output_fields: vec![],
            search_params: vec![
                KeyValuePair::new("anns_field", layout::EMBEDDING),
                KeyValuePair::new("topk", limit),
                KeyValuePair::new("params", params),
                KeyValuePair::new("metric_type", layout::metric_name(self.layout.metric)),
                KeyValuePair::new("round_decimal", -1),
            ],
            guarantee_timestamp: self.time(),
            nq: rows.len() as i64,
            consistency_level: wire::SESSION,
        };
        let answer: wire::SearchResults = self.client.call("Search", &request, "search")?;
        self.split(&answer, rows.len(), limit)
            .ok_or_else(|| self.client.answer(format!("wanted ids and scores for {} queries", rows.len())))
    }

    /// The answer, query by query; `None` when it does not add up.
    fn split(&self, answer: &wire::SearchResults, queries: usize, limit: usize) -> Option<Vec<Candidates>> {
        let none = || Candidates { ids: vec![], last: 0.0, all: true };
        let results = answer.results.as_ref()?;
        if results.topks.is_empty() && results.scores.is_empty() {
            return Some((0..queries).map(|_| none()).collect());
        }
        let ids =
            results.ids.as_ref().and_then(|ids| ids.longs.as_ref()).map_or(&[][..], |longs| &longs.data);
        let mut at = 0usize;
        let lists: Vec<Candidates> = results
            .topks
            .iter()
            .map(|&count| {
                let range = at..at.checked_add(usize::try_from(count).ok()?)?;
                at = range.end;
                let ids: Vec<u64> = ids.get(range.clone())?.iter().map(|&key| layout::id(key)).collect();
                let Some(&last) = results.scores.get(range)?.last() else { return Some(none()) };
                Some(Candidates { all: ids.len() < limit, last: f64::from(last), ids })
            })
            .collect::<Option<_>>()?;
        (lists.len() == queries && at == ids.len()).then_some(lists)
    }

    /// Sees to it that the embeddings of all candidates are there.
    fn fetch(&self, proposed: &[Candidates], kept: &mut Embeddings) -> Result<()> {
        if kept.values.len() * size_of::<f32>() > KEPT_BYTES {
            *kept = Embeddings::default();
        }
        let ids = proposed.iter().flat_map(|candidates| &candidates.ids).copied();
        let mut missing: Vec<u64> = ids.filter(|id| !kept.places.contains_key(id)).collect();
        missing.sort_unstable();
        missing.dedup();
        let dimensions = self.layout.dimensions;
        self.look_up(&missing, &[layout::EMBEDDING], |rows| {
            let values = rows.embeddings(dimensions)?;
            for (id, row) in rows.ids().zip(values.chunks_exact(dimensions)) {
                kept.places.insert(id, kept.values.len());
                kept.values.extend_from_slice(row);
            }
            Some(())
        })
    }

    /// The best `k` of the candidates, and whether no other item can be among them.
    fn rank(
        &self,
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
        let options = SearchOptions { metric: self.layout.metric, ..SearchOptions::new(k) };
        let ranked = search(query, &rows, &options)?;
        let scores = ranked.scores(0);
        let list =
            ranked.indices(0).iter().zip(scores).map(|(&at, &score)| (ids[at as usize], score)).collect();
        let clear = candidates.all
            || !self.layout.search.kind().is_exact
            || scores.get(k - 1).is_some_and(|&kth| self.is_clear(query, &rows, kth, candidates.last));
        Ok((list, clear))
    }

    /// Whether a k-th score is better than any that Milvus has ranked at `last` or later, by more
    /// than its rounding.
    fn is_clear(&self, query: MatrixView<'_>, rows: &Matrix, kth: f32, last: f64) -> bool {
        let square = |row: &[f32]| row.iter().map(|&value| f64::from(value).powi(2)).sum::<f64>();
        let longest = (0..rows.rows()).map(|row| square(rows.row(row))).fold(0.0, f64::max);
        let kth = f64::from(kth);
        match self.layout.metric {
            Metric::Cosine => kth - last > ERROR,
            Metric::InnerProduct => kth - last > ERROR * (square(query.row(0)) * longest).sqrt(),
            Metric::Euclidean => last - kth * kth > ERROR * (square(query.row(0)) + longest),
        }
    }
}
