//! The best k candidates of each of several queries.

use gallerist_util::memory::prefer_large_pages;

/// A candidate as one integer: greater is better. The score is in the upper half, its order
/// that of the floats; the complement of the index below it, so that the lower index wins ties.
pub(crate) fn rank_key(score: f32, index: u32) -> u64 {
    // -0 and +0 are the same score.
    let bits = (score + 0.0).to_bits();
    let ordered = if bits >> 31 == 1 { !bits } else { bits | 1 << 31 };
    u64::from(ordered) << 32 | u64::from(!index)
}

pub(crate) fn unrank_key(key: u64) -> (f32, u32) {
    let ordered = (key >> 32) as u32;
    let bits = if ordered >> 31 == 1 { ordered & !(1 << 31) } else { !ordered };
    (f32::from_bits(bits), !(key as u32))
}

/// The score of a rank key.
pub(crate) fn score_of(key: u64) -> f32 {
    unrank_key(key).0
}

/// For each row the best k candidates offered so far, with room for some more: when the room is
/// used up, all but the best k are dropped and the row's floor rises.
pub(crate) struct Best {
    k: usize,
    room: usize,
    keys: Vec<u64>,
    rows: Vec<Row>,
}

#[derive(Clone, Copy)]
struct Row {
    used: usize,
    /// What a candidate must exceed: the k-th best when the room was last used up.
    floor: u64,
}

/// Every score, even the lowest finite one, exceeds this floor.
fn no_floor() -> u64 {
    rank_key(f32::MIN, u32::MAX)
}

/// Moves the best `k` keys to the front, and returns the last of them.
#[inline(never)]
fn kth_best(keys: &mut [u64], k: usize) -> u64 {
    *keys.select_nth_unstable_by(k - 1, |a, b| b.cmp(a)).1
}

impl Best {
    pub(crate) fn new(rows: usize, k: usize) -> Self {
        let room = k + k / 2 + 16;
        let empty = Row { used: 0, floor: no_floor() };
        // Candidates come for all rows by turns. The zeros are the system's: what is not written is not touched.
        let mut keys = vec![0; rows * room];
        prefer_large_pages(&mut keys);
        Self { k, room, keys, rows: vec![empty; rows] }
    }

    /// The score a candidate of `row` must reach.
    pub(crate) fn floor(&self, row: usize) -> f32 {
        unrank_key(self.rows[row].floor).0
    }

    #[inline]
    pub(crate) fn admits(&self, row: usize, score: f32, index: u32) -> bool {
        rank_key(score, index) > self.rows[row].floor
    }

    /// Takes a candidate that [`admits`](Self::admits) let pass; true when the floor has risen.
    #[inline]
    pub(crate) fn push(&mut self, row: usize, score: f32, index: u32) -> bool {
        self.push_key(row, rank_key(score, index))
    }

    #[inline]
    fn push_key(&mut self, row: usize, key: u64) -> bool {
        let state = &mut self.rows[row];
        self.keys[row * self.room + state.used] = key;
        state.used += 1;
        let full = state.used == self.room;
        if full {
            self.drop_all_but_k(row);
        }
        full
    }

    /// Makes room in a full row, and raises its floor.
    #[cold]
    #[inline(never)]
    fn drop_all_but_k(&mut self, row: usize) {
        let keys = &mut self.keys[row * self.room..(row + 1) * self.room];
        let floor = kth_best(keys, self.k);
        self.rows[row] = Row { used: self.k, floor };
    }

    /// The k-th best score of a row; nothing while there are fewer.
    pub(crate) fn worst(&mut self, row: usize) -> Option<f32> {
        let used = self.rows[row].used;
        let keys = &mut self.keys[row * self.room..][..used];
        (used >= self.k).then(|| score_of(kth_best(keys, self.k)))
    }

    /// Lets only what reaches `score` pass from now on.
    pub(crate) fn raise(&mut self, row: usize, score: f32) {
        let floor = &mut self.rows[row].floor;
        // The lowest key of the score, which no candidate has: there is no row of this index.
        *floor = rank_key(score, u32::MAX).max(*floor);
    }

    /// Whether a row has fewer than k candidates.
    pub(crate) fn is_short(&self, row: usize) -> bool {
        self.rows[row].used < self.k
    }

    /// The number of rows.
    pub(crate) fn rows(&self) -> usize {
        self.rows.len()
    }

    /// Takes over the candidates of `other`, row by row.
    pub(crate) fn merge(&mut self, other: &Self) {
        for row in 0..self.rows.len() {
            for &key in &other.keys[row * other.room..][..other.rows[row].used] {
                if key > self.rows[row].floor {
                    self.push_key(row, key);
                }
            }
        }
    }

    /// Brings each row's candidates into order and drops all but the best k.
    pub(crate) fn sort(&mut self) {
        for (keys, row) in self.keys.chunks_mut(self.room).zip(&mut self.rows) {
            let keys = &mut keys[..row.used];
            if row.used > self.k {
                kth_best(keys, self.k);
                row.used = self.k;
            }
            keys[..row.used].sort_unstable_by(|a, b| b.cmp(a));
        }
    }

    /// The keys of each row's candidates.
    pub(crate) fn lists(&self) -> Vec<&[u64]> {
        self.keys.chunks(self.room).zip(&self.rows).map(|(keys, row)| &keys[..row.used]).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_order_by_score_then_by_lower_index() {
        let ordered = [
            (f32::MAX, 0),
            (1.0, 0),
            (1.0, 1),
            (1e-45, 9),
            (0.0, 3),
            (-0.0, 4),
            (0.0, 5),
            (-1e-45, 0),
            (-1.0, 7),
            (f32::MIN, 2),
        ];
        let keys: Vec<_> = ordered.iter().map(|&(score, index)| rank_key(score, index)).collect();
        assert!(keys.is_sorted_by(|a, b| a > b));
        for (&key, &pair) in keys.iter().zip(&ordered) {
            assert_eq!(unrank_key(key), pair);
        }
    }

    #[test]
    fn the_best_are_kept_however_they_come() {
        let scores: Vec<f32> = (0..500).map(|i| ((i * 7919) % 101) as f32).collect();
        let mut wanted: Vec<(f32, u32)> = scores.iter().copied().zip(0..).collect();
        wanted.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        for k in [1, 2, 33, 499, 500, 501] {
            let mut best = Best::new(2, k);
            let mut other = Best::new(2, k);
            for (index, &score) in scores.iter().enumerate().rev() {
                let to = if index % 3 == 0 { &mut other } else { &mut best };
                if to.admits(1, score, index as u32) {
                    to.push(1, score, index as u32);
                }
            }
            best.merge(&other);
            best.sort();
            let unranked = |list: &&[u64]| list.iter().map(|&key| unrank_key(key)).collect();
            let lists: Vec<Vec<_>> = best.lists().iter().map(unranked).collect();
            assert!(lists[0].is_empty());
            assert_eq!(lists[1], wanted[..k.min(500)], "k = {k}");
        }
    }
}
