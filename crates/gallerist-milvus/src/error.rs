//! What can go wrong between this program and a Milvus server.

use gallerist_retrieval as retrieval;

use crate::grpc::Fault;
use crate::scheme::{SCHEME, TLS_SCHEME};

/// The result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// A fault on the way to a collection, or in what was asked of it. [`Error::hint`] says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Text that is no address of a collection.
    #[error("`{given}` is not an address of a Milvus collection: {problem}")]
    Address {
        /// The text.
        given: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The server was not reached, or stopped answering: name, port, firewall, another program.
    #[error("cannot reach Milvus at {server}: {problem}")]
    Unreachable {
        /// `HOST:PORT`.
        server: String,
        /// What happened.
        problem: String,
        /// What to do about it.
        hint: String,
    },
    /// A version that lacks what is needed here.
    #[error("the Milvus at {server} is {found}; wanted 2.3 or newer")]
    Version {
        /// `HOST:PORT`.
        server: String,
        /// Its version.
        found: String,
    },
    /// No such collection.
    #[error("the Milvus at {server} has no collection `{collection}`")]
    Missing {
        /// `HOST:PORT`.
        server: String,
        /// The name.
        collection: String,
        /// Its address.
        address: String,
    },
    /// A collection of this name is there already, and is not what was to be created.
    #[error("the collection `{collection}` of the Milvus at {server} has {found}, not {wanted}")]
    Differs {
        /// `HOST:PORT`.
        server: String,
        /// The name.
        collection: String,
        /// Dimensions, metric and index wanted.
        wanted: String,
        /// Those that are there.
        found: String,
    },
    /// A collection that another program made.
    #[error("the collection `{collection}` of the Milvus at {server} is no gallery: {problem}")]
    Foreign {
        /// `HOST:PORT`.
        server: String,
        /// The name.
        collection: String,
        /// What was wanted and what was found.
        problem: String,
    },
    /// The server understood and did not do it.
    #[error("the Milvus at {server} refused to {action} (its code {code}): {reason}")]
    Refused {
        /// `HOST:PORT`.
        server: String,
        /// The request.
        action: &'static str,
        /// Milvus' code of the error.
        code: i32,
        /// Its answer.
        reason: String,
    },
    /// An answer that does not fit the question.
    #[error("cannot understand the Milvus at {server}: {problem}")]
    Answer {
        /// `HOST:PORT`.
        server: String,
        /// What was wanted and what was found.
        problem: String,
    },
    /// A text longer than the limit of a field, or one that means "none".
    #[error("the {field} of row {row} {problem}")]
    Text {
        /// `label`, `path` or `camera`.
        field: &'static str,
        /// The row, from 0.
        row: usize,
        /// What is wrong with it.
        problem: String,
    },
    /// What any index refuses.
    #[error(transparent)]
    Retrieval(#[from] retrieval::Error),
}

impl Error {
    pub(crate) fn unreachable(server: &str, fault: &Fault) -> Self {
        let hint = match fault {
            Fault::UnknownHost { .. } => "check the host's name".to_owned(),
            Fault::Refused => {
                format!("is the server running, and is this its port? wanted {SCHEME}HOST:PORT/COLLECTION")
            }
            Fault::ConnectTimeout { .. } => {
                "check the host, the port, and the network between: a firewall, a VPN".to_owned()
            }
            Fault::NotGrpc { .. } | Fault::TooLarge => {
                format!(
                    "give the port on which Milvus speaks gRPC, 19530 by default; with TLS, {TLS_SCHEME}HOST"
                )
            }
            Fault::Status { code, .. } if *code == crate::grpc::UNIMPLEMENTED => {
                "a gRPC server answers there, but it is not Milvus".to_owned()
            }
            Fault::Status { code, .. } if *code == crate::grpc::UNAUTHENTICATED => {
                "set MILVUS_TOKEN to USER:PASSWORD".to_owned()
            }
            Fault::Timeout { .. } | Fault::Broken { .. } | Fault::Status { .. } => {
                "see the server's log; what it acknowledged is kept, and the same command continues from there"
                    .to_owned()
            }
        };
        Self::Unreachable { server: server.to_owned(), problem: fault.to_string(), hint }
    }

    /// One line that says what to do, where there is something to do.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Address { .. } => Some(format!("write {SCHEME}HOST:PORT/COLLECTION")),
            Self::Unreachable { hint, .. } => Some(hint.clone()),
            Self::Version { .. } => Some("tested with Milvus 2.3.5".to_owned()),
            Self::Missing { address, .. } => {
                Some(format!("`gallerist index push FILE --gallery {address}` makes it"))
            }
            Self::Differs { .. } | Self::Foreign { .. } => Some("give another collection's name".to_owned()),
            Self::Text { .. } | Self::Refused { .. } | Self::Answer { .. } => None,
            Self::Retrieval(error) => error.hint(),
        }
    }
}

impl From<Error> for retrieval::Error {
    fn from(error: Error) -> Self {
        if let Error::Retrieval(error) = error {
            return error;
        }
        Self::Remote { hint: error.hint(), source: error.into() }
    }
}
