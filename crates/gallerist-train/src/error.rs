//! What can go wrong between a run file and a trained model.

use std::path::PathBuf;

use gallerist_util::text::shell_word;

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
    /// The ranges that embedding in int8 needs are not there.
    #[error("there are no ranges of the network's values, which int8 needs\n  {reason}")]
    Ranges {
        /// Why not.
        reason: String,
        /// The run directory.
        run: String,
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
    /// The loss, the gradient or the weights of a step are not finite.
    #[error(
        "{found} at step {step}; training stops here{}{}",
        if *skipped > 0 { format!(" after {skipped} skipped steps in succession") } else { String::new() },
        file.as_ref().map_or(String::new(), |file| format!(
            "\n  images, embeddings and norms of the step: `{}`", file.display()
        ))
    )]
    Nonfinite {
        /// The step, counted from 1.
        step: usize,
        /// Where a number is not finite.
        found: String,
        /// Steps that were skipped in succession before this one.
        skipped: usize,
        /// The file that describes the step; `None` before the first step.
        file: Option<PathBuf>,
        /// What to do.
        hint: String,
    },
    /// Embeddings that are not finite.
    #[error("{count} of {total} embeddings are not finite; the first is that of `{image}`")]
    NonfiniteEmbeddings {
        /// How many.
        count: usize,
        /// Of how many.
        total: usize,
        /// The first image.
        image: String,
    },
    /// Images or labels are not those that the run trained on.
    #[error("the images of the run have changed since step {step}\n  {changes}")]
    ChangedData {
        /// The step of the checkpoint.
        step: usize,
        /// What differs.
        changes: String,
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
            Error::Ranges { run, .. } => Some(format!(
                "measure them on images such as those of the gallery: `gallerist model calibrate --run {} --images IMAGES`",
                shell_word(run)
            )),
            Error::NonfiniteEmbeddings { .. } => Some(
                "the network or the preparation of this image overflows: check [image] (std, prepare), and use another \
                 checkpoint of the run"
                    .into(),
            ),
            Error::ChangedData { .. } => Some(
                "restore the images and their labels, start a new run, or continue with the images as they are: \
                 --force-data"
                    .into(),
            ),
            Error::Nonfinite { hint, .. } | Error::TestImages { hint, .. } => Some(hint.clone()),
            Error::Moved { key, config, .. } => {
                Some(format!("put it back, or write where it is now into `{key}` of `{}`", config.display()))
            }
            Error::ChangedCorrections { .. } => Some(
                "restore the files, start a new run (without `data.relabel_sha256` in its run file), or resume with the \
                 files as they are: --force-data"
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_of_a_hint_quotes_the_run() {
        let error = Error::Ranges { reason: "no such file".into(), run: "my run".into() };
        let command = format!("gallerist model calibrate --run {} --images", shell_word("my run"));
        assert!(error.hint().unwrap().contains(&command));
    }
}
