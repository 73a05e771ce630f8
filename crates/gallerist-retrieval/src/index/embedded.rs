//! Either kind of index on this machine.

use std::path::Path;

use super::file;
use super::{ExactIndex, HnswIndex, Index, ItemFilter, Origin};
use crate::Result;
use crate::file::Source;

/// An index of this machine, whichever kind its file says it is.
pub enum EmbeddedIndex {
    /// Exact search.
    Exact(Box<ExactIndex>),
    /// Approximate search.
    Hnsw(Box<HnswIndex>),
}

impl EmbeddedIndex {
    /// Reads an index; with `mapped` its rows stay in the file, and it cannot be changed.
    ///
    /// # Errors
    /// As [`ExactIndex::open`] and [`ExactIndex::map`].
    pub fn open(path: impl AsRef<Path>, mapped: bool) -> Result<Self> {
        let path = path.as_ref();
        let contents = file::read(path, mapped)?;
        Ok(match contents.graph {
            None => Self::Exact(Box::new(ExactIndex::from_contents(contents).at(path))),
            Some(_) => Self::Hnsw(Box::new(HnswIndex::from_contents(contents)?.at(path))),
        })
    }

    /// The index behind the door.
    pub fn index(&self) -> &dyn Index {
        match self {
            Self::Exact(index) => index.as_ref(),
            Self::Hnsw(index) => index.as_ref(),
        }
    }

    /// The index behind the door, to be changed.
    pub fn index_mut(&mut self) -> &mut dyn Index {
        match self {
            Self::Exact(index) => index.as_mut(),
            Self::Hnsw(index) => index.as_mut(),
        }
    }

    /// Where the embeddings come from.
    pub fn origin(&self) -> &Origin {
        match self {
            Self::Exact(index) => index.origin(),
            Self::Hnsw(index) => index.origin(),
        }
    }

    /// The sources of the items, in the order of their first item.
    pub fn sources(&self) -> Vec<Source> {
        match self {
            Self::Exact(index) => index.sources(),
            Self::Hnsw(index) => index.sources(),
        }
    }

    /// The ids of all items that `filter` admits, rising.
    pub fn ids(&self, filter: &ItemFilter) -> Vec<u64> {
        match self {
            Self::Exact(index) => index.ids(filter),
            Self::Hnsw(index) => index.ids(filter),
        }
    }

    /// Id and label of every item that `filter` admits, in the order of ids.
    pub fn labels(&self, filter: &ItemFilter) -> Vec<(u64, Option<String>)> {
        match self {
            Self::Exact(index) => index.labels(filter),
            Self::Hnsw(index) => index.labels(filter),
        }
    }

    /// Writes the index, atomically.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io).
    pub fn save(&mut self, path: impl AsRef<Path>) -> Result<()> {
        match self {
            Self::Exact(index) => index.save(path),
            Self::Hnsw(index) => index.save(path),
        }
    }
}

impl From<ExactIndex> for EmbeddedIndex {
    fn from(index: ExactIndex) -> Self {
        Self::Exact(Box::new(index))
    }
}

impl From<HnswIndex> for EmbeddedIndex {
    fn from(index: HnswIndex) -> Self {
        Self::Hnsw(Box::new(index))
    }
}

impl From<EmbeddedIndex> for Box<dyn Index> {
    fn from(index: EmbeddedIndex) -> Self {
        match index {
            EmbeddedIndex::Exact(index) => index,
            EmbeddedIndex::Hnsw(index) => index,
        }
    }
}
