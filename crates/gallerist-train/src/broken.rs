//! Images of a run that could not be read.

use std::path::Path;

use gallerist_retrieval::file::{read_regular_to_string, write_atomically};
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// An image that could not be read, as `broken_images.json` lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BrokenImage {
    /// The purpose of the image: `train`, `validation`, `test`, `query`, `gallery`.
    pub set: String,
    /// Its path in its source.
    pub image: String,
    /// Why it could not be read, with the path of the file.
    pub reason: String,
}

impl BrokenImage {
    /// The list of a run; empty where there is no file.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub fn load(path: &Path) -> Result<Vec<Self>> {
        if !path.exists() {
            return Ok(Vec::new());
        }
        let io = |source| Error::Io { action: "read", path: path.into(), source };
        let text = read_regular_to_string(path).map_err(io)?;
        serde_json::from_str(&text).map_err(|e| io(std::io::Error::new(std::io::ErrorKind::InvalidData, e)))
    }

    /// Writes the list of a run; no file where there are none.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn save(images: &[Self], path: &Path) -> Result<()> {
        if images.is_empty() && !path.exists() {
            return Ok(());
        }
        write_atomically(path, |file| {
            serde_json::to_writer_pretty(&mut *file, images)?;
            std::io::Write::write_all(file, b"\n")
        })?;
        Ok(())
    }
}
