//! Errors of configurations, devices and files of parameters.

use std::path::PathBuf;

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// An error that the user can fix: what was wanted, what was found and where.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A value of a configuration is out of its range.
    #[error("`{key}` must be {wanted}, not {found}")]
    Value {
        /// Dotted key.
        key: String,
        /// The allowed values.
        wanted: String,
        /// The value found.
        found: String,
    },
    /// Two settings that exclude each other.
    #[error("{message}")]
    Conflict {
        /// The contradiction.
        message: String,
        /// What to do.
        hint: String,
    },
    /// A file of parameters cannot be used.
    #[error("cannot use the parameters in `{}`\n  {reason}", path.display())]
    Parameters {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A device cannot be used.
    #[error("cannot compute on `{wanted}`\n  {reason}")]
    Device {
        /// The requested device.
        wanted: String,
        /// What is missing.
        reason: String,
        /// What to do.
        hint: Option<String>,
    },
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
    /// Returns an error for a number that is not finite or out of its range.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] with `key`, `wanted` and the value.
    pub fn require(key: String, value: f64, fits: bool, wanted: &str) -> Result<()> {
        if value.is_finite() && fits {
            return Ok(());
        }
        Err(Error::Value { key, wanted: wanted.into(), found: value.to_string() })
    }

    /// What the user can do about it, in one line.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Device { hint, .. } => hint.clone(),
            Error::Conflict { hint, .. } => Some(hint.clone()),
            Error::Retrieval(e) => e.hint(),
            _ => None,
        }
    }
}
