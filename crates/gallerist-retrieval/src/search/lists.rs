//! What a search returns.

use rayon::prelude::*;

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
    pub(crate) fn new(k: usize, blocks: Vec<Best>, present: impl Fn(f32) -> f32 + Sync) -> Self {
        Self::gather(k, blocks, Best::lists, present)
    }

    /// Takes the sorted rank keys of one query after the other, and frees them.
    pub(crate) fn from_keys(k: usize, lists: Vec<Vec<u64>>, present: impl Fn(f32) -> f32 + Sync) -> Self {
        Self::gather(k, lists, |list| vec![list.as_slice()], present)
    }

    /// A list without results for each of `queries` queries.
    pub fn empty(k: usize, queries: usize) -> Self {
        Self { k, ends: vec![0; queries], indices: Vec::new(), scores: Vec::new() }
    }

    fn gather<B: Send>(
        k: usize,
        blocks: Vec<B>,
        lists: impl Fn(&B) -> Vec<&[u64]> + Sync,
        present: impl Fn(f32) -> f32 + Sync,
    ) -> Self {
        let mut ends = Vec::new();
        let mut results = 0;
        let mut block_ends = Vec::with_capacity(blocks.len());
        for block in &blocks {
            for list in lists(block) {
                results += list.len();
                ends.push(results);
            }
            block_ends.push(results);
        }
        let (mut indices, mut scores) = (vec![0; results], vec![0.0; results]);
        let (mut rest, mut start) = ((&mut indices[..], &mut scores[..]), 0);
        let parts: Vec<_> = block_ends
            .into_iter()
            .map(|end| {
                let (indices, scores) = std::mem::take(&mut rest);
                let (own_indices, indices) = indices.split_at_mut(end - start);
                let (own_scores, scores) = scores.split_at_mut(end - start);
                (rest, start) = ((indices, scores), end);
                (own_indices, own_scores)
            })
            .collect();
        blocks.into_par_iter().zip(parts).for_each(|(block, (indices, scores))| {
            let keys = lists(&block).into_iter().flatten();
            for ((&key, index), score) in keys.zip(indices).zip(scores) {
                let found = unrank_key(key);
                (*score, *index) = (present(found.0), found.1);
            }
        });
        Self { k, ends, indices, scores }
    }

    /// Requested results per query.
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
