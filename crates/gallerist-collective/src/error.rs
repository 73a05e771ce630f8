//! What can go wrong between ranks.

/// The result of a collective operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why the ranks cannot go on together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The process of another rank is gone.
    #[error("rank {rank} of {size} (process {process}) has ended; rank {own} stops, too")]
    Lost {
        /// The rank that is gone.
        rank: usize,
        /// Number of ranks.
        size: usize,
        /// Its process.
        process: u32,
        /// The rank that reports it.
        own: usize,
    },
    /// Another rank has not joined an operation in time.
    #[error("rank {own} of {size} has waited {seconds} s for the other ranks in {operation}")]
    Timeout {
        /// The rank that has waited.
        own: usize,
        /// Number of ranks.
        size: usize,
        /// For how long.
        seconds: u64,
        /// The operation.
        operation: &'static str,
    },
    /// The program was started as one of several ranks and cannot be one.
    #[error("this program was started as one of {size} ranks, and {reason}")]
    Unavailable {
        /// Ranks that the launcher has started.
        size: usize,
        /// Why it cannot.
        reason: String,
    },
    /// An operation that cannot use all ranks.
    #[error("{operation} cannot use the statistics of all ranks")]
    Unsupported {
        /// The operation.
        operation: &'static str,
    },
    /// The ranks do not agree about something that must be the same on all.
    #[error("rank {rank} of {size} has {what} than rank 0")]
    Disagreement {
        /// The rank that differs.
        rank: usize,
        /// Number of ranks.
        size: usize,
        /// `other parameters`.
        what: String,
    },
}

impl Error {
    /// What the user can do about it, in one line.
    pub fn hint(&self) -> Option<String> {
        match self {
            Error::Lost { .. } => Some(
                "its own message or the launcher's says why (out of memory?); the checkpoints are good, and --resume \
                 continues with any number of ranks"
                    .into(),
            ),
            Error::Timeout { .. } => {
                Some("look at the rank that is missing, or raise distributed.timeout_seconds".into())
            }
            Error::Unavailable { .. } => Some(
                "build with `cargo build --release --features mpi` (docs/scaling.md), or start it without the launcher"
                    .into(),
            ),
            Error::Unsupported { .. } => {
                Some("train on the CPU, or with distributed.sync_batch_norm = false".into())
            }
            Error::Disagreement { .. } => Some(
                "start every rank with the same program, run file and images, on CPUs with the same instruction sets"
                    .into(),
            ),
        }
    }
}
