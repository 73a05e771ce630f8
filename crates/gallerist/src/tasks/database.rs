//! Galleries in a vector database: `milvus://HOST:PORT/COLLECTION` or `qdrant://HOST:PORT/COLLECTION` in place of a file.
//!
//! Without the feature of the database, its address is recognised and refused.

use std::path::Path;

use gallerist_retrieval::index::Index;

/// A collection of a database.
pub(crate) struct Remote {
    pub(crate) index: Box<dyn Index>,
    /// Items that the graph does not contain yet.
    #[cfg_attr(not(all(feature = "database", feature = "cli")), allow(dead_code))]
    pub(crate) pending: usize,
}

/// The databases whose addresses are recognised: the feature, with which their addresses begin, and the name.
const DATABASES: [(&str, &str); 2] = [("milvus", "Milvus"), ("qdrant", "Qdrant")];

/// The database of an address: name of the feature, and name.
fn database(path: &Path) -> Option<(&'static str, &'static str)> {
    let text = path.to_str()?;
    let begins = |scheme: &str| {
        let rest = text.strip_prefix(scheme)?;
        rest.strip_prefix("+tls").unwrap_or(rest).strip_prefix("://")
    };
    DATABASES.into_iter().find(|(scheme, _)| begins(scheme).is_some())
}

/// Whether this is the address of a database rather than a file.
pub(crate) fn is_remote(path: &Path) -> bool {
    database(path).is_some()
}

/// The error for a database whose feature is off.
#[cfg(not(all(feature = "milvus", feature = "qdrant")))]
fn not_built(address: &Path) -> crate::Error {
    let (feature, name) = database(address).unwrap_or(("milvus", "a database"));
    crate::Error::new(
        format!("cannot open `{}`: this program was built without {name}", address.display()),
        Some(&format!("build it with `cargo build --release --features {feature}`")),
    )
}

#[cfg(not(feature = "database"))]
mod imp {
    use super::{Path, Remote, not_built};
    use crate::Result;

    pub(crate) fn open(address: &Path, _ef: Option<usize>, _warn: fn(&str)) -> Result<Remote> {
        Err(not_built(address))
    }
}

#[cfg(feature = "database")]
mod imp {
    use std::sync::Arc;

    use gallerist_database::{Address, Collection, ConnectOptions, DatabaseIndex, Search};
    use gallerist_retrieval::index::Index;

    use super::{Path, Remote};
    use crate::{Error, Result};

    /// What is done with a collection of any database.
    pub(crate) trait WithCollection {
        type Output;
        type Error: From<Error> + From<gallerist_database::Error>;

        fn run<C: Collection + 'static>(
            self,
            address: &Address,
            options: ConnectOptions,
        ) -> std::result::Result<Self::Output, Self::Error>;
    }

    /// Does something with the collection of an address; `warn` receives why a call is repeated. The credentials are those
    /// of the environment.
    #[cfg_attr(not(any(feature = "milvus", feature = "qdrant")), allow(unused_variables))]
    pub(crate) fn with_collection<W: WithCollection>(
        path: &Path,
        warn: fn(&str),
        with: W,
    ) -> std::result::Result<W::Output, W::Error> {
        let options = |variable: &str| ConnectOptions {
            token: std::env::var(variable).ok().filter(|token| !token.is_empty()),
            on_wait: Some(Arc::new(warn)),
            ..ConnectOptions::default()
        };
        let address: Address = path.to_string_lossy().parse()?;
        match address.system() {
            #[cfg(feature = "milvus")]
            system if *system == gallerist_database::MILVUS => {
                with.run::<gallerist_milvus::MilvusCollection>(&address, options("MILVUS_TOKEN"))
            }
            #[cfg(feature = "qdrant")]
            system if *system == gallerist_database::QDRANT => {
                with.run::<gallerist_qdrant::QdrantCollection>(&address, options("QDRANT_API_KEY"))
            }
            #[cfg(not(all(feature = "milvus", feature = "qdrant")))]
            _ => Err(super::not_built(path).into()),
            #[cfg(all(feature = "milvus", feature = "qdrant"))]
            system => unreachable!("{} is one of the two", system.name),
        }
    }

    struct Open {
        ef: Option<usize>,
    }

    impl WithCollection for Open {
        type Output = Remote;
        type Error = Error;

        fn run<C: Collection + 'static>(self, address: &Address, options: ConnectOptions) -> Result<Remote> {
            let mut index = DatabaseIndex::<C>::open(address, options)?;
            if let Some(ef) = self.ef {
                if index.layout().search == Search::Flat {
                    return Err(Error::new(
                        "--ef is for a collection of kind hnsw, and this one is exact",
                        Some("leave --ef out"),
                    ));
                }
                index.set_ef(ef)?;
            }
            let pending = index.rows_to_index()?;
            Ok(Remote { index: Box::new(index), pending })
        }
    }

    pub(crate) fn open(path: &Path, ef: Option<usize>, warn: fn(&str)) -> Result<Remote> {
        with_collection(path, warn, Open { ef })
    }
}

pub(crate) use imp::open;
#[cfg(all(feature = "cli", feature = "database"))]
pub(crate) use imp::{WithCollection, with_collection};
