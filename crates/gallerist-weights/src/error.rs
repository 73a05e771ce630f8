//! Errors of files of weights.

use std::path::PathBuf;

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error that the user can fix: what was wanted, what was found and where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file of weights cannot be used.
    #[error("cannot use the weights `{}`\n  {reason}", path.display())]
    Weights {
        /// The file's path.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
        /// What to do.
        hint: Option<String>,
    },
    /// A file cannot be fetched.
    #[error("cannot fetch {url}\n  {reason}")]
    Fetch {
        /// Its address.
        url: String,
        /// What went wrong.
        reason: String,
        /// What to do.
        hint: Option<String>,
    },
    /// A network has no description from which a file could be written.
    #[error("cannot write `{}`: the network has no list of layers", path.display())]
    NoGraph {
        /// The file.
        path: PathBuf,
    },
    /// Parameters, devices, values.
    #[error(transparent)]
    Tensor(#[from] gallerist_tensor::Error),
    /// Embeddings and files.
    #[error(transparent)]
    Retrieval(#[from] gallerist_retrieval::Error),
    /// A file cannot be written or read.
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
            Error::Weights { hint, .. } | Error::Fetch { hint, .. } => hint.clone(),
            Error::Tensor(e) => e.hint(),
            Error::Retrieval(e) => e.hint(),
            Error::NoGraph { .. } => Some(
                "a built-in network is written as ONNX; one on an ONNX model, or of your own code, only with a graph \
                 (gallerist::network::Embedder::graph)"
                    .into(),
            ),
            Error::Io { .. } => None,
        }
    }
}
