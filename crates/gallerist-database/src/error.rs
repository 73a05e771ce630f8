//! What can go wrong between this program and a database.

use gallerist_retrieval as retrieval;

use crate::grpc::{self, Fault};
use crate::system::System;

/// The result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

/// A fault on the way to a collection, or in what was asked of it. [`Error::hint`] says what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Text that is no address of a collection.
    #[error("`{given}` is not an address of a {}collection: {problem}", .system.map_or(String::new(), |system| format!("{} ", system.name)))]
    Address {
        /// The database that it names.
        system: Option<&'static System>,
        /// The text.
        given: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The server was not reached, or stopped answering: name, port, firewall, another program.
    #[error("cannot reach {} at {server}: {problem}", .system.name)]
    Unreachable {
        /// The database.
        system: &'static System,
        /// `HOST:PORT`.
        server: String,
        /// What happened.
        problem: String,
        /// What to do about it.
        hint: String,
    },
    /// A version that lacks what is needed here.
    #[error("the {} at {server} is {found}; wanted {}.{} or newer", .system.name, .system.needed.0, .system.needed.1)]
    Version {
        /// The database.
        system: &'static System,
        /// `HOST:PORT`.
        server: String,
        /// Its version.
        found: String,
    },
    /// No such collection.
    #[error("the {} at {server} has no collection `{collection}`", .system.name)]
    Missing {
        /// The database.
        system: &'static System,
        /// `HOST:PORT`.
        server: String,
        /// The name.
        collection: String,
        /// Its address.
        address: String,
    },
    /// A collection of this name is there already, and is not what was to be created.
    #[error("the collection `{collection}` of the {} at {server} has {found}, not {wanted}", .system.name)]
    Differs {
        /// The database.
        system: &'static System,
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
    #[error("the collection `{collection}` of the {} at {server} is no gallery: {problem}", .system.name)]
    Foreign {
        /// The database.
        system: &'static System,
        /// `HOST:PORT`.
        server: String,
        /// The name.
        collection: String,
        /// What was wanted and what was found.
        problem: String,
    },
    /// The server understood and did not do it.
    #[error("the {} at {server} refused to {action} (its code {code}): {reason}", .system.name)]
    Refused {
        /// The database.
        system: &'static System,
        /// `HOST:PORT`.
        server: String,
        /// The request.
        action: &'static str,
        /// The server's code of the error.
        code: i32,
        /// Its answer.
        reason: String,
    },
    /// An answer that does not fit the question.
    #[error("cannot understand the {} at {server}: {problem}", .system.name)]
    Answer {
        /// The database.
        system: &'static System,
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
    /// Embeddings without values, or longer than the database allows.
    #[error("cannot make a collection of {found} dimensions: {} allows 1 to {most}", .system.name)]
    Dimensions {
        /// The database.
        system: &'static System,
        /// Its limit.
        most: usize,
        /// The dimensions wanted.
        found: usize,
    },
    /// Longer lists than the database returns.
    #[error("cannot search with k = {found}: a collection of {} returns at most {most} results", .system.name)]
    Results {
        /// The database.
        system: &'static System,
        /// Its limit.
        most: usize,
        /// The results wanted.
        found: usize,
    },
    /// What any index refuses.
    #[error(transparent)]
    Retrieval(#[from] retrieval::Error),
}

impl Error {
    pub(crate) fn unreachable(system: &'static System, server: &str, fault: &Fault) -> Self {
        let hint = match fault {
            Fault::UnknownHost { .. } => "check the host's name".to_owned(),
            Fault::Refused => {
                let scheme = system.scheme;
                format!("is the server running, and is this its port? wanted {scheme}HOST:PORT/COLLECTION")
            }
            Fault::ConnectTimeout { .. } => {
                "check the host, the port, and the network between: a firewall, a VPN".to_owned()
            }
            Fault::NotGrpc { .. } | Fault::TooLarge => {
                let System { name, default_port, tls_scheme, .. } = system;
                format!("give the port on which {name} speaks gRPC, {default_port} by default; with TLS, {tls_scheme}HOST")
            }
            Fault::Status { code, .. } if *code == grpc::UNIMPLEMENTED => {
                format!("a gRPC server answers there, but it is not {}", system.name)
            }
            Fault::Status { code: grpc::UNAUTHENTICATED | grpc::PERMISSION_DENIED, .. } => {
                system.credentials_hint.to_owned()
            }
            Fault::Broken { reason } if reason.contains("certificate") => {
                let scheme = system.tls_scheme;
                format!(
                    "the environment variable SSL_CERT_FILE names the certificate of the authority that signed the server's; the host of \
                     {scheme}HOST is the name in the server's"
                )
            }
            // What an encrypted connection makes of an answer in the clear.
            Fault::Broken { reason } if reason.contains("corrupt message") => {
                format!("a server without TLS has the address {}HOST:PORT/COLLECTION", system.scheme)
            }
            Fault::Timeout { .. } | Fault::Broken { .. } | Fault::Status { .. } => {
                "see the server's log; what it acknowledged is kept, and the same command continues from there"
                    .to_owned()
            }
        };
        Self::Unreachable { system, server: server.to_owned(), problem: fault.to_string(), hint }
    }

    /// One line that says what to do, where there is something to do.
    pub fn hint(&self) -> Option<String> {
        match self {
            Self::Address { system, .. } => Some(format!(
                "write {}HOST:PORT/COLLECTION",
                system.map_or("milvus:// or qdrant://", |one| one.scheme)
            )),
            Self::Unreachable { hint, .. } => Some(hint.clone()),
            Self::Version { system, .. } => Some(system.tested.to_owned()),
            Self::Missing { address, .. } => {
                Some(format!("`gallerist index push FILE --gallery {address}` makes it"))
            }
            Self::Differs { .. } => Some(
                "leave out --kind, --metric, --m and --ef-construction to use the collection as it is, or give another collection's name"
                    .to_owned(),
            ),
            Self::Foreign { .. } => Some("give another collection's name".to_owned()),
            Self::Results { most, .. } => Some(format!("give a k of at most {most}")),
            Self::Text { .. } | Self::Dimensions { .. } | Self::Refused { .. } | Self::Answer { .. } => None,
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
