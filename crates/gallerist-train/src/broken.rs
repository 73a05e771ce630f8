//! Images of a run that could not be read.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{Result, json};

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
        json::read(path)
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
        json::write(path, images)
    }
}
