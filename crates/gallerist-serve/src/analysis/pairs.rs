//! What is there twice: within the gallery, and in the training set.

use gallerist_retrieval::search::{Metric, SearchOptions, search};

use super::{Nearest, Snapshot};
use crate::Result;
use crate::companion::Side;

/// Two items, and how far apart.
#[derive(Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) a: u64,
    pub(crate) b: u64,
    pub(crate) distance: f32,
}

/// Each item with its nearest, the closest first, each pair once.
pub(crate) struct Pairs {
    pairs: Vec<Pair>,
    /// The distance below which two images are near unless said otherwise.
    near: f32,
}

/// The near distance of rows of length 1, of which two are at most 2 apart.
const NEAR: f32 = 0.1;

/// The near distance of a gallery: [`NEAR`] for rows of length 1; where lengths count, [`NEAR`] times the root of half
/// the mean squared distance of two items. That root is about 1 for rows of length 1.
fn near(snapshot: &Snapshot) -> f32 {
    if snapshot.metric == Metric::Cosine {
        return NEAR;
    }
    let (rows, count) = (&snapshot.rows, snapshot.ids.len() as f64);
    let mut sums = vec![0f64; rows.cols()];
    let mut squares = 0f64;
    for row in 0..snapshot.ids.len() {
        for (sum, &value) in sums.iter_mut().zip(rows.row(row)) {
            *sum += f64::from(value);
            squares += f64::from(value).powi(2);
        }
    }
    let variance = squares / count - sums.iter().map(|sum| (sum / count).powi(2)).sum::<f64>();
    (f64::from(NEAR) * variance.max(0.0).sqrt()) as f32
}

impl Pairs {
    fn sorted(snapshot: &Snapshot, mut pairs: Vec<Pair>) -> Self {
        pairs.sort_by(|a, b| a.distance.total_cmp(&b.distance));
        Self { pairs, near: near(snapshot) }
    }

    /// The distance below which two images are near unless said otherwise.
    pub(crate) fn near(&self) -> f32 {
        self.near
    }

    /// The largest distance of a pair, 0 where there is none.
    pub(crate) fn furthest(&self) -> f32 {
        self.pairs.last().map_or(0.0, |pair| pair.distance)
    }

    pub(super) fn new(snapshot: &Snapshot, nearest: &Nearest) -> Self {
        let ids = &snapshot.ids;
        let pairs = nearest
            .iter()
            .enumerate()
            // Of two that are each other's nearest, one.
            .filter(|&(row, &(near, _))| row < near || nearest[near].0 != row)
            .map(|(row, &(near, distance))| Pair { a: ids[row], b: ids[near], distance });
        Self::sorted(snapshot, pairs.collect())
    }

    /// The pairs that are at most so far apart.
    pub(crate) fn within(&self, distance: f32) -> &[Pair] {
        &self.pairs[..self.pairs.partition_point(|pair| pair.distance <= distance)]
    }
}

/// Each item of the gallery with the nearest image of the training set, the closest first.
pub(crate) struct Leaks {
    /// `b` is an image of the training set.
    pub(crate) pairs: Pairs,
}

impl Leaks {
    pub(super) fn new(snapshot: &Snapshot, training: &Side) -> Result<Self> {
        let options = SearchOptions { metric: Metric::Euclidean, ..SearchOptions::new(1) };
        let lists = search(snapshot.rows.as_ref(), &training.rows, &options)?;
        let pairs = lists.iter().zip(&snapshot.ids);
        let ids = training.catalog.ids();
        let pairs = pairs.map(|((found, distances), &a)| Pair {
            a,
            b: ids[found[0] as usize],
            distance: distances[0],
        });
        Ok(Self { pairs: Pairs::sorted(snapshot, pairs.collect()) })
    }
}
