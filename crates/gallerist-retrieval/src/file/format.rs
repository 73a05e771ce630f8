//! The format of a file, by its name.

use std::path::Path;

use crate::{Error, Result};

pub(super) enum Format {
    Npy,
    Safetensors,
}

pub(super) fn format_of(path: &Path) -> Result<Format> {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("npy") => Ok(Format::Npy),
        Some("safetensors") => Ok(Format::Safetensors),
        _ => Err(Error::Extension { path: path.to_owned(), wanted: "`.npy` or `.safetensors`" }),
    }
}

/// The format of a file that is read: a missing file is reported before an unknown name.
pub(super) fn format_of_existing(path: &Path) -> Result<Format> {
    format_of(path).map_err(|unknown| match std::fs::metadata(path) {
        Ok(_) => unknown,
        Err(e) => Error::io("read", path, e),
    })
}
