//! Indices on disk: one `.safetensors` file, so that rows, names and graph cannot be of different
//! indices.
//!
//! - tensors `rows` f32 `[slots, dimensions]` and `ids` u64 `[slots]`;
//! - tensors `labels`, `paths`, `cameras`, each optional: u8 `[bytes]`, a JSON list with a string or
//!   null per slot;
//! - tensors `column.0`, `column.0.values`, …: the further columns, as in an embeddings file, with a value per slot;
//! - tensor `sources`, where any item has a source: u32 `[slots]`, the place of its source in the
//!   metadata's `sources`, a JSON list of [`Source`](crate::file::Source)s; 2^32 - 1 for none;
//! - with a graph: `alive` u8 `[slots]`, 0 for a slot that is no item any more; `levels` u8
//!   `[slots]`, the highest level of each; `links` u32 `[slots, 2 m]` of level 0, and
//!   `upper_links` u32 `[lists, m]` of the levels above, slot by slot; 2^32 - 1 where there is no
//!   link;
//! - metadata: `format` = `gallerist-index`, `format_version` = `2` (`3` with further columns, which the metadata
//!   `columns` lists), `kind`, `metric`, with a graph
//!   `hnsw` (its options, JSON) and `entry`, and, where known, `model`, `source`, `run` and `sources`; if items were removed,
//!   `next_id`, the number after their largest id;
//!   version `1`, without `sources`, is read too;
//! - metadata `sha256`: as in an embeddings file, of the header and of the tensor bytes.

use std::borrow::Cow;
use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use bytemuck::AnyBitPattern;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Map, Value, json};

use super::catalog::Catalog;
use super::info::check_dimensions;
use super::items::MAX_ID;
use super::origin::Origin;
use super::store::Store;
use super::values::Values;
use crate::file::Sources;
use crate::file::columns;
use crate::file::map::FileMap;
use crate::file::sealed::{AGAIN, CHECKSUM_DIGITS, checksum_holds, encode, write_sealed};
use crate::file::tensors::{match_rule, match_rule_text, parse_sources, sources_text};
use crate::search::Metric;
use crate::{Error, Result};
use gallerist_util::memory::prefer_large_pages;

const FORMAT: &str = "gallerist-index";
const VERSION: &str = "2";
/// The version of a file with further columns, which older programs would lose.
const VERSION_WITH_COLUMNS: &str = "3";
/// The versions that are read.
const VERSIONS: [&str; 3] = ["1", VERSION, VERSION_WITH_COLUMNS];
/// The longest header that is read.
const MAX_HEADER: u64 = 1 << 20;

/// What a kind of index adds to a file: notes in the metadata, and tensors.
#[derive(Default)]
pub(crate) struct Parts<'a> {
    pub(super) notes: Vec<(&'static str, String)>,
    pub(super) tensors: Vec<(&'static str, Vec<usize>, TensorValues<'a>)>,
}

impl TensorValues<'_> {
    fn borrowed(&self) -> TensorValues<'_> {
        match self {
            Self::F32(values) => TensorValues::F32(values),
            Self::U32(values) => TensorValues::U32(values),
            Self::U64(values) => TensorValues::U64(values),
            Self::U8(values) => TensorValues::U8(Cow::Borrowed(values)),
        }
    }
}

pub(super) fn refuse(path: &Path, problem: impl Into<String>, hint: Option<&str>) -> Error {
    Error::Format {
        path: path.to_owned(),
        format: "an index",
        problem: problem.into(),
        hint: hint.map(str::to_owned),
    }
}

/// Whether `path` is a file that an index wrote, by its metadata. Whether it is complete
/// is checked when it is read. A file that ends in `.index` and is cut short within its header counts as one, so that reading it
/// says what is wrong.
pub fn is_index(path: impl AsRef<Path>) -> bool {
    let path = path.as_ref();
    let header = || -> std::io::Result<Vec<u8>> {
        let mut file = gallerist_util::files::open_regular(path)?;
        let mut length = [0; 8];
        file.read_exact(&mut length)?;
        let mut header = Vec::new();
        file.take(u64::from_le_bytes(length).min(MAX_HEADER)).read_to_end(&mut header)?;
        Ok(header)
    };
    let header = header().ok().and_then(|header| serde_json::from_slice::<Value>(&header).ok());
    match header {
        Some(header) => header["__metadata__"]["format"] == FORMAT,
        None => path.extension().is_some_and(|ending| ending.eq_ignore_ascii_case("index")) && path.is_file(),
    }
}

/// The values of a tensor that is written.
pub(crate) enum TensorValues<'a> {
    F32(&'a [f32]),
    U32(&'a [u32]),
    U64(&'a [u64]),
    U8(Cow<'a, [u8]>),
}

/// Writes an index of the kind of this name.
pub(super) fn write(path: &Path, kind: &str, store: &Store, parts: &Parts) -> Result<()> {
    let Store { rows, catalog, origin, .. } = store;
    let slots = catalog.len();
    let mut tensors = vec![
        ("rows", vec![slots, store.dimensions], TensorValues::F32(rows.as_slice())),
        ("ids", vec![slots], TensorValues::U64(catalog.ids())),
    ];
    for (name, list) in catalog.lists() {
        if list.iter().any(Option::is_some) {
            let text = serde_json::to_vec(&list).expect("a list of strings is valid JSON");
            tensors.push((name, vec![text.len()], TensorValues::U8(text.into())));
        }
    }
    let sources = catalog.sources();
    let mut metadata = Map::new();
    let mut note = |key: &str, value: &str| metadata.insert(key.to_owned(), Value::from(value));
    note("format", FORMAT);
    let columns = columns::Tensors::new(catalog.columns());
    match columns.metadata() {
        Some(text) => {
            note("format_version", VERSION_WITH_COLUMNS);
            note("columns", &text);
        }
        None => drop(note("format_version", VERSION)),
    }
    note("sha256", &"0".repeat(CHECKSUM_DIGITS));
    if let Some(sources) = &sources {
        note("sources", &sources_text(sources.list()));
        tensors.push(("sources", vec![slots], TensorValues::U32(sources.places())));
    }
    note("metric", json!(store.metric).as_str().expect("a metric is a word"));
    note("kind", kind);
    for (key, value) in [("model", &origin.model), ("source", &origin.source), ("run", &origin.run)] {
        if let Some(value) = value {
            note(key, value);
        }
    }
    if store.next_id > 0 {
        note("next_id", &store.next_id.to_string());
    }
    if let Some(metric) = origin.metric {
        note("metric_of_rows", metric.name());
    }
    if let Some(rule) = &origin.threshold {
        note("threshold", &match_rule_text(rule));
    }
    parts.notes.iter().for_each(|(key, value)| drop(note(key, value)));
    tensors
        .extend(parts.tensors.iter().map(|(name, shape, values)| (*name, shape.clone(), values.borrowed())));
    // Numbers first, the widest in front: every tensor starts at a multiple of its values' size.
    tensors.sort_by_key(|(_, _, tensor)| match tensor {
        TensorValues::U64(_) => 0,
        TensorValues::F32(_) | TensorValues::U32(_) => 1,
        TensorValues::U8(_) => 2,
    });

    let mut header = Map::new();
    let mut end = 0;
    for (name, shape, tensor) in &tensors {
        let (dtype, bytes) = match tensor {
            TensorValues::F32(values) => ("F32", size_of_val(*values)),
            TensorValues::U32(values) => ("U32", size_of_val(*values)),
            TensorValues::U64(values) => ("U64", size_of_val(*values)),
            TensorValues::U8(values) => ("U8", values.len()),
        };
        let offsets = [end, end + bytes];
        end += bytes;
        header.insert((*name).to_owned(), json!({"dtype": dtype, "shape": shape, "data_offsets": offsets}));
    }
    columns.describe(&mut header, end);
    header.insert("__metadata__".to_owned(), Value::Object(metadata));
    write_sealed(path, &header, |take| {
        tensors.iter().try_for_each(|(_, _, tensor)| match tensor {
            TensorValues::F32(values) => encode(values, f32::to_le_bytes, take),
            TensorValues::U32(values) => encode(values, u32::to_le_bytes, take),
            TensorValues::U64(values) => encode(values, u64::to_le_bytes, take),
            TensorValues::U8(values) => take(values),
        })?;
        columns.encode(take)?;
        // Before the file is renamed: the data that were copied from a mapped index must be valid.
        rows.check().map_err(std::io::Error::other)
    })
}

/// Reads and checks an index; with `mapped` its rows, and the numbers of its kind, stay in the file.
/// `build` makes the index from the name of its kind, its store and what else the file has.
pub(super) fn read<T>(
    path: &Path,
    mapped: bool,
    build: impl FnOnce(&str, Store, &Reader) -> Result<T>,
) -> Result<T> {
    let map = Arc::new(FileMap::open(path)?);
    let index = parse(path, &map, mapped).and_then(|file| build(file.note("kind")?, file.store()?, &file));
    map.check()?;
    index
}

fn parse<'a>(path: &'a Path, map: &'a Arc<FileMap>, mapped: bool) -> Result<Reader<'a>> {
    let bytes: &[u8] = map;
    let damaged = |what| refuse(path, format!("it is cut short or damaged ({what})"), Some(AGAIN));
    let tensors = SafeTensors::deserialize(bytes).map_err(|error| damaged(error.to_string()))?;
    let (header_size, metadata) =
        SafeTensors::read_metadata(bytes).map_err(|error| damaged(error.to_string()))?;
    let metadata = metadata.metadata().clone().unwrap_or_default();
    if metadata.get("format").map(String::as_str) != Some(FORMAT) {
        let hint = "make an index of it with `gallerist index build`";
        return Err(refuse(path, "it says of itself that it is something else", Some(hint)));
    }
    let (header, values) = bytes[8..].split_at(header_size);
    if !checksum_holds(header, values, metadata.get("sha256")) {
        return Err(refuse(path, "its checksum is not the one it was written with", Some(AGAIN)));
    }
    let found = metadata.get("format_version").map_or("none", String::as_str);
    if !VERSIONS.contains(&found) {
        let problem = format!("wanted format version {}, found {found}", VERSIONS.join(" or "));
        return Err(refuse(path, problem, Some("read it with the program that wrote it, or a newer one")));
    }
    Ok(Reader { path, map, tensors, metadata, mapped })
}

/// An opened file whose checksum holds.
pub(crate) struct Reader<'a> {
    path: &'a Path,
    map: &'a Arc<FileMap>,
    tensors: SafeTensors<'a>,
    metadata: HashMap<String, String>,
    mapped: bool,
}

impl<'a> Reader<'a> {
    fn store(&self) -> Result<Store> {
        let metric = Metric::of_file(self.note("metric")?).map_err(|problem| self.refuse(&problem))?;
        let (shape, rows) = self.numbers("rows", Dtype::F32, f32::from_le_bytes)?;
        let (slots, dimensions) = (shape[0], shape[1]);
        check_dimensions(dimensions).map_err(|error| self.refuse(&error.to_string()))?;
        crate::search::check_count(slots, "the index").map_err(|error| self.refuse(&error.to_string()))?;
        let ids = self.bytes("ids", Dtype::U64, &[slots])?;
        let ids: Vec<u64> = ids.as_chunks().0.iter().map(|&bytes| u64::from_le_bytes(bytes)).collect();
        if ids.iter().any(|&id| id > MAX_ID) {
            return Err(self.refuse("an id is not below 2^63"));
        }
        let [labels, paths, cameras] = ["labels", "paths", "cameras"].map(|name| self.list(name, slots));
        let columns =
            self.optional_note("columns").map(|text| columns::read(&self.tensors, text, slots, None));
        let columns = columns.transpose().map_err(|problem| self.refuse(&problem))?.unwrap_or_default();
        let lists = [labels?, paths?, cameras?];
        let catalog = Catalog::from_lists(ids, lists, self.sources(slots)?.as_ref(), columns);
        let text = |key: &str| self.metadata.get(key).cloned();
        let of_rows = |name: &String| {
            Metric::of_file(name).map_err(|problem| self.refuse(&format!("of its rows, {problem}")))
        };
        let of_rows = self.metadata.get("metric_of_rows").map(of_rows).transpose()?;
        let threshold =
            text("threshold").map(|text| match_rule(&text).map_err(|problem| self.refuse(&problem)));
        let origin = Origin {
            model: text("model"),
            source: text("source"),
            run: text("run"),
            metric: of_rows,
            threshold: threshold.transpose()?,
        };
        let next_id = self.optional_note("next_id").map_or(Ok(0), str::parse::<u64>);
        let next_id = next_id.map_err(|_| self.refuse("its `next_id` is no number"))?;
        let store = Store {
            metric,
            dimensions,
            origin,
            rows,
            catalog,
            next_id,
            path: Some(self.path.to_owned()),
            version: Some(self.map.version()),
            changed: false,
        };
        let checked = metric.check(store.view(), 0..slots, "rows");
        checked.map_err(|error| self.refuse(&error.to_string()))?;
        Ok(store)
    }

    fn sources(&self, slots: usize) -> Result<Option<Sources>> {
        let Some(text) = self.metadata.get("sources") else { return Ok(None) };
        let places = self.bytes("sources", Dtype::U32, &[slots])?;
        let places = places.as_chunks().0.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect();
        parse_sources(text, Some(places), slots).map(Some).map_err(|problem| self.refuse(&problem))
    }

    /// Ids that are not all different, or not in the order of the kind.
    pub(super) fn refuse_ids(&self) -> Error {
        self.refuse("its ids are not all different and in order")
    }

    pub(super) fn refuse(&self, problem: &str) -> Error {
        refuse(self.path, problem, Some("build the index again"))
    }

    pub(super) fn optional_note(&self, key: &str) -> Option<&str> {
        self.metadata.get(key).map(String::as_str)
    }

    pub(super) fn note(&self, key: &str) -> Result<&str> {
        self.optional_note(key)
            .ok_or_else(|| self.refuse(&format!("wanted `{key}` in its header, found none")))
    }

    pub(super) fn bytes(&self, name: &str, dtype: Dtype, shape: &[usize]) -> Result<&'a [u8]> {
        let tensor = self.tensor(name)?;
        if tensor.dtype() != dtype || tensor.shape() != shape {
            let found = format!("{} {:?}", tensor.dtype(), tensor.shape());
            return Err(self.refuse(&format!("wanted `{name}` of {dtype} {shape:?}, found {found}")));
        }
        Ok(tensor.data())
    }

    fn tensor(&self, name: &str) -> Result<safetensors::tensor::TensorView<'a>> {
        self.tensors.tensor(name).map_err(|_| self.refuse(&format!("wanted a tensor `{name}`, found none")))
    }

    /// A tensor of two dimensions, read or left where it is.
    pub(super) fn numbers<T: AnyBitPattern>(
        &self,
        name: &str,
        dtype: Dtype,
        value: impl Fn([u8; 4]) -> T,
    ) -> Result<([usize; 2], Values<T>)> {
        let tensor = self.tensor(name)?;
        let &[rows, cols] = tensor.shape() else {
            return Err(self.refuse(&format!("wanted `{name}` of 2 dimensions")));
        };
        let data = self.bytes(name, dtype, &[rows, cols])?;
        let values = if self.mapped {
            Values::mapped(self.map, self.map.span(data))
                .ok_or_else(|| self.refuse("its values cannot be used where they are"))?
        } else {
            let mut values = Vec::with_capacity(data.len() / 4);
            prefer_large_pages(&mut values);
            values.extend(data.as_chunks().0.iter().map(|&bytes| value(bytes)));
            Values::Owned(values)
        };
        Ok(([rows, cols], values))
    }

    fn list(&self, name: &str, slots: usize) -> Result<Option<Vec<Option<String>>>> {
        let Ok(tensor) = self.tensors.tensor(name) else { return Ok(None) };
        let data = self.bytes(name, Dtype::U8, tensor.shape())?;
        let list: Vec<Option<String>> = serde_json::from_slice(data)
            .map_err(|error| self.refuse(&format!("`{name}` is no JSON list of strings: {error}")))?;
        if list.len() != slots {
            return Err(self.refuse(&format!("wanted {slots} {name}, found {}", list.len())));
        }
        Ok(Some(list))
    }
}
