//! The times of a run, in a file of their own: the other files of two runs of one run file are equal.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::{Result, json};

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
        path.exists().then(|| json::read(path)).transpose()
    }

    /// Writes it.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        json::write(path, self)
    }
}
