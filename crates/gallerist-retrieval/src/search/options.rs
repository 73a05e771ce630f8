//! What to search for.

use std::fmt;

use super::metric::Metric;

/// Which pairs may be ranked: `filter(query, gallery)` by index.
///
/// It is asked only for pairs that would enter a list, in no particular order and from several
/// threads.
pub type Filter<'a> = &'a (dyn Fn(usize, usize) -> bool + Sync);

/// What to search for.
#[derive(Clone, Copy)]
pub struct SearchOptions<'a> {
    /// Results per query, at least 1. A gallery with fewer admissible rows gives shorter lists.
    pub k: usize,
    /// How rows are compared.
    pub metric: Metric,
    /// Leaves gallery row `i` out of the list of query `i`: for queries that are the gallery.
    pub exclude_self: bool,
    /// Leaves out every pair for which this is false.
    pub filter: Option<Filter<'a>>,
}

impl SearchOptions<'_> {
    /// The `k` most similar rows by cosine; nothing is left out.
    pub fn new(k: usize) -> Self {
        Self { k, metric: Metric::Cosine, exclude_self: false, filter: None }
    }
}

impl fmt::Debug for SearchOptions<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SearchOptions")
            .field("k", &self.k)
            .field("metric", &self.metric)
            .field("exclude_self", &self.exclude_self)
            .field("filter", &self.filter.map(|_| "a predicate"))
            .finish()
    }
}
