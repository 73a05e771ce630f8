//! The JSON files of a run directory.

use std::io;
use std::path::Path;

use gallerist_retrieval::file::{read_regular_to_string, write_atomically};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::{Error, Result};

/// Reads a file.
///
/// # Errors
///
/// [`Error::Io`] when it is missing or damaged.
pub fn read<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let io = |source| Error::Io { action: "read", path: path.into(), source };
    let text = read_regular_to_string(path).map_err(io)?;
    serde_json::from_str(&text).map_err(|e| io(io::Error::new(io::ErrorKind::InvalidData, e)))
}

/// Writes a file, indented and with a newline at its end.
///
/// # Errors
///
/// When it cannot be written.
pub fn write<T: Serialize + ?Sized>(path: &Path, value: &T) -> Result<()> {
    write_atomically(path, |file| {
        serde_json::to_writer_pretty(&mut *file, value)?;
        file.write_all(b"\n")
    })?;
    Ok(())
}
