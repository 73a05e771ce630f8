//! Indices on disk: one `.safetensors` file, so that rows, names and graph cannot be of different
//! indices.
//!
//! - tensors `rows` f32 `[slots, dimensions]` and `ids` u64 `[slots]`;
//! - tensors `labels`, `paths`, `cameras`, each optional: u8 `[bytes]`, a JSON list with a string or
//!   null per slot;
//! - tensor `sources`, where any item has a source: u32 `[slots]`, the place of its source in the
//!   metadata's `sources`, a JSON list of [`Source`](crate::file::Source)s; 2^32 - 1 for none;
//! - with a graph: `alive` u8 `[slots]`, 0 for a slot that is no item any more; `levels` u8
//!   `[slots]`, the highest level of each; `links` u32 `[slots, 2 m]` of level 0, and
//!   `upper_links` u32 `[lists, m]` of the levels above, slot by slot; 2^32 - 1 where there is no
//!   link;
//! - metadata: `format` = `gallerist-index`, `format_version` = `2`, `kind`, `metric`, with a graph
//!   `hnsw` (its options, JSON) and `entry`, and, where known, `model`, `source`, `run` and `sources`;
//!   version `1`, without `sources`, is read too;
//! - metadata `sha256`: as in an embeddings file, of the header and of the tensor bytes.

use std::collections::HashMap;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use safetensors::{Dtype, SafeTensors};
use serde_json::{Map, Value, json};

use super::catalog::Catalog;
use super::hnsw::{Graph, HnswOptions};
use super::values::{Plain, Values};
use super::{IndexKind, MAX_ID, Origin};
use crate::file::Sources;
use crate::file::map::FileMap;
use crate::file::tensors::{
    AGAIN, CHECKSUM_DIGITS, checksum_holds, encode, parse_sources, sources_text, write_sealed,
};
use crate::search::Metric;
use crate::{Error, Result};
use gallerist_util::memory::prefer_large_pages;

const FORMAT: &str = "gallerist-index";
const VERSION: &str = "2";
/// The versions that are read.
const VERSIONS: [&str; 2] = ["1", VERSION];
/// The longest header that is read.
const MAX_HEADER: u64 = 1 << 20;

/// What a file holds.
pub(super) struct Contents {
    pub(super) metric: Metric,
    pub(super) dimensions: usize,
    pub(super) origin: Origin,
    pub(super) rows: Values<f32>,
    pub(super) catalog: Catalog,
    /// With a graph: its options, which slots are items, and the graph.
    pub(super) graph: Option<(HnswOptions, Vec<bool>, Graph)>,
}

pub(super) fn refuse(path: &Path, problem: impl Into<String>, hint: Option<&str>) -> Error {
    Error::Format {
        path: path.to_owned(),
        format: "an index",
        problem: problem.into(),
        hint: hint.map(str::to_owned),
    }
}

/// True when `path` is a file that an index wrote, by what it says of itself; whether it is whole
/// is seen when it is read.
pub fn is_index(path: impl AsRef<Path>) -> bool {
    let header = || -> std::io::Result<Vec<u8>> {
        let mut file = gallerist_util::files::open_regular(path)?;
        let mut length = [0; 8];
        file.read_exact(&mut length)?;
        let mut header = Vec::new();
        file.take(u64::from_le_bytes(length).min(MAX_HEADER)).read_to_end(&mut header)?;
        Ok(header)
    };
    let header = header().ok().and_then(|header| serde_json::from_slice::<Value>(&header).ok());
    header.is_some_and(|header| header["__metadata__"]["format"] == FORMAT)
}

/// One tensor to be written.
enum Tensor<'a> {
    F32(&'a [f32]),
    U32(&'a [u32]),
    U64(&'a [u64]),
    U8(Vec<u8>),
}

pub(super) fn write(
    path: &Path,
    (metric, dimensions, origin): (Metric, usize, &Origin),
    (rows, catalog): (&Values<f32>, &Catalog),
    graph: Option<(&HnswOptions, &[bool], &Graph)>,
) -> Result<()> {
    let slots = catalog.len();
    let mut tensors = vec![
        ("rows", vec![slots, dimensions], Tensor::F32(rows.as_slice())),
        ("ids", vec![slots], Tensor::U64(catalog.ids())),
    ];
    for (name, list) in catalog.lists() {
        if list.iter().any(Option::is_some) {
            let text = serde_json::to_vec(&list).expect("a list of strings is valid JSON");
            tensors.push((name, vec![text.len()], Tensor::U8(text)));
        }
    }
    let sources = catalog.sources();
    let mut metadata = Map::new();
    let mut note = |key: &str, value: &str| metadata.insert(key.to_owned(), Value::from(value));
    note("format", FORMAT);
    note("format_version", VERSION);
    note("sha256", &"0".repeat(CHECKSUM_DIGITS));
    if let Some(sources) = &sources {
        note("sources", &sources_text(sources.list()));
        tensors.push(("sources", vec![slots], Tensor::U32(sources.places())));
    }
    note("metric", json!(metric).as_str().expect("a metric is a word"));
    note("kind", if graph.is_some() { "hnsw" } else { "exact" });
    for (key, value) in [("model", &origin.model), ("source", &origin.source), ("run", &origin.run)] {
        if let Some(value) = value {
            note(key, value);
        }
    }
    if let Some(metric) = origin.metric {
        note("metric_of_rows", metric.name());
    }
    if let Some((options, alive, graph)) = graph {
        note("hnsw", &json!(options).to_string());
        if let Some(entry) = graph.entry {
            note("entry", &entry.to_string());
        }
        let (base, upper) = (graph.base.as_slice(), graph.upper.as_slice());
        tensors.push((
            "alive",
            vec![slots],
            Tensor::U8(alive.iter().map(|&alive| u8::from(alive)).collect()),
        ));
        tensors.push(("levels", vec![slots], Tensor::U8(graph.levels.clone())));
        tensors.push(("links", vec![slots, 2 * graph.m], Tensor::U32(base)));
        tensors.push(("upper_links", vec![upper.len() / graph.m, graph.m], Tensor::U32(upper)));
    }
    // Numbers first, the widest in front: every tensor starts at a multiple of its values' size.
    tensors.sort_by_key(|(_, _, tensor)| match tensor {
        Tensor::U64(_) => 0,
        Tensor::F32(_) | Tensor::U32(_) => 1,
        Tensor::U8(_) => 2,
    });

    let mut header = Map::new();
    let mut end = 0;
    for (name, shape, tensor) in &tensors {
        let (dtype, bytes) = match tensor {
            Tensor::F32(values) => ("F32", size_of_val(*values)),
            Tensor::U32(values) => ("U32", size_of_val(*values)),
            Tensor::U64(values) => ("U64", size_of_val(*values)),
            Tensor::U8(values) => ("U8", values.len()),
        };
        let offsets = [end, end + bytes];
        end += bytes;
        header.insert((*name).to_owned(), json!({"dtype": dtype, "shape": shape, "data_offsets": offsets}));
    }
    header.insert("__metadata__".to_owned(), Value::Object(metadata));
    write_sealed(path, &header, |take| {
        tensors.iter().try_for_each(|(_, _, tensor)| match tensor {
            Tensor::F32(values) => encode(values, f32::to_le_bytes, take),
            Tensor::U32(values) => encode(values, u32::to_le_bytes, take),
            Tensor::U64(values) => encode(values, u64::to_le_bytes, take),
            Tensor::U8(values) => take(values),
        })?;
        // Before the file takes its place: what was copied from a mapped index must be the index.
        rows.check().map_err(std::io::Error::other)
    })
}

/// Reads and checks an index; with `mapped` its rows and links stay in the file.
pub(super) fn read(path: &Path, mapped: bool) -> Result<Contents> {
    let map = Arc::new(FileMap::open(path)?);
    let contents = parse(path, &map, mapped);
    map.check()?;
    contents
}

fn parse(path: &Path, map: &Arc<FileMap>, mapped: bool) -> Result<Contents> {
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
    Reader { path, map, tensors, metadata, mapped }.contents()
}

struct Reader<'a> {
    path: &'a Path,
    map: &'a Arc<FileMap>,
    tensors: SafeTensors<'a>,
    metadata: HashMap<String, String>,
    mapped: bool,
}

impl<'a> Reader<'a> {
    fn contents(&self) -> Result<Contents> {
        let metric = serde_json::from_value(Value::from(self.note("metric")?))
            .map_err(|_| self.refuse("its metric is unknown"))?;
        let (shape, rows) = self.numbers("rows", Dtype::F32, f32::from_le_bytes)?;
        let (slots, dimensions) = (shape[0], shape[1]);
        super::check_dimensions(dimensions).map_err(|error| self.refuse(&error.to_string()))?;
        crate::search::check_count(slots, "the index").map_err(|error| self.refuse(&error.to_string()))?;
        let ids = self.bytes("ids", Dtype::U64, &[slots])?;
        let ids: Vec<u64> = ids.as_chunks().0.iter().map(|&bytes| u64::from_le_bytes(bytes)).collect();
        if ids.iter().any(|&id| id > MAX_ID) {
            return Err(self.refuse("an id is not below 2^63"));
        }
        let [labels, paths, cameras] = ["labels", "paths", "cameras"].map(|name| self.list(name, slots));
        let catalog = Catalog::from_lists(ids, [labels?, paths?, cameras?], self.sources(slots)?.as_ref());
        let kind = match self.note("kind")? {
            "exact" => IndexKind::Exact,
            "hnsw" => IndexKind::Hnsw,
            _ => return Err(self.refuse("its kind is unknown")),
        };
        let graph = if kind == IndexKind::Hnsw { Some(self.graph(slots)?) } else { None };
        self.check_ids(catalog.ids(), graph.as_ref().map(|(_, alive, _)| &alive[..]))?;
        let text = |key: &str| self.metadata.get(key).cloned();
        let of_rows = |name: &String| {
            Metric::named(name).ok_or_else(|| self.refuse("the metric of its rows is unknown"))
        };
        let of_rows = self.metadata.get("metric_of_rows").map(of_rows).transpose()?;
        let origin =
            Origin { model: text("model"), source: text("source"), run: text("run"), metric: of_rows };
        let contents = Contents { metric, dimensions, origin, rows, catalog, graph };
        let view = crate::MatrixView::new(slots, dimensions, contents.rows.as_slice())?;
        metric.check(view, 0..slots, "rows").map_err(|error| self.refuse(&error.to_string()))?;
        Ok(contents)
    }

    fn sources(&self, slots: usize) -> Result<Option<Sources>> {
        let Some(text) = self.metadata.get("sources") else { return Ok(None) };
        let places = self.bytes("sources", Dtype::U32, &[slots])?;
        let places = places.as_chunks().0.iter().map(|&bytes| u32::from_le_bytes(bytes)).collect();
        parse_sources(text, Some(places), slots).map(Some).map_err(|problem| self.refuse(&problem))
    }

    fn graph(&self, slots: usize) -> Result<(HnswOptions, Vec<bool>, Graph)> {
        let options: HnswOptions = serde_json::from_str(self.note("hnsw")?)
            .map_err(|error| self.refuse(&format!("its options are not readable: {error}")))?;
        let alive = self.bytes("alive", Dtype::U8, &[slots])?.iter().map(|&byte| byte != 0).collect();
        let levels = self.bytes("levels", Dtype::U8, &[slots])?.to_vec();
        let (shape, base) = self.numbers("links", Dtype::U32, u32::from_le_bytes)?;
        let (_, upper) = self.numbers("upper_links", Dtype::U32, u32::from_le_bytes)?;
        if options.m < 2 || shape != [slots, options.m.saturating_mul(2)] {
            return Err(self.refuse("its links are not twice `m` per slot"));
        }
        let entry = match self.metadata.get("entry") {
            None => None,
            Some(entry) => Some(entry.parse().map_err(|_| self.refuse("its entry is no number"))?),
        };
        let graph = Graph::from_parts(options.m, levels, base, upper, entry);
        Ok((options, alive, graph.map_err(|problem: String| self.refuse(&problem))?))
    }

    /// An exact index is in the order of ids; with a graph the items' ids are all different.
    fn check_ids(&self, ids: &[u64], alive: Option<&[bool]>) -> Result<()> {
        let rising = |ids: &[u64]| ids.is_sorted_by(|a, b| a < b);
        let holds = match alive {
            None => rising(ids),
            Some(alive) => {
                let mut living: Vec<u64> =
                    ids.iter().zip(alive).filter(|&(_, &alive)| alive).map(|(&id, _)| id).collect();
                living.sort_unstable();
                rising(&living)
            }
        };
        if holds { Ok(()) } else { Err(self.refuse("its ids are not all different and in order")) }
    }

    fn refuse(&self, problem: &str) -> Error {
        refuse(self.path, problem, Some("build the index again"))
    }

    fn note(&self, key: &str) -> Result<&str> {
        let note = self.metadata.get(key).map(String::as_str);
        note.ok_or_else(|| self.refuse(&format!("wanted `{key}` in its header, found none")))
    }

    fn bytes(&self, name: &str, dtype: Dtype, shape: &[usize]) -> Result<&'a [u8]> {
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
    fn numbers<T: Plain>(
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
