//! Queries and results of a search.

use gallerist_retrieval::Matrix;
use gallerist_retrieval::index::ItemFilter;
use gallerist_retrieval::search::Metric;
use gallerist_util::sync::Arc;

use super::catalog::Catalog;

/// Items that are read from an index at a time, metadata and embeddings.
pub(super) const ITEMS_AT_A_TIME: usize = 4096;

/// One query: a row as the gallery's rows are compared (of length 1 for the cosine), the number of results, the filter.
pub(crate) struct Query {
    pub(crate) vector: Vec<f32>,
    pub(crate) k: usize,
    pub(crate) filter: ItemFilter,
    /// Whether each row of the catalog meets the condition of the query, if there is one.
    pub(crate) mask: Option<Vec<bool>>,
}

/// What a search found, and the items of the gallery at that moment: later it may lack some of them.
pub(crate) struct Listed {
    pub(crate) found: Found,
    pub(crate) catalog: Arc<Catalog>,
}

/// Ids with their Euclidean distances, the nearest first.
pub(crate) type Found = Vec<(u64, f32)>;

/// Rows as they are compared: of length 1 for the cosine.
pub(crate) fn as_compared(metric: Metric, rows: &Matrix) -> Matrix {
    match metric {
        Metric::Cosine => rows.l2_normalized().0,
        Metric::Euclidean | Metric::InnerProduct => rows.clone(),
    }
}
