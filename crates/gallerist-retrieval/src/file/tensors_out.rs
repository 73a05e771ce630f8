//! Embedding sets to `.safetensors` files.

use std::io;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::columns;
use super::sealed::{CHECKSUM_DIGITS, Take, encode, write_sealed};
use super::set::EmbeddingSet;
use super::tensors::{FORMAT, VERSION, VERSION_WITH_COLUMNS, match_rule_text, sources_text};
use crate::compact::Values;
use crate::{Code, CompactMatrix, Result};

/// The header is written here and not by the `safetensors` crate, whose metadata is a hash map:
/// the same set gives the same bytes.
pub(super) fn save(path: &Path, set: &EmbeddingSet, code: Option<Code>) -> Result<()> {
    let matrix = &set.embeddings;
    let compact = code.map(|code| CompactMatrix::encode(matrix, code)).transpose()?;
    let (dtype, parts) = match compact.as_ref().map(CompactMatrix::values) {
        None => ("F32", vec![Part::F32(matrix.as_slice())]),
        Some(Values::Bf16(values)) => ("BF16", vec![Part::Bf16(values)]),
        // The scales come first, so that they are aligned where the file is mapped.
        Some(Values::Int8 { values, scales }) => ("I8", vec![Part::F32(scales), Part::Int8(values)]),
    };
    let mut header = Map::new();
    let mut end = 0;
    if let [scales, _] = &parts[..] {
        end = scales.bytes();
        let shape = [matrix.rows()];
        header.insert("scales".to_owned(), json!({"dtype": "F32", "shape": shape, "data_offsets": [0, end]}));
    }
    let start = end;
    end += parts.last().expect("there are embeddings").bytes();
    header.insert(
        "embeddings".to_owned(),
        json!({"dtype": dtype, "shape": [matrix.rows(), matrix.cols()], "data_offsets": [start, end]}),
    );
    let sources = set.sources.as_ref().filter(|sources| !sources.list().is_empty());
    if let Some(sources) = sources.filter(|sources| !sources.is_one()) {
        let start = end;
        end += size_of_val(sources.places());
        let shape = [sources.len()];
        let place = json!({"dtype": "U32", "shape": shape, "data_offsets": [start, end]});
        header.insert("sources".to_owned(), place);
    }
    let mut lists = Vec::new();
    for (name, list) in [("labels", &set.labels), ("paths", &set.paths), ("cameras", &set.cameras)] {
        let Some(list) = list else { continue };
        let text = serde_json::to_vec(list).expect("a list of strings is valid JSON");
        let start = end;
        end += text.len();
        header.insert(
            name.to_owned(),
            json!({"dtype": "U8", "shape": [text.len()], "data_offsets": [start, end]}),
        );
        lists.push(text);
    }
    let columns = columns::Tensors::new(&set.columns);
    columns.describe(&mut header, end);
    let columns_text = columns.metadata();
    let mut metadata = Map::new();
    let mut note = |key: &str, value: &str| metadata.insert(key.to_owned(), Value::from(value));
    note("format", FORMAT);
    note("format_version", if columns_text.is_some() { VERSION_WITH_COLUMNS } else { VERSION });
    note("sha256", &"0".repeat(CHECKSUM_DIGITS));
    if let Some(model) = &set.model {
        note("model", model);
    }
    if let Some(source) = &set.source {
        note("source", source);
    }
    if let Some(sources) = sources {
        note("sources", &sources_text(sources.list()));
    }
    if let Some(run) = &set.run {
        note("run", run);
    }
    if let Some(metric) = set.metric {
        note("metric", metric.name());
    }
    if let Some(protocol) = &set.protocol {
        note("protocol", protocol);
    }
    if let Some(text) = &columns_text {
        note("columns", text);
    }
    if let Some(rule) = &set.threshold {
        note("threshold", &match_rule_text(rule));
    }
    header.insert("__metadata__".to_owned(), Value::Object(metadata));

    write_sealed(path, &header, |take| {
        parts.iter().try_for_each(|part| part.encode(take))?;
        if let Some(sources) = sources.filter(|sources| !sources.is_one()) {
            encode(sources.places(), u32::to_le_bytes, take)?;
        }
        lists.iter().try_for_each(|list| take(list))?;
        columns.encode(take)
    })
}

/// The values of a tensor.
enum Part<'a> {
    F32(&'a [f32]),
    Bf16(&'a [u16]),
    Int8(&'a [i8]),
}

impl Part<'_> {
    fn bytes(&self) -> usize {
        match self {
            Self::F32(values) => size_of_val(*values),
            Self::Bf16(values) => size_of_val(*values),
            Self::Int8(values) => size_of_val(*values),
        }
    }

    /// Hands the little-endian bytes to `take`, a block at a time.
    fn encode(&self, take: &mut Take) -> io::Result<()> {
        match self {
            Self::F32(values) => encode(values, f32::to_le_bytes, take),
            Self::Bf16(values) => encode(values, u16::to_le_bytes, take),
            Self::Int8(values) => encode(values, i8::to_le_bytes, take),
        }
    }
}
