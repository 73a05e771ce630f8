//! A collection of a Qdrant server.

use gallerist_database::row::{self, Text};
use gallerist_database::{
    Candidates, Client, Collection, CollectionLayout, Error, QDRANT, Result, Search, Stored, System,
};
use gallerist_retrieval::columns::{ColumnKind, Columns};
use gallerist_retrieval::condition::Condition;
use gallerist_retrieval::index::{Among, Item, ItemFilter, Items, Origin};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{EmbeddingSet, Matrix, MatrixView};

use crate::filter::{self, QdrantFilter};
use crate::layout::{self, EMBEDDING, searched};
use crate::payload::{self, DIGEST, FIELDS_OF_TABLE};
use crate::wire::collections as wire;
use crate::wire::filters::PointId;
use crate::wire::points::{self, RetrievedPoint, WithPayloadSelector, WithVectorsSelector};
use crate::wire::value::Object;
use crate::{columns, condition};

/// A collection of a Qdrant server that keeps a gallery.
pub struct QdrantCollection {
    client: Client,
    layout: CollectionLayout,
}

/// Items per call when all items are requested.
const SCANNED: u32 = 4096;

fn info(client: &Client) -> Result<wire::CollectionInfo> {
    let request = wire::CollectionRequest { collection_name: client.collection() };
    let answer: wire::GetCollectionInfoResponse =
        client.call("Collections/Get", &request, "describe the collection")?;
    answer.result.ok_or_else(|| client.answer("wanted a description of the collection".to_owned()))
}

fn exists(client: &Client) -> Result<bool> {
    let request = wire::CollectionRequest { collection_name: client.collection() };
    let answer: wire::CollectionExistsResponse =
        client.call("Collections/CollectionExists", &request, "look for a collection")?;
    Ok(answer.result.is_some_and(|result| result.exists))
}

/// Makes an index over a field of the payload; one that is there stays.
fn create_index(client: &Client, field: &str, kind: i32) -> Result<()> {
    let request = points::CreateFieldIndexCollection {
        collection_name: client.collection(),
        wait: Some(true),
        field_name: field.to_owned(),
        field_type: Some(kind),
    };
    let _: points::PointsOperationResponse =
        client.call("Points/CreateFieldIndex", &request, "index a field")?;
    Ok(())
}

impl QdrantCollection {
    fn metadata(&self) -> Result<Object> {
        Ok(info(&self.client)?.config.map(|config| config.metadata).unwrap_or_default())
    }

    fn add_metadata(&self, metadata: Object, action: &'static str) -> Result<()> {
        let request = wire::UpdateCollection { collection_name: self.client.collection(), metadata };
        let _: wire::CollectionOperationResponse =
            self.client.call("Collections/Update", &request, action)?;
        Ok(())
    }

    fn misfit(&self, wanted: &str) -> Error {
        self.client.answer(format!("wanted {wanted}"))
    }

    /// Requests fields and the embeddings of the items with these ids, some hundred at a time, and passes each item to
    /// `take`; `None` from it means that something is missing.
    fn look_up(
        &self,
        ids: &[u64],
        fields: &[&str],
        vector: Option<&str>,
        mut take: impl FnMut(&RetrievedPoint) -> Option<()>,
    ) -> Result<()> {
        for ids in ids.chunks(self.layout.rows_per_call()) {
            let request = points::GetPoints {
                collection_name: self.client.collection(),
                ids: ids.iter().map(|&id| PointId::new(id)).collect(),
                with_payload: Some(WithPayloadSelector::of(fields)),
                with_vectors: Some(WithVectorsSelector::of(vector)),
            };
            let answer: points::GetResponse = self.client.call("Points/Get", &request, "look items up")?;
            if answer.result.len() > ids.len() {
                let (found, asked) = (answer.result.len(), ids.len());
                return Err(self.misfit(&format!("at most {asked} items, found {found}")));
            }
            answer
                .result
                .iter()
                .try_for_each(&mut take)
                .ok_or_else(|| self.misfit(&content(fields, vector)))?;
        }
        Ok(())
    }

    /// Requests fields of all items that a filter admits, and passes each item to `take`; `None` from it means that a
    /// field is missing. Items come in the order of their ids.
    fn scan(
        &self,
        filter: &QdrantFilter,
        fields: &[&str],
        mut take: impl FnMut(&RetrievedPoint) -> Option<()>,
    ) -> Result<()> {
        let mut first = 0;
        loop {
            let request = points::ScrollPoints {
                collection_name: self.client.collection(),
                filter: filter.message(),
                offset: Some(PointId::new(first)),
                limit: Some(SCANNED),
                with_payload: Some(WithPayloadSelector::of(fields)),
                with_vectors: Some(WithVectorsSelector::of(None)),
            };
            let answer: points::ScrollResponse = self.client.call("Points/Scroll", &request, "list items")?;
            answer
                .result
                .iter()
                .try_for_each(&mut take)
                .ok_or_else(|| self.misfit(&content(fields, None)))?;
            let Some(next) = answer.next_page_offset else { return Ok(()) };
            match next.number() {
                Some(next) if next > first => first = next,
                _ => return Err(self.misfit("a next id that is higher than the one before")),
            }
        }
    }

    /// The answer to a search, query by query; `None` when it does not fit.
    fn lists(
        &self,
        answer: &points::QueryBatchResponse,
        queries: usize,
        limit: usize,
    ) -> Option<Vec<Candidates>> {
        let list = |list: &points::BatchResult| {
            let ids =
                list.result.iter().map(|point| point.id.as_ref()?.number()).collect::<Option<Vec<u64>>>()?;
            let last = list.result.last().map_or(0.0, |point| f64::from(point.score));
            // Qdrant's score is the distance.
            let last = if self.layout.metric == Metric::Euclidean { last * last } else { last };
            (ids.len() <= limit && last.is_finite()).then_some(Candidates {
                all: ids.len() < limit,
                last,
                ids,
            })
        };
        let lists = answer.result.iter().map(list).collect::<Option<Vec<_>>>()?;
        (lists.len() == queries).then_some(lists)
    }
}

/// What was asked for, for an error.
fn content(fields: &[&str], vector: Option<&str>) -> String {
    let all: Vec<&str> = fields.iter().copied().chain(vector).collect();
    format!(
        "items with a number as id and {}",
        if all.is_empty() { "nothing else".to_owned() } else { all.join(", ") }
    )
}

/// Every change waits until the server has applied it. Qdrant logs what it acknowledges.
impl Collection for QdrantCollection {
    const SYSTEM: &'static System = &QDRANT;
    const MOST_DIMENSIONS: usize = layout::MOST_DIMENSIONS;
    /// The program's own limit: one answer has some 30 MB then.
    const MOST_RESULTS: usize = 1 << 20;
    type Filter = QdrantFilter;

    fn greet(client: &Client) -> Result<()> {
        let request = wire::HealthCheckRequest {};
        client.greet("Qdrant/HealthCheck", &request, |answer: &wire::HealthCheckReply| &answer.version)
    }

    fn create(client: &Client, layout: &CollectionLayout) -> Result<()> {
        if !exists(client)? {
            let request = wire::CreateCollection {
                collection_name: client.collection(),
                vectors_config: Some(layout::vectors(layout)),
                metadata: layout::metadata(),
            };
            let made = client.call::<wire::CollectionOperationResponse>(
                "Collections/Create",
                &request,
                "make the collection",
            );
            // Another program may have made it since.
            if let Err(error) = made
                && !exists(client)?
            {
                return Err(error);
            }
        }
        let there = info(client)?;
        // A collection of another program is refused when it is opened.
        if there.config.is_none_or(|config| layout::read(&config).is_err()) {
            return Ok(());
        }
        for text in [Text::Label, Text::Camera, Text::Path] {
            if !there.payload_schema.contains_key(text.name()) {
                create_index(client, text.name(), points::KEYWORD)?;
            }
        }
        Ok(())
    }

    fn open(client: Client) -> Result<Self> {
        let config = info(&client)?.config.unwrap_or_default();
        let layout = layout::read(&config).map_err(|problem| client.foreign(problem))?;
        Ok(Self { client, layout })
    }

    fn drop_collection(&self) -> Result<()> {
        let request = wire::CollectionRequest { collection_name: self.client.collection() };
        let _: wire::CollectionOperationResponse =
            self.client.call("Collections/Delete", &request, "remove the collection")?;
        Ok(())
    }

    fn client(&self) -> &Client {
        &self.client
    }

    fn layout(&self) -> &CollectionLayout {
        &self.layout
    }

    /// 0 unless the server is putting items into the graph: it makes none for small segments.
    fn rows_to_index(&self) -> Result<usize> {
        let info = info(&self.client)?;
        if self.layout.search == Search::Flat || info.status != wire::YELLOW {
            return Ok(0);
        }
        let [points, indexed] =
            [info.points_count, info.indexed_vectors_count].map(|count| count.unwrap_or(0) as usize);
        Ok(points.saturating_sub(indexed).max(1))
    }

    fn origin(&self) -> Result<Origin> {
        Ok(layout::origin(&self.metadata()?))
    }

    fn note(&self, items: &Items, is_first: bool) -> Result<()> {
        let set = items.set();
        if is_first {
            self.add_metadata(layout::origin_metadata(set), "note the origin")?;
        }
        if set.columns.is_empty() {
            return Ok(());
        }
        let new = columns::new(&self.metadata()?, &set.columns);
        // The metadata come last, so that a column that is in them has its index.
        for (store, name, _) in &new {
            if let Some(kind) = store.index() {
                create_index(&self.client, &store.path(name), kind)?;
            }
        }
        match new.is_empty() {
            true => Ok(()),
            false => {
                self.add_metadata(new.into_iter().map(|(_, _, entry)| entry).collect(), "note the columns")
            }
        }
    }

    fn check(&self, items: &Items) -> Result<()> {
        row::check_texts(items, None)
    }

    fn send(&self, items: &Items, rows: &[usize], digests: &[i64]) -> Result<()> {
        let point = |(&row, &digest)| payload::point(items, row, digest, &self.layout);
        let request = points::UpsertPoints {
            collection_name: self.client.collection(),
            wait: Some(true),
            points: rows.iter().zip(digests).map(point).collect(),
        };
        let _: points::PointsOperationResponse = self.client.call("Points/Upsert", &request, "take items")?;
        Ok(())
    }

    fn delete(&self, ids: &[u64]) -> Result<()> {
        let ids = ids.iter().map(|&id| PointId::new(id)).collect();
        let request = points::DeletePoints {
            collection_name: self.client.collection(),
            wait: Some(true),
            points: Some(points::PointsSelector { points: Some(points::PointsIdsList { ids }) }),
        };
        let _: points::PointsOperationResponse =
            self.client.call("Points/Delete", &request, "remove items")?;
        Ok(())
    }

    /// Nothing to do: what Qdrant acknowledges is in its log.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn count(&self) -> Result<usize> {
        let request = points::CountPoints { collection_name: self.client.collection(), exact: Some(true) };
        let answer: points::CountResponse = self.client.call("Points/Count", &request, "count items")?;
        let count = answer.result.and_then(|result| usize::try_from(result.count).ok());
        count.ok_or_else(|| self.misfit("the number of items"))
    }

    fn is_empty(&self) -> Result<bool> {
        Ok(self.count()? == 0)
    }

    fn items(&self, ids: &[u64]) -> Result<Vec<Item>> {
        let mut found = Vec::new();
        let mut fields = FIELDS_OF_TABLE.to_vec();
        fields.push(Text::Source.name());
        self.look_up(ids, &fields, Some(EMBEDDING), |point| {
            found.push(payload::item(point, self.layout.dimensions)?);
            Some(())
        })?;
        Ok(found)
    }

    fn which(&self, ids: &[u64]) -> Result<Vec<u64>> {
        let mut there = Vec::new();
        self.look_up(ids, &[], None, |point| {
            there.push(payload::id(point)?);
            Some(())
        })?;
        Ok(there)
    }

    fn stored(&self, ids: &[u64], with_origin: bool) -> Result<Vec<Stored>> {
        let mut stored = Vec::new();
        let fields: &[&str] = match with_origin {
            true => &[DIGEST, Text::Path.name(), Text::Source.name()],
            false => &[DIGEST],
        };
        self.look_up(ids, fields, None, |point| {
            stored.push(Stored {
                id: payload::id(point)?,
                digest: point.payload.get(DIGEST)?.as_integer()?,
                path: payload::text(&point.payload, Text::Path)?,
                source: payload::text(&point.payload, Text::Source)?,
            });
            Some(())
        })?;
        Ok(stored)
    }

    fn embeddings(&self, ids: &[u64], take: &mut dyn FnMut(u64, &[f32])) -> Result<()> {
        self.look_up(ids, &[], Some(EMBEDDING), |point| {
            take(payload::id(point)?, payload::embedding(point, self.layout.dimensions)?);
            Some(())
        })
    }

    fn labels(&self, filter: &QdrantFilter) -> Result<Vec<(u64, Option<String>)>> {
        let mut found = Vec::new();
        self.scan(filter, &[Text::Label.name()], |point| {
            found.push((payload::id(point)?, payload::text(&point.payload, Text::Label)?));
            Some(())
        })?;
        Ok(found)
    }

    fn table(&self) -> Result<(Vec<u64>, EmbeddingSet)> {
        let (mut ids, mut rows_of_columns) = (Vec::new(), Vec::new());
        let mut texts = [Text::Label, Text::Path, Text::Camera].map(|text| (text, Vec::new()));
        self.scan(&QdrantFilter::default(), &FIELDS_OF_TABLE, |point| {
            ids.push(payload::id(point)?);
            for (text, list) in &mut texts {
                list.push(payload::text(&point.payload, *text)?.unwrap_or_default());
            }
            rows_of_columns.push(columns::read(&point.payload)?);
            Some(())
        })?;
        let [labels, paths, cameras] =
            texts.map(|(_, list): (_, Vec<String>)| list.iter().any(|text| !text.is_empty()).then_some(list));
        let columns = Columns::of_rows(&self.columns()?, &rows_of_columns);
        let table = Matrix::new(ids.len(), 0, Vec::new())?;
        Ok((ids, EmbeddingSet { labels, paths, cameras, columns, ..table.into() }))
    }

    fn columns(&self) -> Result<Vec<(String, ColumnKind)>> {
        Ok(columns::listed(&self.metadata()?))
    }

    fn filter(filter: &ItemFilter) -> QdrantFilter {
        filter::plain(filter)
    }

    fn condition(&self, condition: &Condition) -> Result<Option<QdrantFilter>> {
        Ok(condition::filter(condition, columns::comparable(&self.metadata()?)))
    }

    fn among(ids: &Among<u64>) -> QdrantFilter {
        filter::among(ids)
    }

    fn both(mut one: QdrantFilter, other: QdrantFilter) -> QdrantFilter {
        one.0.extend(other.0);
        one
    }

    fn candidates(
        &self,
        queries: MatrixView<'_>,
        rows: &[usize],
        limit: usize,
        ef: usize,
        filter: &QdrantFilter,
    ) -> Result<Vec<Candidates>> {
        let params = match self.layout.search {
            Search::Flat => points::SearchParams { hnsw_ef: None, exact: Some(true) },
            Search::Hnsw { .. } => points::SearchParams { hnsw_ef: Some(ef as u64), exact: Some(false) },
        };
        let query = |&row: &usize| {
            let dense = Some(points::DenseVector { data: queries.row(row).to_vec() });
            points::QueryPoints {
                collection_name: self.client.collection(),
                query: Some(points::Query { nearest: Some(points::VectorInput { dense }) }),
                using: Some(searched(self.layout.metric).to_owned()),
                filter: filter.message(),
                params: Some(params),
                limit: Some(limit as u64),
                with_vectors: Some(WithVectorsSelector::of(None)),
                with_payload: Some(WithPayloadSelector::of(&[])),
            }
        };
        let request = points::QueryBatchPoints {
            collection_name: self.client.collection(),
            query_points: rows.iter().map(query).collect(),
        };
        let answer: points::QueryBatchResponse = self.client.call("Points/QueryBatch", &request, "search")?;
        self.lists(&answer, rows.len(), limit).ok_or_else(|| {
            self.misfit(&format!("at most {limit} ids and scores for each of {} queries", rows.len()))
        })
    }
}
