//! The scores of all pairs of a set, counted with weights.

use std::sync::{Mutex, PoisonError};

use crate::eval::allowed;
use crate::product::Panels;
use crate::score_rows::{Against, score_rows};
use crate::search::{Metric, pack_rows, rank_key};
use crate::{MatrixView, Result};

/// The order of a score as an integer: greater is closer.
pub(crate) fn key_of(score: f32) -> u32 {
    (rank_key(score, 0) >> 32) as u32
}

/// The weight of an identity, or of a pair of identities. Integers: their sum does not depend on the threads.
pub(super) const WHOLE: u64 = 1 << 60;

/// Rows with the identities and cameras that decide which pairs count.
#[derive(Clone, Copy)]
pub(super) struct Rows<'a> {
    pub(super) embeddings: MatrixView<'a>,
    pub(super) classes: &'a [u32],
    /// Pairs of one identity from one camera do not count.
    pub(super) cameras: Option<&'a [u32]>,
    pub(super) metric: Metric,
}

/// The pairs of some identities, packed.
pub(super) struct Pairs {
    metric: Metric,
    packed: Panels,
    /// The place of the row's identity in `groups`.
    group: Vec<usize>,
    cameras: Option<Vec<u32>>,
    groups: Vec<Group>,
}

/// The rows of an identity.
struct Group {
    start: usize,
    end: usize,
    /// Pairs of two of its images that count.
    genuine: u64,
}

/// Weights of the pairs that a threshold accepts, or of all.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Counted {
    pub(super) impostor: u128,
    pub(super) genuine: u128,
}

impl Counted {
    /// The rates of false matches and of misses of a threshold that accepts `self` of `all`.
    pub(super) fn rates(self, all: Self) -> (f64, Option<f64>) {
        let miss = (all.genuine > 0).then(|| 1.0 - self.genuine as f64 / all.genuine as f64);
        (self.impostor as f64 / all.impostor as f64, miss)
    }
}

impl Pairs {
    /// The pairs of the images of the identities in `kept`.
    pub(super) fn new(rows: Rows, kept: impl Fn(u32) -> bool) -> Result<Self> {
        let mut order: Vec<usize> = (0..rows.classes.len()).filter(|&row| kept(rows.classes[row])).collect();
        order.sort_by_key(|&row| rows.classes[row]);
        let cameras: Option<Vec<u32>> = rows.cameras.map(|of| order.iter().map(|&row| of[row]).collect());
        let (mut groups, mut group) = (Vec::new(), Vec::with_capacity(order.len()));
        for same in order.chunk_by(|&a, &b| rows.classes[a] == rows.classes[b]) {
            let (start, end) = (group.len(), group.len() + same.len());
            let pairs = |rows: usize| (rows * (rows - 1) / 2) as u64;
            let skipped = cameras.as_ref().map_or(0, |cameras| {
                let mut of: Vec<u32> = cameras[start..end].to_vec();
                of.sort_unstable();
                of.chunk_by(|a, b| a == b).map(|same| pairs(same.len())).sum()
            });
            group.resize(end, groups.len());
            groups.push(Group { start, end, genuine: pairs(same.len()) - skipped });
        }
        let packed = pack_rows(rows.embeddings, &order, "embeddings", rows.metric)?;
        Ok(Self { metric: rows.metric, packed, group, cameras, groups })
    }

    pub(super) fn identities(&self) -> usize {
        self.groups.len()
    }

    pub(super) fn images(&self) -> usize {
        self.group.len()
    }

    /// Identities with at least one pair of images.
    pub(super) fn identities_with_pairs(&self) -> usize {
        self.groups.iter().filter(|group| group.genuine > 0).count()
    }

    pub(super) fn genuine(&self) -> u64 {
        self.groups.iter().map(|group| group.genuine).sum()
    }

    pub(super) fn impostors(&self) -> u64 {
        let size = |group: &Group| (group.end - group.start) as u64;
        let images = self.images() as u64;
        let alike: u64 = self.groups.iter().map(|group| size(group) * size(group)).sum();
        (images * images - alike) / 2
    }

    /// For each rate the key from which on pairs are accepted: the lowest at which at most this share of the weight of
    /// the impostor pairs is.
    pub(super) fn keys_at(&self, rates: &[f64]) -> Vec<u32> {
        // By the upper 16 bits of the keys, then by the lower ones of those bins in which the keys are.
        let coarse = self.histogram(1, |key| Some((0, key >> 16)));
        let total: u128 = coarse.iter().sum();
        let limits: Vec<u128> = rates.iter().map(|&rate| allowed(rate, total as f64) as u128).collect();
        let below_one = "a rate below 1 refuses some pairs";
        let bins: Vec<(u32, u128)> =
            limits.iter().map(|&limit| crossing(&coarse, 0, limit).expect(below_one)).collect();
        let mut needed: Vec<u32> = bins.iter().map(|&(bin, _)| bin).collect();
        needed.sort_unstable();
        needed.dedup();
        let mut places = vec![None; 1 << 16];
        needed.iter().enumerate().for_each(|(place, &bin)| places[bin as usize] = Some(place));
        let fine = self.histogram(needed.len(), |key| Some((places[key as usize >> 16]?, key & 0xffff)));
        let key = |((bin, above), limit): ((u32, u128), &u128)| {
            let place = places[bin as usize].expect("a bin that was asked for");
            let counts = &fine[place << 16..(place + 1) << 16];
            let (refused, _) = crossing(counts, above, *limit).expect("the bin's weight passes the limit");
            (bin << 16 | refused) + 1
        };
        bins.into_iter().zip(&limits).map(key).collect()
    }

    /// The weights of the pairs at each key or above, and of all pairs.
    pub(super) fn accepted(&self, keys: &[u32]) -> (Vec<Counted>, Counted) {
        let tallies = self.scan(
            || vec![Counted::default(); keys.len() + 1],
            |tally, genuine, weight, scores| {
                for &score in scores {
                    let of = key_of(score);
                    for (at, counted) in tally.iter_mut().enumerate() {
                        let within = keys.get(at).is_none_or(|&key| of >= key);
                        let sum = if genuine { &mut counted.genuine } else { &mut counted.impostor };
                        *sum += u128::from(if within { weight } else { 0 });
                    }
                }
            },
        );
        let mut sums = vec![Counted::default(); keys.len() + 1];
        for tally in tallies {
            for (sum, of) in sums.iter_mut().zip(tally) {
                sum.impostor += of.impostor;
                sum.genuine += of.genuine;
            }
        }
        let all = sums.pop().expect("the sum of all pairs");
        (sums, all)
    }

    /// The weights of the impostor pairs in `tables` tables of 2^16 bins; `place` names the table and the bin of a key.
    fn histogram(&self, tables: usize, place: impl Fn(u32) -> Option<(usize, u32)> + Sync) -> Vec<u128> {
        let tallies = self.scan(
            || vec![0u128; tables << 16],
            |tally, genuine, weight, scores| {
                if !genuine {
                    for (table, bin) in scores.iter().filter_map(|&score| place(key_of(score))) {
                        tally[table << 16 | bin as usize] += u128::from(weight);
                    }
                }
            },
        );
        let mut sums = vec![0; tables << 16];
        for tally in tallies {
            sums.iter_mut().zip(tally).for_each(|(sum, of): (&mut u128, _)| *sum += of);
        }
        sums
    }

    /// Hands out the scores of all pairs that count: whether they are of one identity, the weight of each, and the
    /// scores. Every identity, and every pair of identities, has the same weight in all.
    fn scan<T: Send>(
        &self,
        new: impl Fn() -> T + Sync,
        take: impl Fn(&mut T, bool, u64, &[f32]) + Sync,
    ) -> Vec<T> {
        // A tally for each thread that needs one at the time.
        let tallies: Mutex<Vec<T>> = Mutex::new(Vec::new());
        let lock = || tallies.lock().unwrap_or_else(PoisonError::into_inner);
        score_rows(self.metric, (&self.packed, &self.packed), Against::Later, |row, scores| {
            let spare = lock().pop();
            let mut tally = spare.unwrap_or_else(&new);
            let own = &self.groups[self.group[row]];
            if let Some(weight) = WHOLE.checked_div(own.genuine) {
                let later = row + 1..own.end;
                match &self.cameras {
                    None => take(&mut tally, true, weight, &scores[later]),
                    Some(cameras) => {
                        let others = later.filter(|&other| cameras[other] != cameras[row]);
                        let of: Vec<f32> = others.map(|other| scores[other]).collect();
                        take(&mut tally, true, weight, &of);
                    }
                }
            }
            for other in &self.groups[self.group[row] + 1..] {
                let pairs = (own.end - own.start) as u64 * (other.end - other.start) as u64;
                take(&mut tally, false, WHOLE / pairs, &scores[other.start..other.end]);
            }
            lock().push(tally);
        });
        tallies.into_inner().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The highest bin at which the sum of it, of the bins above and of `above` exceeds `limit`, with the sum above it.
fn crossing(counts: &[u128], mut above: u128, limit: u128) -> Option<(u32, u128)> {
    for (bin, count) in counts.iter().enumerate().rev() {
        if above + count > limit {
            return Some((bin as u32, above));
        }
        above += count;
    }
    None
}
