//! Writing tables.

use std::collections::HashMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use arrow_array::builder::{ListBuilder, StringBuilder};
use arrow_array::{ArrayRef, FixedSizeListArray, Float32Array, Float64Array, RecordBatch, StringArray};
use arrow_ipc::writer::FileWriter;
use arrow_schema::{ArrowError, DataType, Field, Schema};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use parquet::schema::types::ColumnPath;

use super::build::{DESCRIPTION, Description, SOURCE};
use super::cells::KIND;
use super::{TableFormat, refuse};
use crate::Result;
use crate::columns::{Column, ColumnKind, Value};
use crate::file::{EmbeddingSet, write_atomically};

/// The name of the column of embeddings.
const EMBEDDING: &str = "embedding";
/// Rows of a batch.
const BATCH: usize = 4096;

pub(in crate::file) fn save(path: &Path, format: TableFormat, set: &EmbeddingSet) -> Result<()> {
    if set.columns.get(EMBEDDING).is_some() || set.columns.get(SOURCE).is_some() {
        let problem = format!("a further column is called `{EMBEDDING}` or `{SOURCE}`");
        return Err(refuse(path, format, problem, Some("rename it in the manifest".to_owned())));
    }
    let schema = Arc::new(schema(set));
    let batches = || {
        let rows = set.embeddings.rows();
        let schema = Arc::clone(&schema);
        (0..rows).step_by(BATCH).map(move |start| batch(set, &schema, start..rows.min(start + BATCH)))
    };
    write_atomically(path, |file| match format {
        TableFormat::Parquet => {
            let zstd = Compression::ZSTD(ZstdLevel::default());
            let of_values = ["list", "element"].map(str::to_owned);
            let values = ColumnPath::new([EMBEDDING.to_owned()].into_iter().chain(of_values).collect());
            // Floats of embeddings do not become smaller.
            let properties = WriterProperties::builder()
                .set_compression(zstd)
                .set_column_dictionary_enabled(values.clone(), false)
                .set_column_compression(values, Compression::UNCOMPRESSED)
                .build();
            let mut content = Vec::new();
            let mut writer = ArrowWriter::try_new(&mut content, Arc::clone(&schema), Some(properties))
                .map_err(io::Error::other)?;
            for batch in batches() {
                writer.write(&batch.map_err(io::Error::other)?).map_err(io::Error::other)?;
            }
            writer.close().map_err(io::Error::other)?;
            file.write_all(&content)
        }
        TableFormat::Arrow => {
            let mut writer = FileWriter::try_new(file, &schema).map_err(io::Error::other)?;
            for batch in batches() {
                writer.write(&batch.map_err(io::Error::other)?).map_err(io::Error::other)?;
            }
            writer.finish().map_err(io::Error::other)
        }
    })
}

fn lists(set: &EmbeddingSet) -> impl Iterator<Item = (&'static str, &Vec<String>)> {
    [("label", &set.labels), ("path", &set.paths), ("camera", &set.cameras)]
        .into_iter()
        .filter_map(|(name, list)| Some((name, list.as_ref()?)))
}

/// Whether rows have different sources, or some have none.
fn has_source_column(set: &EmbeddingSet) -> bool {
    set.sources.as_ref().is_some_and(|sources| !sources.list().is_empty() && !sources.is_one())
}

fn schema(set: &EmbeddingSet) -> Schema {
    let item = Arc::new(Field::new("element", DataType::Float32, false));
    let vectors = DataType::FixedSizeList(item, set.embeddings.cols() as i32);
    let mut fields = vec![Field::new(EMBEDDING, vectors, false)];
    fields.extend(lists(set).map(|(name, _)| Field::new(name, DataType::Utf8, false)));
    if has_source_column(set) {
        fields.push(Field::new(SOURCE, DataType::Utf8, true));
    }
    for column in set.columns.iter() {
        let kind = match column.kind() {
            ColumnKind::Number => DataType::Float64,
            ColumnKind::Date | ColumnKind::Text => DataType::Utf8,
            ColumnKind::Tags => DataType::List(Arc::new(Field::new_list_field(DataType::Utf8, true))),
        };
        let metadata = HashMap::from([(KIND.to_owned(), column.kind().to_string())]);
        fields.push(Field::new(column.name(), kind, true).with_metadata(metadata));
    }
    let description = Description {
        model: set.model.clone(),
        source: set.source.clone(),
        sources: set.sources.as_ref().map_or(vec![], |sources| sources.list().to_vec()),
        run: set.run.clone(),
        metric: set.metric,
        protocol: set.protocol.clone(),
        threshold: set.threshold.clone(),
        rows: Some(set.embeddings.rows()),
    };
    let description = serde_json::to_string(&description).expect("texts and finite numbers");
    Schema::new(fields).with_metadata(HashMap::from([(DESCRIPTION.to_owned(), description)]))
}

fn batch(
    set: &EmbeddingSet,
    schema: &Arc<Schema>,
    rows: std::ops::Range<usize>,
) -> std::result::Result<RecordBatch, ArrowError> {
    let cols = set.embeddings.cols();
    let values = &set.embeddings.as_slice()[rows.start * cols..rows.end * cols];
    let values = Arc::new(Float32Array::from(values.to_vec()));
    let item = Arc::new(Field::new("element", DataType::Float32, false));
    let vectors = FixedSizeListArray::try_new(item, cols as i32, values, None)?;
    let mut arrays: Vec<ArrayRef> = vec![Arc::new(vectors)];
    for (_, list) in lists(set) {
        arrays.push(Arc::new(StringArray::from_iter_values(&list[rows.clone()])));
    }
    if has_source_column(set) {
        arrays.push(Arc::new(rows.clone().map(|row| set.source_of(row)).collect::<StringArray>()));
    }
    arrays.extend(set.columns.iter().map(|column| cells(column, rows.clone())));
    RecordBatch::try_new(Arc::clone(schema), arrays)
}

fn cells(column: &Column, rows: std::ops::Range<usize>) -> ArrayRef {
    match column.kind() {
        ColumnKind::Number => {
            let number =
                |row| if let Some(Value::Number(number)) = column.value(row) { Some(number) } else { None };
            Arc::new(rows.map(number).collect::<Float64Array>())
        }
        ColumnKind::Tags => {
            let mut lists = ListBuilder::new(StringBuilder::new());
            for row in rows {
                match column.value(row) {
                    Some(value) => {
                        value.tags().for_each(|tag| lists.values().append_value(tag));
                        lists.append(true);
                    }
                    None => lists.append(false),
                }
            }
            Arc::new(lists.finish())
        }
        ColumnKind::Date | ColumnKind::Text => Arc::new(
            rows.map(|row| column.value(row).map(|value| value.to_string())).collect::<StringArray>(),
        ),
    }
}
