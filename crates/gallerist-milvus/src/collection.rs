//! A collection of a Milvus server.

use std::sync::atomic::{AtomicU64, Ordering};

use gallerist_database::row;
use gallerist_database::{
    Candidates, Client, Collection, CollectionLayout, Error, MILVUS, Result, Search, Stored, System,
};
use gallerist_retrieval::columns::{ColumnKind, Columns};
use gallerist_retrieval::condition::Condition;
use gallerist_retrieval::index::{Among, Item, ItemFilter, Items, Origin};
use gallerist_retrieval::{EmbeddingSet, Matrix, MatrixView};
use prost::Message;

use crate::layout::{self, Kept, Rows};
use crate::wire::messages as wire;
use crate::wire::schema::KeyValuePair;
use crate::wire::status::Status;
use crate::{columns, condition, filter};

/// A collection of a Milvus server that keeps a gallery.
pub struct MilvusCollection {
    client: Client,
    layout: CollectionLayout,
    /// What the collection keeps of an item.
    pub(crate) kept: Kept,
    /// The time of the last write that a search must see.
    seen: AtomicU64,
}

impl MilvusCollection {
    fn must_see(&self, time: u64) {
        self.seen.fetch_max(time, Ordering::Relaxed);
    }

    /// The time up to which a search must see all writes.
    fn time(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    fn describe(&self) -> Result<wire::DescribeCollectionResponse> {
        describe(&self.client)
    }

    fn alter(&self, properties: Vec<KeyValuePair>, action: &'static str) -> Result<()> {
        let request = wire::AlterCollectionRequest { collection_name: self.client.collection(), properties };
        let _: Status = self.client.call("AlterCollection", &request, action)?;
        Ok(())
    }

    /// Requests fields of all items that match `expr`, and passes each answer to `take`; `None` from it means that a
    /// field is missing.
    ///
    /// An answer has the lowest ids, but it may be shorter than asked for although there are more: it ends where one of
    /// the segments that the server merges ends. Only an empty answer is the last.
    fn scan(&self, expr: &str, fields: &[&str], mut take: impl FnMut(&Rows) -> Option<()>) -> Result<()> {
        let params = [
            KeyValuePair::new("limit", SCANNED),
            // Without it a server with several parts of a collection may leave out some of the lowest.
            KeyValuePair::new("reduce_stop_for_best", "True"),
        ];
        let mut last = layout::BELOW_ALL_KEYS;
        loop {
            let answer = self.query(filter::above(last, expr), fields, &params)?;
            let rows = Rows::new(&answer.fields_data);
            let taken = rows.as_ref().and_then(|rows| take(rows).map(|()| rows.keys()));
            let keys = taken
                .ok_or_else(|| self.client.answer(format!("wanted the fields {}", fields.join(", "))))?;
            let Some(highest) = keys.iter().max() else { return Ok(()) };
            if *highest <= last {
                let problem = "it returned items again, in place of those with higher ids".to_owned();
                return Err(self.client.answer(problem));
            }
            last = *highest;
        }
    }

    /// Requests fields of the items that match `expr`.
    fn query(&self, expr: String, fields: &[&str], params: &[KeyValuePair]) -> Result<wire::QueryResults> {
        let request = wire::QueryRequest {
            collection_name: self.client.collection(),
            expr,
            output_fields: fields.iter().map(|&field| field.to_owned()).collect(),
            guarantee_timestamp: self.time(),
            query_params: params.to_vec(),
            consistency_level: wire::SESSION,
        };
        self.client.call("Query", &request, "look items up")
    }

    /// Requests fields of the items with these ids, some hundred at a time, and passes each answer
    /// to `take`; `None` from it means that a field is missing.
    fn look_up(&self, ids: &[u64], fields: &[&str], mut take: impl FnMut(&Rows) -> Option<()>) -> Result<()> {
        for ids in ids.chunks(self.layout.rows_per_call()) {
            let answer = self.query(filter::ids(ids), fields, &[])?;
            Rows::new(&answer.fields_data).and_then(|rows| take(&rows)).ok_or_else(|| {
                self.client.answer(format!("wanted the fields {}, one value per item", fields.join(", ")))
            })?;
        }
        Ok(())
    }

    /// The number of items that the server says; 0 is certain.
    fn claimed_count(&self) -> Result<usize> {
        let answer = self.query(String::new(), &[COUNT], &[])?;
        let count = answer.fields_data.first().and_then(|column| column.as_longs()?.first().copied());
        let count = count.and_then(|count| usize::try_from(count).ok());
        count.ok_or_else(|| self.client.answer("wanted the number of items".to_owned()))
    }

    /// The answer to a search, query by query; `None` when it does not add up.
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
}

/// Items per call when all items are requested.
const SCANNED: usize = 8192;

/// What Milvus calls the number of items.
const COUNT: &str = "count(*)";

/// The server's time, later than that of everything it has acknowledged.
fn now(client: &Client) -> Result<u64> {
    let answer: wire::AllocTimestampResponse =
        client.call("AllocTimestamp", &wire::AllocTimestampRequest {}, "say the time")?;
    Ok(answer.timestamp)
}

fn describe(client: &Client) -> Result<wire::DescribeCollectionResponse> {
    let here = wire::CollectionRequest { collection_name: client.collection() };
    client.call("DescribeCollection", &here, "describe the collection")
}

fn indices(client: &Client) -> Result<Vec<wire::IndexDescription>> {
    let request = wire::DescribeIndexRequest {
        collection_name: client.collection(),
        field_name: layout::EMBEDDING.to_owned(),
    };
    match client.call::<wire::DescribeIndexResponse>("DescribeIndex", &request, "describe the index") {
        Ok(answer) => Ok(answer.index_descriptions),
        Err(Error::Refused { reason, .. }) if reason.contains("index not found") => Ok(vec![]),
        Err(error) => Err(error),
    }
}

/// A write is seen by every search that follows it: each names the time of the last one. Milvus logs what it acknowledges;
/// it outlives a crash of the server.
impl Collection for MilvusCollection {
    const SYSTEM: &'static System = &MILVUS;
    const MOST_DIMENSIONS: usize = layout::MAX_DIMENSIONS;
    const MOST_RESULTS: usize = 16_384;
    /// An expression; empty for every item.
    type Filter = String;

    fn greet(client: &Client) -> Result<()> {
        let request = wire::GetVersionRequest {};
        client.greet("GetVersion", &request, |answer: &wire::GetVersionResponse| &answer.version)
    }

    fn create(client: &Client, layout: &CollectionLayout) -> Result<()> {
        let collection_name = client.collection();
        let here = wire::CollectionRequest { collection_name: collection_name.clone() };
        let exists: wire::BoolResponse = client.call("HasCollection", &here, "look for a collection")?;
        if !exists.value {
            let request = wire::CreateCollectionRequest {
                schema: layout::schema(layout, &collection_name).encode_to_vec(),
                collection_name: collection_name.clone(),
                shards_num: 1,
                consistency_level: wire::SESSION,
                properties: layout::properties(),
            };
            let _: Status = client.call("CreateCollection", &request, "make the collection")?;
        }
        // A crash may have come between the collection and its index.
        if !exists.value || indices(client)?.is_empty() {
            let request = wire::CreateIndexRequest {
                collection_name,
                field_name: layout::EMBEDDING.to_owned(),
                extra_params: layout::index_params(layout),
                index_name: layout::EMBEDDING.to_owned(),
            };
            let _: Status = client.call("CreateIndex", &request, "make the index")?;
        }
        Ok(())
    }

    fn open(client: Client) -> Result<Self> {
        let description = describe(&client)?;
        let layout =
            layout::read(&description, &indices(&client)?).map_err(|problem| client.foreign(problem))?;
        let request = wire::LoadCollectionRequest { collection_name: client.collection(), replica_number: 1 };
        let _: Status = client.call("LoadCollection", &request, "load the collection")?;
        let request = wire::GetLoadStateRequest { collection_name: client.collection() };
        client.wait_until(
            || {
                let answer: wire::GetLoadStateResponse =
                    client.call("GetLoadState", &request, "say whether the collection is loaded")?;
                Ok(answer.state == wire::LOADED)
            },
            "the collection is not loaded yet",
        )?;
        let seen = AtomicU64::new(now(&client)?);
        let kept = Kept::of(&description);
        Ok(Self { client, layout, kept, seen })
    }

    fn drop_collection(&self) -> Result<()> {
        let here = wire::CollectionRequest { collection_name: self.client.collection() };
        let _: Status = self.client.call("DropCollection", &here, "remove the collection")?;
        Ok(())
    }

    fn client(&self) -> &Client {
        &self.client
    }

    fn layout(&self) -> &CollectionLayout {
        &self.layout
    }

    /// One of version 1 has no sources, and so the ids of version 1.
    fn keeps_sources(&self) -> bool {
        self.kept.sources
    }

    fn rows_to_index(&self) -> Result<usize> {
        Ok(indices(&self.client)?.iter().map(|index| index.pending_rows.max(0) as usize).sum())
    }

    fn origin(&self) -> Result<Origin> {
        Ok(layout::origin(&self.describe()?))
    }

    fn note(&self, items: &Items, is_first: bool) -> Result<()> {
        let set = items.set();
        if is_first {
            self.alter(layout::origin_properties(set), "note the origin")?;
        }
        if set.columns.is_empty() {
            return Ok(());
        }
        // Another program may replace the list by one that it has read before: then it is extended again.
        loop {
            let described = self.describe()?;
            let known = layout::get(&described.properties, columns::PROPERTY);
            let Some(list) = columns::joined(known, &set.columns) else { return Ok(()) };
            self.alter(vec![KeyValuePair::new(columns::PROPERTY, list)], "note the columns")?;
        }
    }

    fn check(&self, items: &Items) -> Result<()> {
        row::check_texts(items, Some(layout::TEXT_LIMIT))?;
        layout::check_lengths(items, self.layout.metric)?;
        layout::check_columns(items, self.kept)
    }

    fn send(&self, items: &Items, rows: &[usize], digests: &[i64]) -> Result<()> {
        let request = wire::UpsertRequest {
            collection_name: self.client.collection(),
            fields_data: layout::fields(items, rows, digests, self.kept),
            num_rows: rows.len() as u32,
        };
        let answer: wire::MutationResult = self.client.call("Upsert", &request, "take items")?;
        if !answer.failed.is_empty() || answer.upserted != rows.len() as i64 {
            return Err(self.client.answer(format!(
                "it took {} of {} items, and refused {}",
                answer.upserted,
                rows.len(),
                answer.failed.len()
            )));
        }
        self.must_see(answer.timestamp);
        Ok(())
    }

    fn delete(&self, ids: &[u64]) -> Result<()> {
        let request =
            wire::DeleteRequest { collection_name: self.client.collection(), expr: filter::ids(ids) };
        let _: wire::MutationResult = self.client.call("Delete", &request, "remove items")?;
        // Milvus 2.3 does not say when it removed them.
        self.must_see(now(&self.client)?);
        Ok(())
    }

    /// Makes Milvus write its memory to its storage, and waits for it.
    fn flush(&self) -> Result<()> {
        let collection_name = self.client.collection();
        let request = wire::FlushRequest { collection_names: vec![collection_name.clone()] };
        let answer: wire::FlushResponse = self.client.call("Flush", &request, "flush the collection")?;
        let segments = answer.segments.into_iter().filter_map(|entry| entry.segments);
        let request = wire::GetFlushStateRequest {
            segments: segments.flat_map(|segments| segments.data).collect(),
            time: answer.times.first().map_or(0, |entry| entry.time),
            collection_name,
        };
        self.client.wait_until(
            || {
                let answer: wire::BoolResponse =
                    self.client.call("GetFlushState", &request, "say whether it has flushed")?;
                Ok(answer.value)
            },
            "the collection is not flushed yet",
        )
    }

    /// The server's own number has items that were replaced or removed, until it merges its segments; up
    /// to 8,192 items are counted here.
    fn count(&self) -> Result<usize> {
        let claimed = self.claimed_count()?;
        if claimed > SCANNED {
            return Ok(claimed);
        }
        let mut count = 0;
        self.scan("", &[layout::ID], |rows| {
            count += rows.keys().len();
            Some(())
        })?;
        Ok(count)
    }

    fn is_empty(&self) -> Result<bool> {
        Ok(self.claimed_count()? == 0 || self.count()? == 0)
    }

    fn items(&self, ids: &[u64]) -> Result<Vec<Item>> {
        let mut found = Vec::new();
        self.look_up(ids, &self.kept.fields(), |rows| {
            found.extend(rows.items(self.layout.dimensions)?);
            Some(())
        })?;
        Ok(found)
    }

    fn which(&self, ids: &[u64]) -> Result<Vec<u64>> {
        let mut there = Vec::new();
        self.look_up(ids, &[layout::ID], |rows| {
            there.extend(rows.ids());
            Some(())
        })?;
        Ok(there)
    }

    fn stored(&self, ids: &[u64], with_origin: bool) -> Result<Vec<Stored>> {
        let mut stored = Vec::new();
        let fields: &[&str] = match with_origin {
            true => &[layout::DIGEST, layout::PATH, layout::SOURCE],
            false => &[layout::DIGEST],
        };
        self.look_up(ids, fields, |rows| {
            let digests = rows.longs(layout::DIGEST)?;
            let start = stored.len();
            stored.extend(rows.ids().zip(digests).map(|(id, &digest)| Stored {
                id,
                digest,
                path: None,
                source: None,
            }));
            if with_origin {
                let (paths, sources) = (rows.texts(layout::PATH)?, rows.texts(layout::SOURCE)?);
                for ((one, path), source) in stored[start..].iter_mut().zip(paths).zip(sources) {
                    (one.path, one.source) = (path, source);
                }
            }
            Some(())
        })?;
        Ok(stored)
    }

    fn embeddings(&self, ids: &[u64], take: &mut dyn FnMut(u64, &[f32])) -> Result<()> {
        let dimensions = self.layout.dimensions;
        self.look_up(ids, &[layout::EMBEDDING], |rows| {
            let values = rows.embeddings(dimensions)?;
            rows.ids().zip(values.chunks_exact(dimensions)).for_each(|(id, row)| take(id, row));
            Some(())
        })
    }

    fn labels(&self, filter: &String) -> Result<Vec<(u64, Option<String>)>> {
        let mut found = Vec::new();
        self.scan(filter, &[layout::ID, layout::LABEL], |rows| {
            found.extend(rows.ids().zip(rows.texts(layout::LABEL)?));
            Some(())
        })?;
        Ok(found)
    }

    fn table(&self) -> Result<(Vec<u64>, EmbeddingSet)> {
        let (mut ids, mut rows_of_columns) = (Vec::new(), Vec::new());
        let mut texts = [layout::LABEL, layout::PATH, layout::CAMERA].map(|name| (name, Vec::new()));
        let mut fields = vec![layout::ID, layout::LABEL, layout::PATH, layout::CAMERA];
        fields.extend(self.kept.columns.then_some(layout::COLUMNS));
        self.scan("", &fields, |rows| {
            ids.extend(rows.ids());
            for (name, list) in &mut texts {
                list.extend(rows.texts(name)?.map(Option::unwrap_or_default));
            }
            if self.kept.columns {
                rows_of_columns.extend(rows.columns()?);
            }
            Some(())
        })?;
        let [labels, paths, cameras] =
            texts.map(|(_, list): (_, Vec<String>)| list.iter().any(|text| !text.is_empty()).then_some(list));
        let columns = Columns::of_rows(&self.columns()?, &rows_of_columns);
        let table = Matrix::new(ids.len(), 0, Vec::new())?;
        Ok((ids, EmbeddingSet { labels, paths, cameras, columns, ..table.into() }))
    }

    fn columns(&self) -> Result<Vec<(String, ColumnKind)>> {
        let described = self.describe()?;
        Ok(columns::listed(layout::get(&described.properties, columns::PROPERTY)))
    }

    fn filter(filter: &ItemFilter) -> String {
        filter::expression(filter)
    }

    fn condition(&self, condition: &Condition) -> Result<Option<String>> {
        if !self.kept.columns {
            return Ok(None);
        }
        let described = self.describe()?;
        let columns = columns::uniform(layout::get(&described.properties, columns::PROPERTY));
        Ok(condition::expression(condition, columns))
    }

    fn among(ids: &Among<u64>) -> String {
        filter::among(ids)
    }

    fn both(one: String, other: String) -> String {
        filter::both(&one, &other)
    }

    fn candidates(
        &self,
        queries: MatrixView<'_>,
        rows: &[usize],
        limit: usize,
        ef: usize,
        filter: &String,
    ) -> Result<Vec<Candidates>> {
        let bytes = |&row: &usize| queries.row(row).iter().flat_map(|value| value.to_le_bytes()).collect();
        let vectors = wire::PlaceholderValue {
            tag: "$0".to_owned(),
            kind: wire::FLOAT_VECTORS,
            values: rows.iter().map(bytes).collect(),
        };
        let params = match self.layout.search {
            Search::Flat => "{}".to_owned(),
            Search::Hnsw { .. } => serde_json::json!({ "ef": ef }).to_string(),
        };
        let request = wire::SearchRequest {
            collection_name: self.client.collection(),
            dsl: filter.clone(),
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
}
