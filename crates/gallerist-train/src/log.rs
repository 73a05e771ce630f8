//! The log of a run: one JSON object a line in `log.jsonl`.
//!
//! The log is only ever appended to. A run that was killed and resumed has steps twice, those after its last
//! checkpoint: a record `resumed` says that what came before with a larger step is void. [`read`] leaves it out.
//!
//! Every line has an `event`. Times differ from run to run; everything else is the same for the
//! same run file, seed and number of threads.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Seek, SeekFrom, Write};
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
    /// Opens the log to append to it. What an earlier writer has written stays as it is; a last line that a killed
    /// writer left incomplete is ended, and [`read`] passes over it.
    ///
    /// # Errors
    ///
    /// When the file cannot be read or written.
    pub fn open(path: &Path) -> Result<Self> {
        let error = |action, source| Error::Io { action, path: path.into(), source };
        let mut file = OpenOptions::new()
            .create(true)
            .read(true)
            .append(true)
            .open(path)
            .map_err(|e| error("create", e))?;
        if ends_within_a_line(&mut file).map_err(|e| error("read", e))? {
            file.write_all(b"\n").map_err(|e| error("write", e))?;
        }
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

fn ends_within_a_line(file: &mut File) -> std::io::Result<bool> {
    if file.seek(SeekFrom::End(0))? == 0 {
        return Ok(false);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last != *b"\n")
}

/// The records of a log: of what was done twice, because the run was killed and resumed from an earlier checkpoint,
/// only the later.
///
/// Lines that are not whole are passed over.
///
/// # Errors
///
/// When the file cannot be read.
pub fn read(path: &Path) -> Result<Vec<Record>> {
    let error = |source| Error::Io { action: "read", path: path.into(), source };
    let mut file = BufReader::new(gallerist_retrieval::file::open_regular(path).map_err(error)?);
    let mut records: Vec<Record> = Vec::new();
    let mut line = Vec::new();
    while file.read_until(b'\n', &mut line).map_err(error)? > 0 {
        // A killed writer may have cut a line within a character, too.
        if let Ok(record) = serde_json::from_slice::<Record>(&line) {
            if let Record::Resumed { step } = record {
                records.retain(|earlier| earlier.step() <= step);
            }
            records.push(record);
        }
        line.clear();
    }
    Ok(records)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn step(step: usize, loss: f32) -> Record {
        Record::Step(Step { step, loss, ..Step::default() })
    }

    fn losses(path: &Path) -> Vec<(usize, f32)> {
        let records = read(path).unwrap();
        let of = |record: &Record| match record {
            Record::Step(step) => Some((step.step, step.loss)),
            _ => None,
        };
        records.iter().filter_map(of).collect()
    }

    #[test]
    fn old_bytes_stay_and_the_later_of_a_step_counts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log.jsonl");
        let mut log = Log::open(&path).unwrap();
        // 0.1 f32 written by another program, with more digits than this one writes.
        log.write(&step(1, 0.5)).unwrap();
        log.write(&step(2, 0.25)).unwrap();
        drop(log);
        let mut old = std::fs::read(&path).unwrap();
        old = String::from_utf8(old).unwrap().replace("0.25", "0.250000001").into_bytes();
        old.extend(b"{\"event\":\"step\",\"step\":3,\"lo\xc3");
        std::fs::write(&path, &old).unwrap();

        let mut log = Log::open(&path).unwrap();
        log.write(&Record::Resumed { step: 1 }).unwrap();
        log.write(&step(2, 0.125)).unwrap();
        drop(log);
        let new = std::fs::read(&path).unwrap();
        assert!(new.starts_with(&old), "the old bytes have changed");
        assert_eq!(new[old.len()], b'\n');
        assert_eq!(losses(&path), [(1, 0.5), (2, 0.125)]);
        // Nothing is appended to a log that ends with a whole line.
        drop(Log::open(&path).unwrap());
        assert_eq!(std::fs::read(&path).unwrap(), new);
    }
}
