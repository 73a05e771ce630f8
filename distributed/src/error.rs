//! What can go wrong.

use datafusion::error::DataFusionError;

/// The result of this crate's functions.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a command could not run.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Files, rows or options that search and evaluation refuse.
    #[error(transparent)]
    Retrieval(#[from] gallerist_retrieval::Error),
    /// A shard with rows that are refused.
    #[error("shard `{file}`: {source}")]
    Shard {
        /// The file.
        file: String,
        /// Why.
        source: gallerist_retrieval::Error,
    },
    /// Files or options that do not fit together.
    #[error("{problem}")]
    Input {
        /// What was wanted and what was found.
        problem: String,
        /// What to do about it.
        hint: Option<String>,
    },
    /// DataFusion, or the cluster, did not finish a job.
    #[error("{}", job_message(.0))]
    Job(Box<DataFusionError>),
    /// A scheduler or an executor could not start, or stopped.
    #[error("{0}")]
    Cluster(#[from] ballista_core::error::BallistaError),
}

/// The message of the failed task, without the names of the layers around it.
fn job_message(error: &DataFusionError) -> String {
    match (own(error), error.find_root()) {
        (Some(own), _) => own.to_string(),
        (None, DataFusionError::External(other)) => other.to_string(),
        (None, root) => root.to_string(),
    }
}

/// The error of this crate that ended a job in this process.
fn own(error: &DataFusionError) -> Option<&Error> {
    match error.find_root() {
        DataFusionError::External(error) => error.downcast_ref(),
        _ => None,
    }
}

impl Error {
    /// An error of the user's input.
    pub fn input(problem: impl Into<String>, hint: Option<&str>) -> Self {
        Self::Input { problem: problem.into(), hint: hint.map(str::to_owned) }
    }

    /// One line that says how to fix the error, if the caller can fix it.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Retrieval(error) | Self::Shard { source: error, .. } => error.hint(),
            Self::Input { hint, .. } => hint.clone(),
            Self::Job(error) => own(error).and_then(Self::hint),
            Self::Cluster(_) => {
                Some("check the address, and that scheduler and executors run this version".to_owned())
            }
        }
    }
}

impl From<DataFusionError> for Error {
    fn from(error: DataFusionError) -> Self {
        Self::Job(Box::new(error))
    }
}

impl From<Error> for DataFusionError {
    fn from(error: Error) -> Self {
        match error {
            Error::Job(error) => *error,
            error => Self::External(Box::new(error)),
        }
    }
}
