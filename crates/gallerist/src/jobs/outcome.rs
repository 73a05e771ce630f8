//! How a job ended.

use std::path::PathBuf;

use super::folder::Numbers;

/// How a job ended.
#[derive(Clone, Debug)]
pub enum End {
    /// All steps are done and measured.
    Done(Box<Numbers>),
    /// The process failed: its last lines on stderr. The next call tries again, from the last checkpoint.
    Failed(String),
    /// The job was not finished before the call was stopped.
    Stopped,
}

/// A job after [`run`](super::run()).
#[derive(Clone, Debug)]
pub struct JobOutcome {
    /// The name of the job.
    pub name: String,
    /// Its key.
    pub key: String,
    /// Its run directory, which does not exist if the job failed at its start.
    pub directory: PathBuf,
    /// How it ended.
    pub end: End,
}

impl JobOutcome {
    /// The numbers of a job that is done.
    pub fn numbers(&self) -> Option<&Numbers> {
        match &self.end {
            End::Done(numbers) => Some(numbers),
            _ => None,
        }
    }

    /// Why the job failed, if it did.
    pub fn failure(&self) -> Option<&str> {
        match &self.end {
            End::Failed(reason) => Some(reason),
            _ => None,
        }
    }
}
