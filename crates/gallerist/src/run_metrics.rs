//! The file `metrics.json` of a run.

use std::path::Path;

use gallerist_data::ClassOverlap;
use gallerist_retrieval::eval::{Evaluation, Further};
use gallerist_train::{Error, Result};
use serde::{Deserialize, Serialize};

/// A run's `metrics.json`.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunMetrics {
    /// The test metrics: protocol, values by name, queries, ties.
    #[serde(flatten)]
    pub evaluation: Evaluation,
    /// The other measurements of `[evaluation]`: intervals, re-ranking, clusters, pairs.
    #[serde(flatten)]
    pub further: Further,
    /// Which checkpoint was evaluated: `best` or `last`.
    pub checkpoint: String,
    /// Its step.
    pub step: usize,
    /// The model's fingerprint.
    pub model: String,
    /// Seconds of training, validations left out.
    pub training_seconds: f64,
    /// Share of that time spent waiting for images.
    pub waited_share: f64,
    /// Trained images per second.
    pub images_per_second: f64,
    /// Images, training and test, that could not be read.
    pub broken_images: usize,
    /// Test classes that were trained on; absent where that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_overlap: Option<ClassOverlap>,
}

impl RunMetrics {
    /// Reads a run's `metrics.json`.
    ///
    /// # Errors
    ///
    /// When the file is missing or damaged.
    pub fn load(path: &Path) -> Result<Self> {
        let io = |source| Error::Io { action: "read", path: path.into(), source };
        let text = gallerist_retrieval::file::read_regular_to_string(path).map_err(io)?;
        serde_json::from_str(&text).map_err(|e| io(std::io::Error::new(std::io::ErrorKind::InvalidData, e)))
    }

    /// Writes `metrics.json`.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        gallerist_retrieval::file::write_atomically(path, |file| {
            serde_json::to_writer_pretty(&mut *file, self)?;
            std::io::Write::write_all(file, b"\n")
        })?;
        Ok(())
    }
}
