//! What a search returns.

use super::best::{Best, unrank_key};

/// For every query the indices and scores of the best rows of the gallery, the best first.
///
/// A list is shorter than k where the gallery has fewer admissible rows.
#[derive(Clone, Debug, PartialEq)]
pub struct RankedLists {
    k: usize,
    ends: Vec<usize>,
    indices: Vec<u32>,
    scores: Vec<f32>,
}

impl RankedLists {
    /// Takes the sorted candidates of one block of queries after the other, and frees them.
    pub(crate) fn new(k: usize, blocks: Vec<Best>, present: impl Fn(f32) -> f32) -> Self {
        let queries = blocks.iter().map(|block| block.lists().len()).sum();
        let results = blocks.iter().flat_map(Best::lists).map(|list| list.len()).sum();
        let mut ranked = Self {
            k,
            ends: Vec::with_capacity(queries),
            indices: Vec::with_capacity(results),
            scores: Vec::with_capacity(results),
        };
        for block in blocks {
            for list in block.lists() {
                for (score, index) in list {
                    ranked.indices.push(index);
                    ranked.scores.push(present(score));
                }
                ranked.ends.push(ranked.indices.len());
            }
        }
        ranked
    }

    /// Takes the sorted rank keys of one query after the other, and frees them.
    pub(crate) fn from_keys(k: usize, lists: Vec<Vec<u64>>, present: impl Fn(f32) -> f32) -> Self {
        let results = lists.iter().map(Vec::len).sum();
        let mut ranked = Self {
            k,
            ends: Vec::with_capacity(lists.len()),
            indices: Vec::with_capacity(results),
            scores: Vec::with_capacity(results),
        };
        for list in lists {
            for (score, index) in list.into_iter().map(unrank_key) {
                ranked.indices.push(index);
                ranked.scores.push(present(score));
            }
            ranked.ends.push(ranked.indices.len());
        }
        ranked
    }

    /// Results asked for per query.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Number of lists: one per query.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True when there were no queries.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The gallery rows found for `query`, the best first; at most k.
    ///
    /// # Panics
    /// When there is no such query.
    pub fn indices(&self, query: usize) -> &[u32] {
        &self.indices[self.range(query)]
    }

    /// The scores of [`indices`](Self::indices): similarities (falling) for the inner product and
    /// the cosine, distances (rising) for [`Metric::Euclidean`](super::Metric::Euclidean).
    ///
    /// # Panics
    /// When there is no such query.
    pub fn scores(&self, query: usize) -> &[f32] {
        &self.scores[self.range(query)]
    }

    /// The indices and scores of each query in turn.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u32], &[f32])> {
        (0..self.len()).map(|query| (self.indices(query), self.scores(query)))
    }

    fn range(&self, query: usize) -> std::ops::Range<usize> {
        let start = if query == 0 { 0 } else { self.ends[query - 1] };
        start..self.ends[query]
    }
}
