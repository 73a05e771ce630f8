//! The file `metrics.json` of a run.

use std::path::Path;

use gallerist_data::ClassOverlap;
use gallerist_retrieval::eval::{Evaluation, Further};
use gallerist_train::{Result, RunDirectory, Timing, json};
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
    /// Times, in files of earlier versions. Now they are in `timing.json` ([`gallerist_train::Timing`]), so that equal runs
    /// have equal metrics; [`RunMetrics::timing`] reads both.
    #[serde(flatten, skip_serializing)]
    pub earlier: EarlierTiming,
    /// Images, training and test, that could not be read.
    pub broken_images: usize,
    /// Steps that were skipped because their loss, gradient or weights were not finite.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub skipped_steps: usize,
    /// Test classes that were trained on; absent where that is unknown.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub class_overlap: Option<ClassOverlap>,
}

/// Times in a `metrics.json` of an earlier version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct EarlierTiming {
    training_seconds: Option<f64>,
    waited_share: Option<f64>,
    images_per_second: Option<f64>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

impl RunMetrics {
    /// The times of a run, of this version or an earlier one.
    ///
    /// # Errors
    ///
    /// When `timing.json` is damaged.
    pub fn timing(&self, run: &RunDirectory) -> Result<Timing> {
        let EarlierTiming { training_seconds, waited_share, images_per_second } = self.earlier;
        Ok(match training_seconds {
            Some(training_seconds) => {
                Timing { step: self.step, training_seconds, waited_share, images_per_second }
            }
            None => Timing::load(&run.timing())?.unwrap_or_default(),
        })
    }

    /// Reads a run's `metrics.json`.
    ///
    /// # Errors
    ///
    /// When the file is missing or damaged.
    pub fn load(path: &Path) -> Result<Self> {
        json::read(path)
    }

    /// Writes `metrics.json`.
    ///
    /// # Errors
    ///
    /// When the file cannot be written.
    pub fn save(&self, path: &Path) -> Result<()> {
        json::write(path, self)
    }
}
