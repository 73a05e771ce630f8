//! The log of a run: one JSON object a line in `log.jsonl`.
//!
//! Every line has an `event`. Times differ from run to run; everything else is the same for the
//! same run file, seed and number of threads.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::events::Events;
use crate::{Error, Result};

/// One line of the log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "snake_case")]
pub enum Record {
    /// One optimiser step.
    Step(Step),
    /// A validation.
    Validation {
        /// Steps done.
        step: usize,
        /// What was compared with what; empty in logs of earlier versions.
        #[serde(default, skip_serializing_if = "String::is_empty")]
        protocol: String,
        /// Metrics by name.
        metrics: BTreeMap<String, f64>,
    },
    /// Something the user should look at, said once.
    Warning {
        /// Steps done.
        step: usize,
        /// What, and what to change.
        message: String,
    },
    /// The run was taken up again here.
    Resumed {
        /// Steps done before.
        step: usize,
    },
}

impl Record {
    /// Steps done when the record was written.
    pub fn step(&self) -> usize {
        match self {
            Record::Step(step) => step.step,
            Record::Validation { step, .. } | Record::Warning { step, .. } | Record::Resumed { step } => {
                *step
            }
        }
    }
}

/// What one optimiser step saw.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Step {
    /// The step, from 1.
    pub step: usize,
    /// The sampler's epoch, from 0.
    pub epoch: usize,
    /// The loss before the step: the weighted sum, where there are several.
    pub loss: f32,
    /// Of several losses the value of each, not weighted; empty where there is one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub losses: Vec<f32>,
    /// Share of positive pairs that are non-trivial.
    pub positive_share: f32,
    /// Share of negative pairs that are non-trivial.
    pub negative_share: f32,
    /// Non-trivial positives per query.
    pub mined_positives: f32,
    /// Non-trivial negatives per query.
    pub mined_negatives: f32,
    /// Share of the loss's terms that cost something and have no gradient; 0 for losses without such terms.
    #[serde(default)]
    pub dead_share: f32,
    /// Mean Euclidean distance of the batch's positive pairs, as the loss sees them; of several heads, the
    /// first loss's.
    #[serde(default)]
    pub positive_distance: f32,
    /// The same for the negative pairs.
    #[serde(default)]
    pub negative_distance: f32,
    /// Dimensions that the batch's embeddings fill: the participation ratio of their covariance, from 1
    /// to d.
    #[serde(default)]
    pub rank: f32,
    /// Norm of the whole gradient, before clipping; 0 where the step was left out.
    pub gradient_norm: f32,
    /// Whether the step was left out, its gradients not being finite in f16 ([`super::LossScale`]).
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub left_out: bool,
    /// Mean norm of the embeddings before normalisation.
    pub embedding_norm: f32,
    /// Learning rate of the network's body.
    pub learning_rate: f64,
    /// Seconds of the whole step, waiting included.
    pub seconds: f64,
    /// Seconds the step waited for its images.
    pub waited: f64,
}

impl Step {
    /// The record of a step of several batches: the mean of what they saw, the sum of their waiting.
    pub(super) fn mean(batches: &[Step]) -> Step {
        let mean = |of: fn(&Step) -> f32| batches.iter().map(of).sum::<f32>() / batches.len() as f32;
        let mut step = batches.last().cloned().unwrap_or_default();
        for (i, loss) in step.losses.iter_mut().enumerate() {
            *loss = batches.iter().map(|batch| batch.losses[i]).sum::<f32>() / batches.len() as f32;
        }
        Step {
            loss: mean(|s| s.loss),
            positive_share: mean(|s| s.positive_share),
            negative_share: mean(|s| s.negative_share),
            mined_positives: mean(|s| s.mined_positives),
            mined_negatives: mean(|s| s.mined_negatives),
            dead_share: mean(|s| s.dead_share),
            positive_distance: mean(|s| s.positive_distance),
            negative_distance: mean(|s| s.negative_distance),
            rank: mean(|s| s.rank),
            embedding_norm: mean(|s| s.embedding_norm),
            waited: batches.iter().map(|batch| batch.waited).sum(),
            ..step
        }
    }
}

/// The log's file, appended to line by line.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: File,
    /// The same for TensorBoard.
    events: Option<Events>,
}

impl Log {
    /// Opens the log, keeping of an older one only what was written up to `step`.
    ///
    /// A run that was killed may have logged steps its last checkpoint does not have; they will be
    /// done again. A last line cut in the middle is dropped too.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or written.
    pub fn open(path: &Path, step: usize) -> Result<Self> {
        let error = |action, source| Error::Io { action, path: path.into(), source };
        if path.exists() {
            let kept: Vec<Record> = read(path)?.into_iter().filter(|record| record.step() <= step).collect();
            gallerist_retrieval::file::write_atomically(path, |file| {
                for record in &kept {
                    serde_json::to_writer(&mut *file, record)?;
                    file.write_all(b"\n")?;
                }
                Ok(())
            })?;
        }
        let file = OpenOptions::new().create(true).append(true).open(path).map_err(|e| error("create", e))?;
        Ok(Log { path: path.into(), file, events: None })
    }

    /// Writes the numbers of every record into an event file for TensorBoard in `folder`, too; of an older
    /// one it keeps what was written up to `step`.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or written.
    pub fn with_events(self, folder: &Path, step: usize) -> Result<Self> {
        Ok(Log { events: Some(Events::open(folder, step)?), ..self })
    }

    /// Appends a record.
    ///
    /// # Errors
    ///
    /// When the file cannot be written, for example because the disk is full.
    pub fn write(&mut self, record: &Record) -> Result<()> {
        let mut line = serde_json::to_vec(record).expect("a record is plain data");
        line.push(b'\n');
        self.file.write_all(&line).map_err(|source| Error::Io {
            action: "write",
            path: self.path.clone(),
            source,
        })?;
        self.events.as_mut().map_or(Ok(()), |events| events.write(record))
    }
}

/// The records of a log, up to the first line that is not whole.
///
/// # Errors
///
/// When the file cannot be read.
pub fn read(path: &Path) -> Result<Vec<Record>> {
    let error = |source| Error::Io { action: "read", path: path.into(), source };
    let file = File::open(path).map_err(error)?;
    let mut records = Vec::new();
    for line in BufReader::new(file).lines() {
        match serde_json::from_str(&line.map_err(error)?) {
            Ok(record) => records.push(record),
            Err(_) => break,
        }
    }
    Ok(records)
}
