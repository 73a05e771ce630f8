//! Opening an index or a collection.

use std::path::Path;

use crate::cli::failure::Failure;
use crate::cli::printer;
use crate::retrieval::index::{Index, is_index, open_index};
use crate::tasks::{Remote, open_database};

/// Opens an index; the error distinguishes a file of embeddings from a damaged index.
pub(super) fn open(path: &Path, mapped: bool) -> Result<Box<dyn Index>, Failure> {
    if path.exists() && !is_index(path) && crate::retrieval::EmbeddingSet::load(path).is_ok() {
        return Err(Failure::new(
            format!("`{}` holds embeddings and is no index", path.display()),
            Some("make one of it with `gallerist index build`"),
        ));
    }
    Ok(open_index(path, mapped)?)
}

/// Opens a collection of a database.
pub(super) fn open_remote(address: &Path, ef: Option<usize>) -> Result<Remote, Failure> {
    Ok(open_database(address, ef, |message| printer::warning(&message))?)
}
