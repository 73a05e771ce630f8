//! Galleries in a vector database: `milvus://HOST:PORT/COLLECTION` in place of a file.
//!
//! Without the feature `milvus`, an address is recognised and refused.

use std::path::Path;

use gallerist_retrieval::index::Index;

/// A collection of a database.
pub(crate) struct Remote {
    pub(crate) index: Box<dyn Index>,
    /// Items that the graph does not contain yet.
    #[cfg_attr(not(all(feature = "milvus", feature = "cli")), allow(dead_code))]
    pub(crate) pending: usize,
}

/// Whether this is the address of a database rather than a file.
pub(crate) fn is_remote(path: &Path) -> bool {
    let schemes = ["milvus://", "milvus+tls://"];
    path.to_str().is_some_and(|text| schemes.iter().any(|scheme| text.starts_with(scheme)))
}

#[cfg(not(feature = "milvus"))]
mod imp {
    use super::{Path, Remote};
    use crate::{Error, Result};

    pub(crate) fn open(address: &Path, _ef: Option<usize>, _warn: fn(&str)) -> Result<Remote> {
        Err(Error::new(
            format!("cannot open `{}`: this program was built without Milvus", address.display()),
            Some("build it with `cargo build --release --features milvus`"),
        ))
    }
}

#[cfg(feature = "milvus")]
mod imp {
    use std::sync::Arc;

    use gallerist_milvus::{Address, ConnectOptions, MilvusIndex, Search};
    use gallerist_retrieval::index::Index;

    use super::{Path, Remote};
    use crate::{Error, Result};

    pub(crate) fn address(path: &Path) -> Result<Address> {
        Ok(path.to_string_lossy().parse::<Address>()?)
    }

    /// The options of a connection, with the token of the environment; `warn` receives why a call is repeated.
    pub(crate) fn options(warn: fn(&str)) -> ConnectOptions {
        ConnectOptions {
            token: std::env::var("MILVUS_TOKEN").ok().filter(|token| !token.is_empty()),
            on_wait: Some(Arc::new(warn)),
            ..ConnectOptions::default()
        }
    }

    pub(crate) fn open(path: &Path, ef: Option<usize>, warn: fn(&str)) -> Result<Remote> {
        let mut index = MilvusIndex::open(&address(path)?, options(warn))?;
        if let Some(ef) = ef {
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

pub(crate) use imp::open;
#[cfg(feature = "milvus")]
pub(crate) use imp::{address, options};
