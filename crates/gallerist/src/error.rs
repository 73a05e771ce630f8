//! The error of this crate's functions.

use gallerist_util::registry::Taken;

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A fault that the user can correct. The text says what was wanted, what was found and where;
/// [`hint`](Self::hint) says what to do. The program prints both.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The options, files and directories of a call do not fit together.
    #[error("{message}")]
    Input {
        /// What was wanted, what was found, where.
        message: String,
        /// What to do.
        hint: Option<String>,
    },
    /// Run files, run directories, training.
    #[error(transparent)]
    Train(#[from] gallerist_train::Error),
    /// Devices and parameters.
    #[error(transparent)]
    Tensor(#[from] gallerist_tensor::Error),
    /// Files of weights.
    #[error(transparent)]
    Weights(#[from] gallerist_weights::Error),
    /// Images.
    #[error(transparent)]
    Data(#[from] gallerist_data::Error),
    /// Embeddings, search, evaluation.
    #[error(transparent)]
    Retrieval(#[from] gallerist_retrieval::Error),
    /// Pages and figures.
    #[error(transparent)]
    Report(#[from] gallerist_report::ReportError),
    /// The server.
    #[error(transparent)]
    Serve(#[from] gallerist_serve::Error),
    /// A name of a [`Registry`](crate::Registry) that belongs to another part.
    #[error(transparent)]
    Taken(#[from] Taken),
    /// A vector database.
    #[cfg(feature = "database")]
    #[error(transparent)]
    Database(#[from] gallerist_database::Error),
}

impl Error {
    pub(crate) fn new(message: impl Into<String>, hint: Option<&str>) -> Self {
        Error::Input { message: message.into(), hint: hint.map(str::to_string) }
    }

    /// What the user can do about it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Input { hint, .. } => hint.clone(),
            Error::Train(error) => error.hint(),
            Error::Tensor(error) => error.hint(),
            Error::Weights(error) => error.hint(),
            Error::Data(error) => error.hint(),
            Error::Retrieval(error) => error.hint(),
            Error::Report(error) => error.hint(),
            Error::Serve(error) => error.hint(),
            Error::Taken(_) => None,
            #[cfg(feature = "database")]
            Error::Database(error) => error.hint(),
        }
    }

    /// The message and the hint, as a command prints them.
    pub(crate) fn with_hint(&self) -> String {
        self.hint().map_or_else(|| self.to_string(), |hint| format!("{self}\nhint: {hint}"))
    }
}
