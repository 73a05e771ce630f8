//! A collection as an index.

use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};

use gallerist_retrieval as retrieval;
use gallerist_retrieval::columns::{ColumnKind, Columns};
use gallerist_retrieval::condition::Condition;
use gallerist_retrieval::index::{IdLists, Index, IndexInfo, Item, ItemFilter, Items, Origin, check_queries};
use gallerist_retrieval::{EmbeddingSet, Error as Fault, Matrix, MatrixView};
use prost::Message;

use crate::client::{Client, ConnectOptions};
use crate::layout::{self, CollectionLayout, Kept, Rows};
use crate::wire::messages as wire;
use crate::wire::schema::KeyValuePair;
use crate::{Address, Error, Result, columns, condition, filter};

/// A gallery in a collection of a Milvus server.
///
/// A search reflects the changes by this value, and everything that was acknowledged before it was
/// opened; changes by other programs become visible a fraction of a second later. Milvus logs what it
/// acknowledges; it outlives a crash of the server.
///
/// ```no_run
/// use gallerist_milvus::{ConnectOptions, CollectionLayout, MilvusIndex, Search};
/// use gallerist_retrieval::index::{Index, ItemFilter, Items};
/// use gallerist_retrieval::{EmbeddingSet, search::Metric};
///
/// let set = EmbeddingSet::load("gallery.safetensors")?;
/// let address = "milvus://localhost:19530/birds".parse()?;
/// let layout = CollectionLayout { dimensions: set.embeddings.cols(), metric: Metric::Cosine, search: Search::Flat };
/// let mut index = MilvusIndex::create(&address, &layout, ConnectOptions::default())?;
/// let items = Items::from_set(set)?;
/// let pushed = index.push(&items, false, &mut |done| eprintln!("{} of {}", done.items, items.len()))?;
/// println!("{} sent, {} were there", pushed.sent, pushed.unchanged);
///
/// let queries = EmbeddingSet::load("queries.safetensors")?.embeddings;
/// let lists = index.search(queries.view(), 10, &ItemFilter::default().label_not_in(["heron"]))?;
/// println!("{:?}", lists.ids(0));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct MilvusIndex {
    pub(crate) client: Client,
    pub(crate) layout: CollectionLayout,
    /// What the collection keeps of an item.
    pub(crate) kept: Kept,
    /// Candidates that a search of a graph looks at.
    pub(crate) ef: usize,
    /// The time of the last write that a search must see.
    seen: AtomicU64,
}

/// Candidates that a search of a graph looks at unless told otherwise.
const DEFAULT_EF: usize = 128;

impl MilvusIndex {
    /// Opens the gallery at `address`.
    ///
    /// Loading a large collection into the memory of the server may take minutes; it is waited for
    /// as long as [`ConnectOptions::patience`] allows.
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::Version`], [`Error::Missing`], [`Error::Foreign`] for a
    /// collection that is not laid out as a gallery, and [`Error::Refused`].
    pub fn open(address: &Address, options: ConnectOptions) -> Result<Self> {
        Self::load(Client::connect(address, options)?)
    }

    /// Opens the gallery at `address`, or makes an empty one where there is no such collection.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`Error::Differs`] where the collection that is there has
    /// another layout.
    pub fn create(address: &Address, layout: &CollectionLayout, options: ConnectOptions) -> Result<Self> {
        if layout.dimensions == 0 || layout.dimensions > layout::MAX_DIMENSIONS {
            let found = layout.dimensions.to_string();
            return Err(Fault::Option { option: "dimensions", wanted: "1 to 32,768 in Milvus", found }.into());
        }
        let client = Client::connect(address, options)?;
        let collection_name = client.collection();
        let here = wire::CollectionRequest { collection_name: collection_name.clone() };
        let exists: wire::BoolResponse = client.call("HasCollection", &here, "look for a collection")?;
        if !exists.value {
            let request = wire::CreateCollectionRequest {
                schema: layout.schema(&collection_name).encode_to_vec(),
                collection_name: collection_name.clone(),
                shards_num: 1,
                consistency_level: wire::SESSION,
                properties: layout::properties(),
            };
            let _: wire::Status = client.call("CreateCollection", &request, "make the collection")?;
        }
        // A crash may have come between the collection and its index.
        if !exists.value || client.indices()?.is_empty() {
            let request = wire::CreateIndexRequest {
                collection_name,
                field_name: layout::EMBEDDING.to_owned(),
                extra_params: layout.index_params(),
                index_name: layout::EMBEDDING.to_owned(),
            };
            let _: wire::Status = client.call("CreateIndex", &request, "make the index")?;
        }
        let index = Self::load(client)?;
        if index.layout != *layout {
            return Err(Error::Differs {
                server: index.client.server().to_owned(),
                collection: index.client.collection(),
                wanted: layout.to_string(),
                found: index.layout.to_string(),
            });
        }
        Ok(index)
    }

    /// Removes the collection with everything in it.
    ///
    /// # Errors
    /// [`Error::Unreachable`] and [`Error::Refused`].
    pub fn drop_collection(self) -> Result<()> {
        let here = wire::CollectionRequest { collection_name: self.client.collection() };
        let _: wire::Status = self.client.call("DropCollection", &here, "remove the collection")?;
        Ok(())
    }

    /// Dimensions, metric and kind.
    pub fn layout(&self) -> &CollectionLayout {
        &self.layout
    }

    /// Items that Milvus has not put into its graph yet. They are found all the same, by comparison
    /// with every one of them.
    ///
    /// # Errors
    /// [`Error::Unreachable`] and [`Error::Refused`].
    pub fn rows_to_index(&self) -> Result<usize> {
        let pending = self.client.indices()?.iter().map(|index| index.pending_rows.max(0) as usize).sum();
        Ok(pending)
    }

    /// Waits until Milvus has put all items into its graph.
    ///
    /// # Errors
    /// As [`rows_to_index`](Self::rows_to_index), and [`Error::Unreachable`] when it takes longer
    /// than [`ConnectOptions::patience`].
    pub fn wait_for_index(&self) -> Result<()> {
        self.client.wait_until(|| Ok(self.rows_to_index()? == 0), "not all items are indexed yet")
    }

    /// Where the collection is.
    pub fn address(&self) -> &Address {
        &self.client.address
    }

    pub(crate) fn load(client: Client) -> Result<Self> {
        let description = client.describe()?;
        let layout = CollectionLayout::read(&description, &client.indices()?).map_err(|problem| {
            Error::Foreign { server: client.server().to_owned(), collection: client.collection(), problem }
        })?;
        let request = wire::LoadCollectionRequest { collection_name: client.collection(), replica_number: 1 };
        let _: wire::Status = client.call("LoadCollection", &request, "load the collection")?;
        let request = wire::GetLoadStateRequest { collection_name: client.collection() };
        client.wait_until(
            || {
                let answer: wire::GetLoadStateResponse =
                    client.call("GetLoadState", &request, "say whether the collection is loaded")?;
                Ok(answer.state == wire::LOADED)
            },
            "the collection is not loaded yet",
        )?;
        let seen = AtomicU64::new(client.now()?);
        let kept = Kept::of(&description);
        Ok(Self { client, layout, kept, ef: DEFAULT_EF, seen })
    }

    /// Where the embeddings come from, as the collection says now.
    pub(crate) fn read_origin(&self) -> Result<Origin> {
        Ok(layout::origin(&self.client.describe()?))
    }

    /// What the collection says of itself, with this number of items.
    pub(crate) fn described(&self, count: usize) -> Result<IndexInfo> {
        let origin = self.read_origin()?;
        Ok(IndexInfo {
            kind: self.layout.search.kind(),
            place: "Milvus",
            metric: self.layout.metric,
            dimensions: self.layout.dimensions,
            count,
            // The origin is noted with the first items that name a model.
            metric_of_rows: origin.model.as_ref().map(|_| origin.metric_of_rows()),
            model: origin.model,
            settings: Vec::new(),
            dead: None,
        })
    }

    /// The items as the collection keeps them: one of version 1 has no sources, and so the ids of
    /// version 1.
    pub(crate) fn without_lost_sources<'a>(&self, items: &'a Items) -> Result<Cow<'a, Items>> {
        if self.kept.sources || items.set().sources.is_none() {
            return Ok(Cow::Borrowed(items));
        }
        Ok(Cow::Owned(items.without_sources()?))
    }

    /// Refuses items that do not belong into this gallery.
    pub(crate) fn check(&self, items: &Items) -> Result<IndexInfo> {
        let info = self.described(0)?;
        info.check_items(items)?;
        layout::check_texts(items)?;
        layout::check_columns(items, self.kept)?;
        Ok(info)
    }

    /// Refuses items that do not belong into this gallery, and notes where the first items come from.
    pub(crate) fn admit(&self, items: &Items) -> Result<()> {
        let info = self.check(items)?;
        let properties = layout::origin_properties(items.set());
        if info.model.is_none() && items.set().model.is_some() && !items.is_empty() {
            let request =
                wire::AlterCollectionRequest { collection_name: self.client.collection(), properties };
            let _: wire::Status = self.client.call("AlterCollection", &request, "note the model")?;
        }
        if !items.set().columns.is_empty() {
            let described = self.client.describe()?;
            let known = layout::get(&described.properties, columns::PROPERTY);
            if let Some(list) = columns::joined(known, &items.set().columns) {
                let properties = vec![KeyValuePair::new(columns::PROPERTY, list)];
                let collection_name = self.client.collection();
                let request = wire::AlterCollectionRequest { collection_name, properties };
                let _: wire::Status = self.client.call("AlterCollection", &request, "note the columns")?;
            }
        }
        Ok(())
    }

    /// Replaces or adds the rows named.
    pub(crate) fn send(&self, items: &Items, rows: &[usize], digests: &[i64]) -> Result<()> {
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

    fn must_see(&self, time: u64) {
        self.seen.fetch_max(time, Ordering::Relaxed);
    }

    /// The time up to which a search must see all writes.
    pub(crate) fn time(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Id and label of every item that `filter` admits, in the order of ids.
    fn read_labels(&self, filter: &ItemFilter) -> Result<Vec<(u64, Option<String>)>> {
        let expr = self.expression(filter)?;
        let mut found = Vec::new();
        self.scan(&expr, &[layout::ID, layout::LABEL], |rows| {
            found.extend(rows.ids().zip(rows.texts(layout::LABEL)?));
            Some(())
        })?;
        found.sort_unstable_by_key(|&(id, _)| id);
        Ok(found)
    }

    /// The expression that admits what `filter` admits.
    ///
    /// A condition that has no [equal expression](condition::expression) is evaluated here: the texts and columns of all
    /// items are requested.
    pub(crate) fn expression(&self, filter: &ItemFilter) -> Result<String> {
        let expr = filter::expression(filter);
        let Some(condition) = &filter.condition else { return Ok(expr) };
        if let Some(condition) = self.condition(condition)? {
            return Ok(filter::both(&expr, &condition));
        }
        let (ids, set) = self.read_table()?;
        let wanted: Vec<u64> = condition.rows(&set)?.into_iter().map(|row| ids[row]).collect();
        Ok(filter::among(&expr, &wanted, &ids))
    }

    /// The expression that is equal to a condition, if there is one.
    fn condition(&self, condition: &Condition) -> Result<Option<String>> {
        if !self.kept.columns {
            return Ok(None);
        }
        let described = self.client.describe()?;
        let columns = columns::uniform(layout::get(&described.properties, columns::PROPERTY));
        Ok(condition::expression(condition, columns))
    }

    /// The ids of all items, and their labels, paths, cameras and columns.
    fn read_table(&self) -> Result<(Vec<u64>, EmbeddingSet)> {
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
        let columns = Columns::of_rows(&self.read_columns()?, &rows_of_columns);
        let table = Matrix::new(ids.len(), 0, Vec::new())?;
        Ok((ids, EmbeddingSet { labels, paths, cameras, columns, ..table.into() }))
    }

    /// Names and kinds of the further columns.
    fn read_columns(&self) -> Result<Vec<(String, ColumnKind)>> {
        let described = self.client.describe()?;
        Ok(columns::listed(layout::get(&described.properties, columns::PROPERTY)))
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
    pub(crate) fn look_up(
        &self,
        ids: &[u64],
        fields: &[&str],
        mut take: impl FnMut(&Rows) -> Option<()>,
    ) -> Result<()> {
        for ids in ids.chunks(self.rows_per_call()) {
            let answer = self.query(filter::ids(ids), fields, &[])?;
            Rows::new(&answer.fields_data).and_then(|rows| take(&rows)).ok_or_else(|| {
                self.client.answer(format!("wanted the fields {}, one value per item", fields.join(", ")))
            })?;
        }
        Ok(())
    }

    /// Rows that are sent or requested in one call: a few MiB of them.
    pub(crate) fn rows_per_call(&self) -> usize {
        const BYTES: usize = 4 << 20;
        const TEXTS: usize = 256;
        (BYTES / (self.layout.dimensions * size_of::<f32>() + TEXTS)).clamp(1, 4096)
    }

    /// Number of items. The server's own number has items that were replaced or removed, until it merges its segments; up
    /// to [`SCANNED`] items are counted here.
    pub(crate) fn count(&self) -> Result<usize> {
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

    /// The number of items that the server says; 0 is certain.
    pub(crate) fn claimed_count(&self) -> Result<usize> {
        let answer = self.query(String::new(), &[COUNT], &[])?;
        let count = answer.fields_data.first().and_then(|column| column.as_longs()?.first().copied());
        let count = count.and_then(|count| usize::try_from(count).ok());
        count.ok_or_else(|| self.client.answer("wanted the number of items".to_owned()))
    }
}

/// Items per call when all items are requested.
const SCANNED: usize = 8192;

/// What Milvus calls the number of items.
const COUNT: &str = "count(*)";

impl Client {
    /// The server's time, later than that of everything it has acknowledged.
    fn now(&self) -> Result<u64> {
        let answer: wire::AllocTimestampResponse =
            self.call("AllocTimestamp", &wire::AllocTimestampRequest {}, "say the time")?;
        Ok(answer.timestamp)
    }

    fn describe(&self) -> Result<wire::DescribeCollectionResponse> {
        let here = wire::CollectionRequest { collection_name: self.collection() };
        self.call("DescribeCollection", &here, "describe the collection")
    }

    fn indices(&self) -> Result<Vec<wire::IndexDescription>> {
        let request = wire::DescribeIndexRequest {
            collection_name: self.collection(),
            field_name: layout::EMBEDDING.to_owned(),
        };
        match self.call::<wire::DescribeIndexResponse>("DescribeIndex", &request, "describe the index") {
            Ok(answer) => Ok(answer.index_descriptions),
            Err(Error::Refused { reason, .. }) if reason.contains("index not found") => Ok(vec![]),
            Err(error) => Err(error),
        }
    }
}

impl Index for MilvusIndex {
    fn info(&self) -> retrieval::Result<IndexInfo> {
        Ok(self.described(self.count()?)?)
    }

    /// Where the embeddings come from, as the collection says now.
    fn origin(&self) -> retrieval::Result<Origin> {
        Ok(self.read_origin()?)
    }

    fn columns(&self) -> retrieval::Result<Vec<(String, ColumnKind)>> {
        Ok(self.read_columns()?)
    }

    fn check_filter(&self, filter: &ItemFilter) -> retrieval::Result<()> {
        let Some(condition) = &filter.condition else { return Ok(()) };
        if self.condition(condition)?.is_none() {
            condition.rows(&self.read_table()?.1)?;
        }
        Ok(())
    }

    fn labels(&self, filter: &ItemFilter) -> retrieval::Result<Vec<(u64, Option<String>)>> {
        Ok(self.read_labels(filter)?)
    }

    /// Sends the items in batches. When a call fails, the batches before it are in: the same call
    /// again completes them.
    fn upsert(&mut self, items: &Items) -> retrieval::Result<()> {
        let items = &*self.without_lost_sources(items)?;
        self.admit(items)?;
        let rows: Vec<usize> = (0..items.len()).collect();
        for rows in rows.chunks(self.rows_per_call()) {
            let digests: Vec<i64> = rows.iter().map(|&row| layout::digest(items.set(), row)).collect();
            self.send(items, rows, &digests)?;
        }
        Ok(())
    }

    fn remove(&mut self, ids: &[u64]) -> retrieval::Result<usize> {
        let mut wanted = ids.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        let mut there = Vec::new();
        self.look_up(&wanted, &[layout::ID], |rows| {
            there.extend(rows.ids());
            Some(())
        })?;
        for ids in there.chunks(self.rows_per_call()) {
            let request =
                wire::DeleteRequest { collection_name: self.client.collection(), expr: filter::ids(ids) };
            let _: wire::MutationResult = self.client.call("Delete", &request, "remove items")?;
            // Milvus 2.3 does not say when it removed them.
            self.must_see(self.client.now()?);
        }
        Ok(there.len())
    }

    fn search(&self, queries: MatrixView<'_>, k: usize, filter: &ItemFilter) -> retrieval::Result<IdLists> {
        check_queries(queries, k, self.layout.metric, self.layout.dimensions)?;
        Ok(self.ranked(queries, k, filter)?)
    }

    fn get(&self, ids: &[u64]) -> retrieval::Result<Vec<Option<Item>>> {
        let mut found = std::collections::HashMap::new();
        let dimensions = self.layout.dimensions;
        self.look_up(ids, &self.kept.fields(), |rows| {
            found.extend(rows.items(dimensions)?.into_iter().map(|item| (item.id, item)));
            Some(())
        })?;
        Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
    }

    /// At least as many candidates are kept as a search returns. 128 by default, at most 32,768.
    fn set_ef(&mut self, ef: usize) -> retrieval::Result<()> {
        if self.layout.search.kind().is_exact {
            return Err(Fault::Unsupported { what: "`ef`", index: "an exact collection".to_owned() });
        }
        self.ef = ef.clamp(1, 32_768);
        Ok(())
    }

    /// Makes Milvus write its memory to its storage, and waits for it.
    fn flush(&mut self) -> retrieval::Result<()> {
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
        )?;
        Ok(())
    }
}

/// Ids that Milvus returns at most for one query.
pub(crate) const MAX_RESULTS: usize = 16_384;
