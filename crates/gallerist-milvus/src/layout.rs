//! How a collection stores a gallery: its fields, its index, its properties.
//!
//! | field | type | holds |
//! | --- | --- | --- |
//! | `id` | Int64, primary key | the item's id |
//! | `label`, `path`, `camera` | VarChar | [`ABSENT`] for an item without: Milvus 2.3 has no null. A filter never names it |
//! | `source` | VarChar | the name of the item's source; collections of version 1 have no such field |
//! | `columns` | JSON | the item's values of [further columns](crate::columns); collections of versions 1 and 2 have none |
//! | `digest` | Int64 | of all the others: tells an item that is there from one that has changed |
//! | `embedding` | FloatVector | as it was given, not normalised |
//!
//! Metric and kind are those of the index over `embedding`. The collection's properties
//! `gallerist.version`, `.model`, `.run`, `.source`, `.metric_of_rows` and `.threshold` say that it is a gallery, and of what.

use gallerist_database::row::{ABSENT, Text, columns_as_json};
use gallerist_database::{CollectionLayout, Error, Result, Search, origin_of, origin_texts};
use gallerist_retrieval::EmbeddingSet;
use gallerist_retrieval::columns::Columns;
use gallerist_retrieval::index::{Item, Items, MAX_ID, Origin};
use gallerist_retrieval::search::Metric;

use crate::columns;
use crate::wire::messages::{DescribeCollectionResponse, IndexDescription};
use crate::wire::schema::{
    CollectionSchema, FLOAT_VECTOR, FieldData, FieldSchema, INT64, JSON, KeyValuePair, VARCHAR,
};

pub(crate) const ID: &str = "id";
pub(crate) const LABEL: &str = Text::Label.name();
pub(crate) const PATH: &str = Text::Path.name();
pub(crate) const CAMERA: &str = Text::Camera.name();
pub(crate) const SOURCE: &str = Text::Source.name();
pub(crate) const COLUMNS: &str = "columns";
pub(crate) const DIGEST: &str = "digest";
pub(crate) const EMBEDDING: &str = "embedding";

/// What a collection keeps of an item, which depends on its version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Kept {
    /// The source: from version 2.
    pub(crate) sources: bool,
    /// Further columns: from version 3.
    pub(crate) columns: bool,
}

impl Kept {
    /// What this collection keeps.
    pub(crate) fn of(collection: &DescribeCollectionResponse) -> Self {
        let fields = collection.schema.as_ref().map_or(&[][..], |schema| &schema.fields);
        let has = |name| fields.iter().any(|field| field.name == name);
        Self { sources: has(SOURCE), columns: has(COLUMNS) }
    }

    /// All that an item is made of, its id aside.
    pub(crate) fn fields(self) -> Vec<&'static str> {
        let mut fields = vec![LABEL, PATH, CAMERA, EMBEDDING];
        fields.extend(self.sources.then_some(SOURCE));
        fields.extend(self.columns.then_some(COLUMNS));
        fields
    }
}

/// The value of the field `id`: the id, except for the largest, which Milvus 2.3 accepts and then
/// leaves out of its answers.
pub(crate) fn key(id: u64) -> i64 {
    if id == MAX_ID { KEY_OF_MAX_ID } else { id as i64 }
}

/// The id that is kept as `key`.
pub(crate) fn id(key: i64) -> u64 {
    if key == KEY_OF_MAX_ID { MAX_ID } else { key as u64 }
}

/// No other key is negative, and -1 means "none" in many places.
const KEY_OF_MAX_ID: i64 = -2;
pub(crate) const BELOW_ALL_KEYS: i64 = -3;

/// Bytes that Milvus allows in a VarChar.
pub(crate) const TEXT_LIMIT: usize = 65_535;
/// Dimensions that Milvus allows.
pub(crate) const MAX_DIMENSIONS: usize = 32_768;

pub(crate) const VERSION_KEY: &str = "gallerist.version";
const VERSION: &str = "3";
/// A collection without the field `columns`.
const WITHOUT_COLUMNS: &str = "2";
/// A collection without the field `source`.
pub(crate) const WITHOUT_SOURCES: &str = "1";

/// Milvus' name of a metric.
pub(crate) fn metric_name(metric: Metric) -> &'static str {
    match metric {
        Metric::InnerProduct => "IP",
        Metric::Cosine => "COSINE",
        Metric::Euclidean => "L2",
    }
}

/// The fields of a collection for this.
pub(crate) fn schema(layout: &CollectionLayout, collection: &str) -> CollectionSchema {
    let field = |name: &str, data_type, param: Option<(&str, usize)>| FieldSchema {
        name: name.to_owned(),
        is_primary_key: name == ID,
        data_type,
        type_params: param.map(|(key, value)| KeyValuePair::new(key, value)).into_iter().collect(),
    };
    let texts = Text::ALL.map(|text| field(text.name(), VARCHAR, Some(("max_length", TEXT_LIMIT))));
    let mut fields = vec![field(ID, INT64, None)];
    fields.extend(texts);
    fields.push(field(COLUMNS, JSON, None));
    fields.push(field(DIGEST, INT64, None));
    fields.push(field(EMBEDDING, FLOAT_VECTOR, Some(("dim", layout.dimensions))));
    CollectionSchema { name: collection.to_owned(), description: "gallery of embeddings".to_owned(), fields }
}

/// What the index over the embeddings is made with.
pub(crate) fn index_params(layout: &CollectionLayout) -> Vec<KeyValuePair> {
    let (kind, params) = match layout.search {
        Search::Flat => ("FLAT", "{}".to_owned()),
        Search::Hnsw { m, ef_construction } => {
            ("HNSW", serde_json::json!({ "M": m, "efConstruction": ef_construction }).to_string())
        }
    };
    vec![
        KeyValuePair::new("index_type", kind),
        KeyValuePair::new("metric_type", metric_name(layout.metric)),
        KeyValuePair::new("params", params),
    ]
}

/// Reads the layout of a collection; the error says what is not as a gallery has it.
pub(crate) fn read(
    collection: &DescribeCollectionResponse,
    indices: &[IndexDescription],
) -> std::result::Result<CollectionLayout, String> {
    match get(&collection.properties, VERSION_KEY) {
        Some(VERSION | WITHOUT_COLUMNS | WITHOUT_SOURCES) => {}
        Some(other) => {
            return Err(format!("wanted {VERSION_KEY} = {WITHOUT_SOURCES} to {VERSION}, found {other}"));
        }
        None => return Err(format!("wanted the property {VERSION_KEY}, found none")),
    }
    let fields = collection.schema.as_ref().map_or(&[][..], |schema| &schema.fields);
    let embedding = fields.iter().find(|field| field.name == EMBEDDING && field.data_type == FLOAT_VECTOR);
    let dimensions = embedding.and_then(|field| get(&field.type_params, "dim")?.parse().ok());
    let dimensions = dimensions.ok_or("wanted a field `embedding` of float vectors, found none")?;
    if !(1..=MAX_DIMENSIONS).contains(&dimensions) {
        return Err(format!("wanted embeddings of 1 to {MAX_DIMENSIONS} dimensions, found {dimensions}"));
    }
    let index = indices.iter().find(|index| index.field_name == EMBEDDING);
    let index = index.ok_or("wanted an index over `embedding`, found none")?;
    let metric = match get(&index.params, "metric_type") {
        Some("IP") => Metric::InnerProduct,
        Some("COSINE") => Metric::Cosine,
        Some("L2") => Metric::Euclidean,
        other => {
            return Err(format!("wanted the metric IP, COSINE or L2, found {}", other.unwrap_or("none")));
        }
    };
    let search = match get(&index.params, "index_type") {
        Some("FLAT") => Search::Flat,
        Some("HNSW") => {
            let params: serde_json::Value = get(&index.params, "params")
                .and_then(|text| serde_json::from_str(text).ok())
                .unwrap_or_default();
            // Some versions give numbers, some give texts, some leave the object out.
            let number = |key: &str| {
                let given = params[key].as_u64().or_else(|| params[key].as_str()?.parse().ok());
                given.or_else(|| get(&index.params, key)?.parse().ok()).unwrap_or(0) as usize
            };
            Search::Hnsw { m: number("M"), ef_construction: number("efConstruction") }
        }
        other => return Err(format!("wanted an index FLAT or HNSW, found {}", other.unwrap_or("none"))),
    };
    Ok(CollectionLayout { dimensions, metric, search })
}

pub(crate) fn get<'a>(pairs: &'a [KeyValuePair], key: &str) -> Option<&'a str> {
    pairs.iter().find(|pair| pair.key == key).map(|pair| pair.value.as_str())
}

/// The properties of a new gallery.
pub(crate) fn properties() -> Vec<KeyValuePair> {
    vec![KeyValuePair::new(VERSION_KEY, VERSION)]
}

/// The properties that say where a gallery's embeddings come from, as far as a set says it.
pub(crate) fn origin_properties(set: &EmbeddingSet) -> Vec<KeyValuePair> {
    origin_texts(set).into_iter().map(|(key, text)| KeyValuePair::new(key, text)).collect()
}

/// Where a gallery's embeddings come from.
pub(crate) fn origin(collection: &DescribeCollectionResponse) -> Origin {
    origin_of(|key| get(&collection.properties, key))
}

/// Refuses further columns that the collection cannot keep.
pub(crate) fn check_columns(items: &Items, kept: Kept) -> Result<()> {
    let set = items.set();
    if set.columns.is_empty() {
        return Ok(());
    }
    for row in 0..items.len() {
        let Some(json) = columns_as_json(&set.columns, row) else { continue };
        let problem = if !kept.columns {
            "cannot be kept: the collection was made by an older program".to_owned()
        } else if json.len() > columns::LIMIT {
            format!("have {} bytes as JSON; a collection keeps at most {}", json.len(), columns::LIMIT)
        } else {
            continue;
        };
        return Err(Error::Text { field: COLUMNS, row, problem });
    }
    Ok(())
}

/// Refuses rows for which Milvus has no cosine, and which it then finds for no query: those whose sum of squares is 0 in f32.
pub(crate) fn check_lengths(items: &Items, metric: Metric) -> Result<()> {
    let embeddings = &items.set().embeddings;
    let square = |row: usize| embeddings.row(row).iter().map(|value| value * value).sum::<f32>();
    let Some(row) = (0..items.len()).find(|&row| metric == Metric::Cosine && square(row) == 0.0) else {
        return Ok(());
    };
    let problem = "has the length 0 in f32: Milvus finds no such row by the cosine (leave it out)".to_owned();
    Err(Error::Text { field: "embedding", row, problem })
}

/// Rows of `items` as the fields that the collection keeps.
pub(crate) fn fields(items: &Items, rows: &[usize], digests: &[i64], kept: Kept) -> Vec<FieldData> {
    let set = items.set();
    let ids = rows.iter().map(|&row| key(items.ids()[row])).collect();
    let mut fields = vec![FieldData::longs(ID, ids)];
    for of in Text::ALL.into_iter().filter(|of| kept.sources || *of != Text::Source) {
        let text = |&row: &usize| of.of(set, row).unwrap_or(ABSENT).to_owned();
        fields.push(FieldData::strings(of.name(), rows.iter().map(text).collect()));
    }
    if kept.columns {
        let json = |&row: &usize| columns_as_json(&set.columns, row).unwrap_or_else(|| b"{}".to_vec());
        fields.push(FieldData::jsons(COLUMNS, rows.iter().map(json).collect()));
    }
    fields.push(FieldData::longs(DIGEST, digests.to_vec()));
    let values = rows.iter().flat_map(|&row| set.embeddings.row(row).iter().copied()).collect();
    fields.push(FieldData::vectors(EMBEDDING, set.embeddings.cols(), values));
    fields
}

/// Columns of an answer, one value per row each.
pub(crate) struct Rows<'a> {
    columns: &'a [FieldData],
    ids: &'a [i64],
}

impl<'a> Rows<'a> {
    /// The columns of an answer; `None` when there are no ids.
    pub(crate) fn new(columns: &'a [FieldData]) -> Option<Self> {
        let ids = columns.iter().find(|column| column.name == ID)?.as_longs()?;
        Some(Self { columns, ids })
    }

    pub(crate) fn ids(&self) -> impl ExactSizeIterator<Item = u64> {
        self.ids.iter().map(|&key| id(key))
    }

    /// The ids as the collection has them.
    pub(crate) fn keys(&self) -> &'a [i64] {
        self.ids
    }

    fn column(&self, name: &str) -> Option<&'a FieldData> {
        self.columns.iter().find(|column| column.name == name)
    }

    /// The text of each row, where it has one.
    pub(crate) fn texts(&self, name: &str) -> Option<impl Iterator<Item = Option<String>> + 'a> {
        let column = self.column(name)?.as_strings().filter(|column| column.len() == self.ids.len())?;
        Some(column.iter().map(|text| (text != ABSENT).then(|| text.clone())))
    }

    /// One integer per row.
    pub(crate) fn longs(&self, name: &str) -> Option<&'a [i64]> {
        self.column(name)?.as_longs().filter(|column| column.len() == self.ids.len())
    }

    /// The further columns of each row; `None` where one cannot be read.
    pub(crate) fn columns(&self) -> Option<Vec<Columns>> {
        let texts = self.column(COLUMNS)?.as_jsons().filter(|texts| texts.len() == self.ids.len())?;
        texts.iter().map(|text| columns::read(text)).collect()
    }

    /// `dimensions` values per row.
    pub(crate) fn embeddings(&self, dimensions: usize) -> Option<&'a [f32]> {
        let values = self.column(EMBEDDING)?.as_vectors()?;
        (values.len() == self.ids.len() * dimensions).then_some(values)
    }

    /// Every row as an item; `None` when a field is missing.
    pub(crate) fn items(&self, dimensions: usize) -> Option<Vec<Item>> {
        let [labels, paths, cameras, sources] = Text::ALL.map(|text| {
            self.column(text.name())?.as_strings().filter(|column| column.len() == self.ids.len())
        });
        let (labels, paths, cameras) = (labels?, paths?, cameras?);
        let embeddings = self.embeddings(dimensions)?;
        let mut of_rows = match self.column(COLUMNS) {
            Some(_) => self.columns()?,
            None => vec![Columns::default(); self.ids.len()],
        };
        let text = |list: &[String], row: usize| (list[row] != ABSENT).then(|| list[row].clone());
        let mut item = |(row, id)| Item {
            id,
            embedding: embeddings[row * dimensions..(row + 1) * dimensions].to_vec(),
            label: text(labels, row),
            path: text(paths, row),
            camera: text(cameras, row),
            source: sources.and_then(|sources| text(sources, row)),
            columns: std::mem::take(&mut of_rows[row]),
        };
        Some(self.ids().enumerate().map(&mut item).collect())
    }
}
