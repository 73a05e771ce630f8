//! The format of a file, by its name.

use std::path::Path;

use super::table::TableFormat;
use crate::{Error, Result};

pub(super) enum Format {
    Npy,
    Safetensors,
    Table(TableFormat),
    /// The list of the shards of a gallery.
    Shards,
}

pub(super) fn format_of(path: &Path) -> Result<Format> {
    let extension = path.extension().and_then(|extension| extension.to_str());
    match extension {
        Some("npy") => Ok(Format::Npy),
        Some("safetensors") => Ok(Format::Safetensors),
        other => other.and_then(TableFormat::of).map(Format::Table).ok_or_else(|| Error::Extension {
            path: path.to_owned(),
            wanted: match cfg!(feature = "arrow") {
                true => "`.npy`, `.safetensors`, `.parquet`, `.arrow`, `.feather` or `.ipc`",
                false => "`.npy` or `.safetensors`",
            },
        }),
    }
}

/// The format of a file that is read. Images and missing files are reported before an unknown name.
pub(super) fn format_of_existing(path: &Path) -> Result<Format> {
    let images = |what| Err(Error::NotEmbeddings { path: path.to_owned(), what });
    match std::fs::metadata(path) {
        Ok(found) if found.is_dir() => images("a folder"),
        Ok(_) => match path.extension().and_then(|extension| extension.to_str()) {
            Some("zip" | "tar") => images("an archive of images"),
            Some("csv" | "tsv") => images("a table"),
            Some("json") => Ok(Format::Shards),
            _ => format_of(path),
        },
        // Where the name is known, opening the file reports the error.
        Err(e) => format_of(path).map_err(|_| Error::io("read", path, e)),
    }
}
