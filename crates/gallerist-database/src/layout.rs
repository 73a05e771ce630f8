//! What a collection is made as.

use gallerist_retrieval::index::{ExactIndex, HnswIndex, IndexKind};
use gallerist_retrieval::search::Metric;

/// How a collection finds the nearest items.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Search {
    /// By comparing the query with every item.
    Flat,
    /// By a graph of neighbours (HNSW).
    Hnsw {
        /// Neighbours of a node, 2 to 2048. 16 is a usual value.
        m: usize,
        /// Candidates looked at when a node is put in, at least 1. 200 is a usual value.
        ef_construction: usize,
    },
}

impl Search {
    /// The kind of index this is.
    pub fn kind(self) -> IndexKind {
        match self {
            Self::Flat => ExactIndex::KIND,
            Self::Hnsw { .. } => HnswIndex::KIND,
        }
    }
}

/// What a gallery is made as.
#[derive(Clone, Debug, PartialEq)]
pub struct CollectionLayout {
    /// Values per embedding, at least 1 and at most the limit of the database.
    pub dimensions: usize,
    /// How rows are compared.
    pub metric: Metric,
    /// How the nearest are found.
    pub search: Search,
}

impl std::fmt::Display for CollectionLayout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} dimensions, {}, ", self.dimensions, self.metric.name())?;
        match self.search {
            Search::Flat => write!(f, "exact"),
            Search::Hnsw { m, ef_construction } => {
                write!(f, "HNSW (M {m}, ef_construction {ef_construction})")
            }
        }
    }
}

impl CollectionLayout {
    /// Rows that are sent or requested in one call: a few MiB of them.
    pub fn rows_per_call(&self) -> usize {
        const BYTES: usize = 4 << 20;
        const TEXTS: usize = 256;
        (BYTES / (self.dimensions * size_of::<f32>() + TEXTS)).clamp(1, 4096)
    }
}
