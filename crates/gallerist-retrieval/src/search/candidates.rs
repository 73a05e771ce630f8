//! The candidates of one query whose scores are known within bounds.

use std::cmp::Ordering;

use super::best::rank_key;

/// What a pair's score is known to lie between, in the domain of keys.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    pub(super) low: f32,
    pub(super) high: f32,
}

/// The exact score of a pair, with the bounds it sets.
#[derive(Clone, Copy, Debug)]
pub(super) struct Exact {
    pub(super) score: f32,
    pub(super) bounds: Bounds,
}

#[derive(Clone, Copy)]
struct Candidate {
    bounds: Bounds,
    item: u32,
    /// Nothing until the pair is scored exactly.
    score: Option<f32>,
}

/// Everything that may be among the best k of one query.
///
/// A candidate is dropped only when k others are better for certain: their lower bounds exceed its
/// upper bound, or all have exact scores. When bounds alone leave too many, they are scored, so
/// memory stays in proportion to k whatever the data.
pub(super) struct Candidates {
    k: usize,
    floor: f32,
    list: Vec<Candidate>,
}

impl Candidates {
    pub(super) fn new(k: usize) -> Self {
        Self { k, floor: f32::NEG_INFINITY, list: Vec::new() }
    }

    fn room(&self) -> usize {
        2 * self.k + 64
    }

    /// The upper bound that a candidate must reach.
    pub(super) fn floor(&self) -> f32 {
        self.floor
    }

    /// Takes a candidate that reaches the floor; `score` gives exact scores in the order of the
    /// items it is given. True when the floor has risen.
    pub(super) fn push(
        &mut self,
        item: u32,
        bounds: Bounds,
        score: impl FnOnce(&[u32]) -> Vec<Exact>,
    ) -> bool {
        if self.list.capacity() == 0 {
            self.list.reserve_exact(self.room());
        }
        self.list.push(Candidate { bounds, item, score: None });
        if self.list.len() < self.room() {
            return false;
        }
        self.drop_the_certain();
        if self.list.len() > self.k + self.k / 2 + 32 {
            self.score_all(score);
        }
        true
    }

    /// The rank keys of the best k, the best first.
    pub(super) fn finish(mut self, score: impl FnOnce(&[u32]) -> Vec<Exact>) -> Vec<u64> {
        self.drop_the_certain();
        self.score_all(score);
        let mut keys: Vec<u64> = self.list.iter().map(Candidate::rank_key).collect();
        keys.sort_unstable_by(|a, b| b.cmp(a));
        keys
    }

    /// Drops what k others certainly exceed.
    fn drop_the_certain(&mut self) {
        if self.list.len() <= self.k {
            return;
        }
        let falling = |a: &Candidate, b: &Candidate| b.bounds.low.total_cmp(&a.bounds.low);
        let (_, kth, _) = self.list.select_nth_unstable_by(self.k - 1, falling);
        self.floor = self.floor.max(kth.bounds.low);
        self.list.retain(|candidate| candidate.bounds.high >= self.floor);
    }

    /// Scores the candidates that have no score yet and drops all but the best k.
    fn score_all(&mut self, score: impl FnOnce(&[u32]) -> Vec<Exact>) {
        let open = |candidate: &&mut Candidate| candidate.score.is_none();
        let items: Vec<u32> = self.list.iter_mut().filter(open).map(|candidate| candidate.item).collect();
        let exact = score(&items);
        assert_eq!(exact.len(), items.len(), "scores of {} items", items.len());
        for (candidate, exact) in self.list.iter_mut().filter(open).zip(exact) {
            (candidate.score, candidate.bounds) = (Some(exact.score), exact.bounds);
        }
        if self.list.len() > self.k {
            let falling = |a: &Candidate, b: &Candidate| -> Ordering { b.rank_key().cmp(&a.rank_key()) };
            let (_, kth, _) = self.list.select_nth_unstable_by(self.k - 1, falling);
            self.floor = self.floor.max(kth.bounds.low);
            self.list.truncate(self.k);
        }
    }
}

impl Candidate {
    fn rank_key(&self) -> u64 {
        rank_key(self.score.expect("all candidates are scored"), self.item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::search::best::unrank_key;
    use proptest::prelude::*;

    /// The best k of `scores`, from bounds that are off by up to `error`.
    fn best(scores: &[f32], k: usize, error: f32) -> Vec<(f32, u32)> {
        let exact = |score: f32| Exact { score, bounds: Bounds { low: score, high: score } };
        let all = |items: &[u32]| items.iter().map(|&item| exact(scores[item as usize])).collect();
        let mut candidates = Candidates::new(k);
        for (item, &score) in scores.iter().enumerate() {
            // Off to either side, by amounts that do not follow the score.
            let off = error * ((item * 7919 % 201) as f32 / 100.0 - 1.0);
            let bounds = Bounds { low: score + off - error, high: score + off + error };
            if bounds.high >= candidates.floor() {
                candidates.push(item as u32, bounds, all);
            }
            assert!(candidates.list.len() < 2 * k + 64, "{} candidates", candidates.list.len());
        }
        candidates.finish(all).into_iter().map(unrank_key).collect()
    }

    proptest! {
        #[test]
        fn the_best_are_found_whatever_the_bounds(
            scores in prop::collection::vec((-50i32..50).prop_map(|score| score as f32), 0..400),
            k in 1usize..40,
            error in prop::sample::select(vec![0.0f32, 0.5, 3.0, 1000.0]),
        ) {
            let mut wanted: Vec<(f32, u32)> = scores.iter().copied().zip(0..).collect();
            wanted.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
            wanted.truncate(k);
            prop_assert_eq!(best(&scores, k, error), wanted);
        }
    }
}
