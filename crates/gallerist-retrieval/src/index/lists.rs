//! What a search of an index returns.

use crate::search::Metric;

/// For every query the ids and scores of the best items, the best first.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct IdLists {
    ends: Vec<usize>,
    ids: Vec<u64>,
    scores: Vec<f32>,
}

impl IdLists {
    /// Takes the (id, score) pairs found for each query, in any order: they are brought into the
    /// order of scores, then of ids, and cut to `k`.
    ///
    /// A score is what a user reads: a similarity, or for [`Metric::Euclidean`] a distance.
    pub fn from_candidates(
        k: usize,
        metric: Metric,
        lists: impl IntoIterator<Item = Vec<(u64, f32)>>,
    ) -> Self {
        let mut sorted = Self::default();
        for mut list in lists {
            list.sort_unstable_by(|a, b| {
                // -0 and +0 are the same score.
                let rising = (a.1 + 0.0).total_cmp(&(b.1 + 0.0));
                let best_first = if metric == Metric::Euclidean { rising } else { rising.reverse() };
                best_first.then(a.0.cmp(&b.0))
            });
            list.truncate(k);
            sorted.push(list);
        }
        sorted
    }

    /// Adds the list of the next query, the best first.
    pub(crate) fn push(&mut self, list: impl IntoIterator<Item = (u64, f32)>) {
        for (id, score) in list {
            self.ids.push(id);
            self.scores.push(score);
        }
        self.ends.push(self.ids.len());
    }

    /// Number of lists: one per query.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// True when there were no queries.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The ids found for `query`, the best first.
    ///
    /// # Panics
    /// When there is no such query.
    pub fn ids(&self, query: usize) -> &[u64] {
        &self.ids[self.range(query)]
    }

    /// The scores of [`ids`](Self::ids): similarities (falling) for the inner product and the
    /// cosine, distances (rising) for [`Metric::Euclidean`].
    ///
    /// # Panics
    /// When there is no such query.
    pub fn scores(&self, query: usize) -> &[f32] {
        &self.scores[self.range(query)]
    }

    /// The ids and scores of each query in turn.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u64], &[f32])> {
        (0..self.len()).map(|query| (self.ids(query), self.scores(query)))
    }

    fn range(&self, query: usize) -> std::ops::Range<usize> {
        let start = if query == 0 { 0 } else { self.ends[query - 1] };
        start..self.ends[query]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn candidates_are_ordered_by_score_then_by_the_lower_id() {
        let pairs = vec![(3, 0.5), (9, -0.0), (1, 0.5), (2, 0.0), (4, 2.0)];
        let near = IdLists::from_candidates(4, Metric::Euclidean, [pairs.clone(), vec![]]);
        assert_eq!(near.ids(0), [2, 9, 1, 3]);
        assert!(near.ids(1).is_empty() && near.len() == 2);
        let alike = IdLists::from_candidates(9, Metric::Cosine, [pairs]);
        assert_eq!(alike.ids(0), [4, 1, 3, 2, 9]);
        assert_eq!(alike.scores(0), [2.0, 0.5, 0.5, 0.0, 0.0]);
    }
}
