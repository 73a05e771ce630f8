//! What can go wrong between a run file and a trained model.

use std::path::PathBuf;

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error that the user can fix: what was wanted, what was found and where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The run file cannot be understood.
    #[error("cannot read the run file {origin}\n  {reason}")]
    Config {
        /// The file's path, or "(--set)".
        origin: String,
        /// What is wrong with it.
        reason: String,
        /// What to do.
        hint: Option<String>,
    },
    /// The run file does not define which images are compared with which.
    #[error("cannot tell what the run is measured on\n  {problem}")]
    TestImages {
        /// The contradiction.
        problem: String,
        /// What to do.
        hint: String,
    },
    /// A checkpoint cannot be used.
    #[error("cannot use the checkpoint `{}`\n  {reason}", path.display())]
    Checkpoint {
        /// The checkpoint's path.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// What to do.
        hint: Option<String>,
    },
    /// The run directory cannot be used.
    #[error("cannot use the run directory `{}`\n  {reason}", path.display())]
    RunDirectory {
        /// The directory's path.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// What to do.
        hint: Option<String>,
    },
    /// The loss or the embeddings stopped being finite.
    #[error("the loss is {value} at step {step}; training stops here")]
    Diverged {
        /// The step, counted from 1.
        step: usize,
        /// The loss's value.
        value: f32,
        /// What to do.
        hint: String,
    },
    /// No image of a set could be read.
    #[error("none of the {count} images of `{origin}` can be read\n  the first: {first}")]
    NoImages {
        /// Number of images tried.
        count: usize,
        /// Where they come from.
        origin: String,
        /// The first failure.
        first: String,
    },
    /// A run was stopped before its first step.
    #[error("stopped before the first step, while {what}")]
    Interrupted {
        /// What was being done.
        what: &'static str,
    },
    /// A file that a run names is no longer there.
    #[error("cannot find `{}`\n  `{key}` of `{}` names it", path.display(), config.display())]
    Moved {
        /// The file.
        path: PathBuf,
        /// Dotted key.
        key: &'static str,
        /// The run's run file.
        config: PathBuf,
    },
    /// Corrections of labels that are not those that the run started with.
    #[error("the corrections of `data.relabel` have changed since the run started: {files}")]
    ChangedCorrections {
        /// The files, or nothing where there are none any more.
        files: String,
    },
    /// The other processes of a distributed run.
    #[error(transparent)]
    Ranks(#[from] gallerist_collective::Error),
    /// Values of the run file, devices, files of parameters.
    #[error(transparent)]
    Tensor(#[from] gallerist_tensor::Error),
    /// Files of weights.
    #[error(transparent)]
    Weights(#[from] gallerist_weights::Error),
    /// Images, decoding, sampling.
    #[error(transparent)]
    Data(#[from] gallerist_data::Error),
    /// Embeddings, search, evaluation, files.
    #[error(transparent)]
    Retrieval(#[from] gallerist_retrieval::Error),
    /// A file could not be written or read.
    #[error("cannot {action} `{}`: {source}", path.display())]
    Io {
        /// "read", "write", "create".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: std::io::Error,
    },
}

impl Error {
    /// What the user can do about it, in one line.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Config { hint, .. }
            | Error::Checkpoint { hint, .. }
            | Error::RunDirectory { hint, .. } => hint.clone(),
            Error::Diverged { hint, .. } | Error::TestImages { hint, .. } => Some(hint.clone()),
            Error::Moved { key, config, .. } => {
                Some(format!("put it back, or write where it is now into `{key}` of `{}`", config.display()))
            }
            Error::ChangedCorrections { .. } => Some(
                "restore the files, or start a new run (without `data.relabel_sha256` in its run file)"
                    .into(),
            ),
            Error::Ranks(e) => e.hint(),
            Error::Tensor(e) => e.hint(),
            Error::Weights(e) => e.hint(),
            Error::Data(e) => e.hint(),
            Error::Retrieval(e) => e.hint(),
            _ => None,
        }
    }
}
