//! Embeddings from one file.

use std::path::Path;

use super::format::Format;
use super::set::EmbeddingSet;
use super::table::{self, TableColumns};
use super::{npy, tensors};
use crate::{Error, Result};

/// Reads a file of this format.
pub(super) fn load(path: &Path, format: &Format) -> Result<EmbeddingSet> {
    match format {
        Format::Npy => Ok(npy::read_matrix(path)?.into()),
        Format::Safetensors => tensors::load(path),
        Format::Table(format) => table::load(path, *format, &TableColumns::default()),
        Format::Shards => Err(Error::Format {
            path: path.to_owned(),
            format: "a shard",
            problem: "it is a list of shards".to_owned(),
            hint: Some("list the files of its shards".to_owned()),
        }),
    }
}
