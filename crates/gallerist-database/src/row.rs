//! The texts and columns of a row, and the digest that tells whether an item has changed.

use gallerist_retrieval::EmbeddingSet;
use gallerist_retrieval::columns::{Columns, Value};
use gallerist_retrieval::index::Items;
use serde_json::{Map, Value as Json, json};
use sha2::{Digest, Sha256};

use crate::{Error, Result};

/// A text of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    /// Its class.
    Label,
    /// Its image.
    Path,
    /// Its camera.
    Camera,
    /// The name of its source.
    Source,
}

impl Text {
    /// The texts of an item, in the order of the digest.
    pub const ALL: [Self; 4] = [Self::Label, Self::Path, Self::Camera, Self::Source];

    /// The name of the field.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Label => "label",
            Self::Path => "path",
            Self::Camera => "camera",
            Self::Source => "source",
        }
    }

    /// The text of row `row`, where it has one.
    pub fn of(self, set: &EmbeddingSet, row: usize) -> Option<&str> {
        let list = match self {
            Self::Label => &set.labels,
            Self::Path => &set.paths,
            Self::Camera => &set.cameras,
            Self::Source => return set.source_of(row),
        };
        list.as_ref().map(|list| list[row].as_str())
    }
}

/// What the digest of an item without a text has in its place.
pub const ABSENT: &str = "\0";

/// The further columns of a row as JSON; `None` if it has no values.
///
/// A number, a text, a list of tags, or `{"date": "2024-05-01"}`; in the order of the names, so that the digest does not
/// depend on the order of columns.
pub fn columns_as_json(columns: &Columns, row: usize) -> Option<Vec<u8>> {
    let of_value = |value: Value| match value {
        Value::Number(number) => json!(number),
        Value::Date(text) => json!({ "date": text }),
        Value::Text(text) => json!(text),
        Value::Tags(_) => json!(value.tags().collect::<Vec<_>>()),
    };
    let columns = columns.of_row(row);
    let values: Map<String, Json> = match columns.is_empty() {
        true => Map::new(),
        false => columns.row(0).into_iter().map(|(name, value)| (name.to_owned(), of_value(value))).collect(),
    };
    (!values.is_empty()).then(|| serde_json::to_vec(&values).expect("names and values are valid JSON"))
}

/// The first 63 bits of a SHA-256 over everything that is kept of row `row`.
pub fn digest(set: &EmbeddingSet, row: usize) -> i64 {
    let mut hash = Sha256::new();
    for field in Text::ALL {
        let text = field.of(set, row);
        // Without a source the digest is that of version 1 of a collection in Milvus.
        if text.is_some() || field != Text::Source {
            let text = text.unwrap_or(ABSENT);
            hash.update((text.len() as u64).to_le_bytes());
            hash.update(text);
        }
    }
    for value in set.embeddings.row(row) {
        hash.update(value.to_le_bytes());
    }
    // Without columns the digest is that of version 2.
    if let Some(json) = columns_as_json(&set.columns, row) {
        hash.update(b"columns");
        hash.update(json);
    }
    let hash = hash.finalize();
    i64::from_be_bytes(*hash.first_chunk().expect("a SHA-256 has 32 bytes")) & i64::MAX
}

/// Refuses texts that a collection cannot keep: longer ones than `limit` bytes, and [`ABSENT`].
///
/// # Errors
/// [`Error::Text`].
pub fn check_texts(items: &Items, limit: Option<usize>) -> Result<()> {
    let set = items.set();
    for text in Text::ALL {
        for (row, value) in (0..items.len()).filter_map(|row| Some((row, text.of(set, row)?))) {
            let problem = match limit {
                Some(limit) if value.len() > limit => {
                    format!("has {} bytes; a collection keeps at most {limit}", value.len())
                }
                _ if value == ABSENT => "is a lone NUL, which stands for none".to_owned(),
                _ => continue,
            };
            return Err(Error::Text { field: text.name(), row, problem });
        }
    }
    Ok(())
}
