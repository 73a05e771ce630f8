//! Verification: is a pair of images of one class?

use std::sync::{Mutex, PoisonError};

use serde::{Deserialize, Serialize};

use super::ranks::{Classed, Problem};
use super::task::Task;
use crate::score_rows::{Against, score_rows};
use crate::search::{Metric, pack_rows, rank_key, score_of};
use crate::{Error, Matrix, Result};

/// The false accept rates at which the true accept rate is measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VerificationOptions {
    /// From 0 to 1 each; 0.1, 0.01, 0.001 and 0.0001 by default.
    pub fars: Vec<f64>,
}

impl Default for VerificationOptions {
    fn default() -> Self {
        Self { fars: vec![1e-1, 1e-2, 1e-3, 1e-4] }
    }
}

/// The error rates of a threshold on the scores of pairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verification {
    /// The true accept rate at each requested false accept rate.
    pub tar_at_far: Vec<Operating>,
    /// The equal error rate: where the ROC curve, its points joined by lines, has as large a share of
    /// accepted impostors as of refused genuine pairs.
    pub eer: f64,
    /// The area under the ROC curve: the probability that a genuine pair is closer than an impostor,
    /// ties counting half.
    pub auc: f64,
    /// Pairs of one class.
    pub genuine_pairs: u64,
    /// Pairs of two classes.
    pub impostor_pairs: u64,
}

/// A point of the ROC curve.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Operating {
    /// The requested false accept rate: at most this share of the impostor pairs is accepted.
    pub far: f64,
    /// The largest share of genuine pairs that can then be accepted.
    pub tar: f64,
    /// The score at which a pair is accepted: this similarity or a larger one, this distance or a
    /// smaller one. `None` where no genuine pair can be accepted.
    pub threshold: Option<f32>,
}

/// Measures verification over all pairs of the task: those of two different rows where every row is a
/// query, else those of a query and a gallery row.
///
/// The result is exact: impostor pairs are counted between the scores of the genuine ones, to the last
/// bit of the score, and no curve is binned. Memory is that of a packed copy of the rows and of at most
/// 2^24 genuine scores with two counts each for every thread; where there are more genuine pairs the
/// scores are gone over in several passes. Junk takes no part, nor do pairs of one class from one camera.
///
/// ```
/// use gallerist_retrieval::eval::{Side, Task, VerificationOptions, verify};
/// use gallerist_retrieval::{Matrix, search::Metric};
///
/// // Genuine distances 1 and 2; impostor distances 3, 5, 2 and 4.
/// let rows = Matrix::new(4, 1, vec![0.0, 1.0, 3.0, 5.0])?;
/// let task = Task::every_row(Side::classes(&rows, &[0, 0, 1, 1]));
/// let options = VerificationOptions { fars: vec![0.0, 0.25] };
/// let found = verify(&task, Metric::Euclidean, &options)?;
/// assert_eq!((found.genuine_pairs, found.impostor_pairs), (2, 4));
/// assert_eq!((found.tar_at_far[0].tar, found.tar_at_far[0].threshold), (0.5, Some(1.0)));
/// assert_eq!(found.tar_at_far[1].tar, 1.0);
/// // 7.5 of 8: one tie counts half.
/// assert_eq!(found.auc, 7.5 / 8.0);
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
///
/// # Errors
/// As [`Task::measure`]; [`Error::Option`] for a rate outside 0 to 1, for label sets, and when there are
/// no pairs of one class or none of two.
pub fn verify(task: &Task, metric: Metric, options: &VerificationOptions) -> Result<Verification> {
    verify_in_slices(task, metric, options, PAIRS)
}

/// Genuine pairs whose scores are held at a time.
const PAIRS: u64 = 1 << 24;

fn verify_in_slices(
    task: &Task,
    metric: Metric,
    options: &VerificationOptions,
    limit: u64,
) -> Result<Verification> {
    let refuse = |option, wanted, found: String| Err(Error::Option { option, wanted, found });
    if let Some(far) = options.fars.iter().find(|far| !(0.0..=1.0).contains(*far)) {
        return refuse("a false accept rate", "from 0 to 1", far.to_string());
    }
    task.check(&super::EvalOptions { metric, measures: Vec::new() })?;
    let Some(problem) = task.classed(task.is_one_set())? else {
        return refuse("verification", "run on one class per row", "label sets".to_owned());
    };
    let pairs = Pairs::new(&problem, metric);
    // Scores by their upper 16 bits.
    let mut coarse = vec![0u64; 1 << 16];
    pairs.genuine(|keys| keys.iter().for_each(|key| coarse[*key as usize >> 16] += 1))?;
    let genuine: u64 = coarse.iter().sum();
    let impostor = pairs.impostors();
    if genuine == 0 || impostor == 0 {
        let found = format!("{genuine} and {impostor}");
        return refuse("verification", "run on pairs of one class and pairs of two", found);
    }
    let mut curve = Curve::new(genuine, impostor, &options.fars);
    let mut top = coarse.len();
    while top > 0 {
        // From the highest scores down, as many as may be held; one bin at least.
        let (mut bottom, mut held) = (top - 1, coarse[top - 1]);
        while bottom > 0 && held + coarse[bottom - 1] <= limit {
            bottom -= 1;
            held += coarse[bottom];
        }
        let slice = (bottom as u32) << 16..=((top - 1) as u32) << 16 | 0xffff;
        let scores = if held <= limit {
            let mut keys = Vec::with_capacity(held as usize);
            pairs.genuine(|row| keys.extend(row.iter().filter(|key| slice.contains(key))))?;
            keys.sort_unstable();
            keys.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u64)).collect()
        } else {
            let mut counts = vec![0u64; 1 << 16];
            let of_slice = |key: &&u32| slice.contains(key);
            pairs.genuine(|row| {
                row.iter().filter(of_slice).for_each(|key| counts[*key as usize & 0xffff] += 1);
            })?;
            (*slice.start()..).zip(counts).filter(|&(_, count)| count > 0).collect()
        };
        curve.descend(&pairs.count(&Scores::new(scores), slice)?);
        top = bottom;
    }
    Ok(curve.finish(metric, options))
}

/// The order of a score as an integer.
fn key_of(score: f32) -> u32 {
    (rank_key(score, 0) >> 32) as u32
}

/// The pairs of a problem.
struct Pairs<'a> {
    problem: &'a Problem<'a>,
    metric: Metric,
    /// Rows that are not junk, by class.
    queries: Vec<usize>,
    gallery: Vec<usize>,
}

impl<'a> Pairs<'a> {
    fn new(problem: &'a Problem<'a>, metric: Metric) -> Self {
        let by_class = |side: &Classed| {
            let mut rows: Vec<usize> =
                (0..side.labels.len()).filter(|&row| Some(side.labels[row]) != problem.junk).collect();
            rows.sort_by_key(|&row| side.labels[row]);
            rows
        };
        Self { problem, metric, queries: by_class(&problem.queries), gallery: by_class(&problem.gallery) }
    }

    fn against(&self) -> Against {
        if self.problem.same { Against::Later } else { Against::All }
    }

    /// The queries and the gallery rows of each class that both have.
    fn classes(&self) -> impl Iterator<Item = (&[usize], &[usize])> {
        let label = |&row: &usize| self.problem.gallery.labels[row];
        let labels = self.problem.queries.labels;
        self.queries.chunk_by(|&a, &b| labels[a] == labels[b]).map(move |queries| {
            let of = labels[queries[0]];
            let start = self.gallery.partition_point(|row| label(row) < of);
            let length = self.gallery[start..].partition_point(|row| label(row) == of);
            (queries, &self.gallery[start..start + length])
        })
    }

    /// Pairs of two classes.
    fn impostors(&self) -> u64 {
        let all = self.queries.len() as u64 * self.gallery.len() as u64;
        let alike: u64 = self.classes().map(|(a, b)| a.len() as u64 * b.len() as u64).sum();
        if self.problem.same { (all - alike) / 2 } else { all - alike }
    }

    /// Hands out the scores of all genuine pairs, some at a time, in no particular order.
    fn genuine(&self, take: impl FnMut(&[u32]) + Send) -> Result<()> {
        let take = Mutex::new(take);
        for (queries, gallery) in self.classes() {
            self.rows(queries, gallery, |row, scores| {
                let pairs = scores.iter().enumerate().filter(|&(item, _)| {
                    (!self.problem.same || item > row) && !self.problem.skips(queries[row], gallery[item])
                });
                let keys: Vec<u32> = pairs.map(|(_, &score)| key_of(score)).collect();
                take.lock().unwrap_or_else(PoisonError::into_inner)(&keys);
            })?;
        }
        Ok(())
    }

    /// Counts the impostor pairs of a slice between the genuine scores in it.
    fn count(&self, scores: &Scores, slice: std::ops::RangeInclusive<u32>) -> Result<Counted> {
        // A tally for each thread that needs one at the time.
        let tallies: Mutex<Vec<Vec<u64>>> = Mutex::new(Vec::new());
        let lock = || tallies.lock().unwrap_or_else(PoisonError::into_inner);
        let (of_queries, of_gallery) = (self.problem.queries.labels, self.problem.gallery.labels);
        self.rows(&self.queries, &self.gallery, |row, of_row| {
            let spare = lock().pop();
            let mut tally = spare.unwrap_or_else(|| vec![0; scores.places()]);
            let label = of_queries[self.queries[row]];
            let first = if self.problem.same { row + 1 } else { 0 };
            for (&item, &score) in self.gallery[first..].iter().zip(&of_row[first..]) {
                let key = key_of(score);
                if of_gallery[item] != label && slice.contains(&key) {
                    tally[scores.place(key)] += 1;
                }
            }
            lock().push(tally);
        })?;
        let mut impostors = vec![0; scores.places()];
        for tally in tallies.into_inner().unwrap_or_else(PoisonError::into_inner) {
            impostors.iter_mut().zip(tally).for_each(|(sum, count)| *sum += count);
        }
        Ok(Counted { genuine: scores.pairs(), impostors })
    }

    /// Hands out the scores of each of `queries` with all of `gallery`.
    fn rows(
        &self,
        queries: &[usize],
        gallery: &[usize],
        work: impl Fn(usize, &mut [f32]) + Sync,
    ) -> Result<()> {
        // Only these rows are copied, so the time of a class depends on its own size only.
        let pack = |side: &Classed, rows: &[usize], what| {
            let picked: Matrix = side.embeddings.select(rows);
            pack_rows(picked.view(), &(0..rows.len()).collect::<Vec<_>>(), what, self.metric)
        };
        let gallery = pack(&self.problem.gallery, gallery, "gallery")?;
        let of_queries =
            if self.problem.same { None } else { Some(pack(&self.problem.queries, queries, "queries")?) };
        let packed = (of_queries.as_ref().unwrap_or(&gallery), &gallery);
        score_rows(self.metric, packed, self.against(), work);
        Ok(())
    }
}

/// Different genuine scores, rising, and where any score falls among them.
struct Scores {
    keys: Vec<u32>,
    counts: Vec<u64>,
    shift: u32,
    /// Keys below bucket b: `starts[b]`.
    starts: Vec<u32>,
}

/// Buckets that lead to a score's place.
const BUCKETS: u32 = 1 << 20;

impl Scores {
    fn new(scores: Vec<(u32, u64)>) -> Self {
        let (keys, counts): (Vec<u32>, Vec<u64>) = scores.into_iter().unzip();
        let (low, high) = (keys.first().copied().unwrap_or(0), keys.last().copied().unwrap_or(0));
        let shift = (0..32).find(|shift| (high - low) >> shift < BUCKETS).expect("2^32 scores at most");
        let buckets = ((high - low) >> shift) + 1;
        let below = |bucket| keys.partition_point(|&key| (key - low) >> shift < bucket) as u32;
        let starts = (0..=buckets).map(below).collect();
        Self { keys, counts, shift, starts }
    }

    /// The places: below the first score, equal to it, between it and the second, and so on.
    fn places(&self) -> usize {
        2 * self.keys.len() + 1
    }

    fn place(&self, key: u32) -> usize {
        let (Some(&low), Some(&high)) = (self.keys.first(), self.keys.last()) else { return 0 };
        if key < low {
            return 0;
        }
        if key > high {
            return 2 * self.keys.len();
        }
        let bucket = ((key - low) >> self.shift) as usize;
        let (start, end) = (self.starts[bucket] as usize, self.starts[bucket + 1] as usize);
        let at = start + self.keys[start..end].partition_point(|&other| other < key);
        2 * at + usize::from(self.keys.get(at) == Some(&key))
    }

    fn pairs(&self) -> Vec<(u32, u64)> {
        self.keys.iter().copied().zip(self.counts.iter().copied()).collect()
    }
}

/// The genuine scores of a slice with their numbers, and the impostors at each place.
struct Counted {
    genuine: Vec<(u32, u64)>,
    impostors: Vec<u64>,
}

/// The ROC curve, walked from the highest score down.
struct Curve {
    genuine: u64,
    impostor: u64,
    accepted_genuine: u64,
    accepted_impostor: u64,
    /// Impostors met since the last genuine score.
    since: u64,
    /// Twice the area, in pairs of pairs.
    doubled_area: u128,
    /// The impostors that may be accepted at each rate.
    allowed: Vec<u64>,
    /// The genuine pairs accepted there, and at which score.
    operating: Vec<(u64, Option<u32>)>,
    eer: Option<f64>,
}

impl Curve {
    fn new(genuine: u64, impostor: u64, fars: &[f64]) -> Self {
        Self {
            genuine,
            impostor,
            accepted_genuine: 0,
            accepted_impostor: 0,
            since: 0,
            doubled_area: 0,
            allowed: fars.iter().map(|&far| super::allowed(far, impostor as f64) as u64).collect(),
            operating: vec![(0, None); fars.len()],
            eer: None,
        }
    }

    fn descend(&mut self, slice: &Counted) {
        for (at, &(key, count)) in slice.genuine.iter().enumerate().rev() {
            self.since += slice.impostors[2 * at + 2];
            let impostors = std::mem::take(&mut self.since);
            self.to(impostors, 0);
            self.to(slice.impostors[2 * at + 1], count);
            for (allowed, operating) in self.allowed.iter().zip(&mut self.operating) {
                if self.accepted_impostor <= *allowed {
                    *operating = (self.accepted_genuine, Some(key));
                }
            }
        }
        self.since += slice.impostors[0];
    }

    /// A straight line of the curve.
    fn to(&mut self, impostors: u64, genuine: u64) {
        let height = 2 * u128::from(self.accepted_genuine) + u128::from(genuine);
        self.doubled_area += u128::from(impostors) * height;
        let excess = |of: &Self| {
            let far = of.accepted_impostor as f64 / of.impostor as f64;
            (far, far - 1.0 + of.accepted_genuine as f64 / of.genuine as f64)
        };
        let (far, before) = excess(self);
        self.accepted_impostor += impostors;
        self.accepted_genuine += genuine;
        let (next_far, after) = excess(self);
        if self.eer.is_none() && after >= 0.0 {
            self.eer = Some(far + (next_far - far) * before / (before - after));
        }
    }

    fn finish(mut self, metric: Metric, options: &VerificationOptions) -> Verification {
        let impostors = std::mem::take(&mut self.since);
        self.to(impostors, 0);
        assert!(
            self.accepted_genuine == self.genuine && self.accepted_impostor == self.impostor,
            "{} of {} genuine and {} of {} impostor pairs were counted",
            self.accepted_genuine,
            self.genuine,
            self.accepted_impostor,
            self.impostor
        );
        let pairs = 2.0 * self.genuine as f64 * self.impostor as f64;
        let operating = self.operating.iter().zip(&options.fars);
        Verification {
            tar_at_far: operating
                .map(|(&(accepted, key), &far)| Operating {
                    far,
                    tar: accepted as f64 / self.genuine as f64,
                    threshold: key.map(|key| metric.present(score_of(u64::from(key) << 32))),
                })
                .collect(),
            eer: self.eer.expect("the curve ends where everything is accepted"),
            auc: self.doubled_area as f64 / pairs,
            genuine_pairs: self.genuine,
            impostor_pairs: self.impostor,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::eval::Side;

    #[test]
    fn the_result_does_not_depend_on_how_many_scores_are_held() {
        let rows: Vec<f32> = (0..400).map(|i| ((i * 7919 % 83) as f32 - 41.0) / 8.0).collect();
        let rows = Matrix::new(200, 2, rows).unwrap();
        let labels: Vec<u32> = (0..200).map(|row| row % 9).collect();
        let task = Task::every_row(Side::classes(&rows, &labels));
        for metric in [Metric::Cosine, Metric::Euclidean] {
            let run =
                |limit| verify_in_slices(&task, metric, &VerificationOptions::default(), limit).unwrap();
            let whole = run(PAIRS);
            for limit in [0, 1, 20, 500] {
                assert_eq!(run(limit), whole);
            }
            assert_eq!(whole.genuine_pairs + whole.impostor_pairs, 199 * 100);
        }
    }

    #[test]
    fn every_key_finds_its_place() {
        let keys = [5u32, 6, 900, 1 << 30, u32::MAX - 1];
        let scores = Scores::new(keys.iter().map(|&key| (key, 1)).collect());
        for key in [0, 4, 5, 6, 7, 899, 900, 901, 1 << 29, 1 << 30, (1 << 30) + 1, u32::MAX - 1, u32::MAX] {
            let below = keys.iter().filter(|&&other| other < key).count();
            assert_eq!(scores.place(key), 2 * below + usize::from(keys.contains(&key)));
        }
        assert_eq!(Scores::new(Vec::new()).place(7), 0);
    }
}
