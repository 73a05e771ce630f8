//! Embeddings with metadata in tables: Parquet and Arrow files (feature `arrow`).
//!
//! A table has a column of embeddings (a list of numbers per row) and columns of labels, paths and cameras; every other
//! column of numbers, dates, text or lists of text becomes a [column](crate::columns) of the set.

#[cfg(feature = "arrow")]
mod arrow_table;
#[cfg(feature = "arrow")]
mod build;
#[cfg(feature = "arrow")]
mod cells;
#[cfg(feature = "arrow")]
mod embedding;
#[cfg(feature = "arrow")]
mod fault;
#[cfg(feature = "arrow")]
mod further;
#[cfg(feature = "arrow")]
mod guard;
#[cfg(feature = "arrow")]
mod kind;
#[cfg(feature = "arrow")]
mod opened;
#[cfg(feature = "arrow")]
mod pages;
#[cfg(feature = "arrow")]
mod parquet_table;
#[cfg(feature = "arrow")]
mod read;
#[cfg(feature = "arrow")]
mod write;

use std::path::Path;

#[cfg(not(feature = "arrow"))]
use super::set::EmbeddingSet;
#[cfg(not(feature = "arrow"))]
use super::unread_column::Unread;
use crate::Error;
#[cfg(not(feature = "arrow"))]
use crate::Result;
#[cfg(feature = "arrow")]
pub(super) use read::{described, load, unread};
#[cfg(feature = "arrow")]
pub(super) use write::save;

/// The columns of a table by their names; what is not named is found by its usual name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TableColumns {
    /// The embeddings. Usual: `embedding`, `embeddings`, `vector`, else the only list of numbers.
    pub embedding: Option<String>,
    /// The labels. Usual: `label`, `labels`.
    pub label: Option<String>,
    /// The paths of the images. Usual: `path`, `paths`.
    pub path: Option<String>,
    /// The cameras. Usual: `camera`, `cameras`.
    pub camera: Option<String>,
}

/// The format of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TableFormat {
    Parquet,
    /// Arrow IPC, also called Feather version 2, as a file or a stream.
    Arrow,
}

impl TableFormat {
    pub(super) fn of(extension: &str) -> Option<Self> {
        match extension {
            "parquet" => Some(Self::Parquet),
            "arrow" | "feather" | "ipc" => Some(Self::Arrow),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Parquet => "Parquet",
            Self::Arrow => "Arrow",
        }
    }
}

fn refuse(path: &Path, format: TableFormat, problem: impl Into<String>, hint: Option<String>) -> Error {
    Error::Format { path: path.to_owned(), format: format.name(), problem: problem.into(), hint }
}

#[cfg(not(feature = "arrow"))]
fn not_built(path: &Path, format: TableFormat) -> Error {
    let hint = "build it with `cargo build --release --features arrow`".to_owned();
    let problem = "this program was built without Parquet and Arrow";
    refuse(path, format, problem, Some(hint))
}

#[cfg(not(feature = "arrow"))]
pub(super) fn load(path: &Path, format: TableFormat, _columns: &TableColumns) -> Result<EmbeddingSet> {
    Err(not_built(path, format))
}

#[cfg(not(feature = "arrow"))]
pub(super) fn unread(path: &Path, format: TableFormat, _columns: &TableColumns) -> Result<Vec<Unread>> {
    Err(not_built(path, format))
}

#[cfg(not(feature = "arrow"))]
pub(super) fn described(path: &Path, format: TableFormat) -> Result<Option<(usize, usize)>> {
    Err(not_built(path, format))
}

#[cfg(not(feature = "arrow"))]
pub(super) fn save(path: &Path, format: TableFormat, _set: &EmbeddingSet) -> Result<()> {
    Err(not_built(path, format))
}
