//! The times of a run, in a file of their own: the other files of two runs of one run file are equal.

use std::path::Path;

use gallerist_retrieval::file::{read_regular_to_string, write_atomically};
use serde::{Deserialize, Serialize};

use crate::{Error, Result};

/// A run's `timing.json`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Timing {
    /// Steps done when it was written.
    pub step: usize,
    /// Seconds of training, validations left out.
    pub training_seconds: f64,
    /// Share of the time of the steps spent waiting for images, of the call that ended the run.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waited_share: Option<f64>,
    /// Trained images per second, of the same call.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images_per_second: Option<f64>,
}

impl Timing {
    /// Reads it; `None` where there is no file, as in runs of earlier versions.
    ///
    /// # Errors
    ///
    /// When the file cannot be read.
    pub fn load(path: &Path) -> Result<Option<Self>> {
        if !path.exists() {
            return Ok(None);
        }
        let io = |source| Error::Io { action: "read", path: path.into(), source };
        let text = read_regular_to_string(path).map_err(io)?;
        let timing = serde_json::from_str(&text);
        timing.map(Some).map_err(|e| io(std::io::Error::new(std::io::ErrorKind::InvalidData, e)))
    }

    /// Writes it.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        write_atomically(path, |file| {
            serde_json::to_writer_pretty(&mut *file, self)?;
            std::io::Write::write_all(file, b"\n")
        })?;
        Ok(())
    }
}
