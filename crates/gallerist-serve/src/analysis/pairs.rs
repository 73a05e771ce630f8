//! Near-duplicates within the gallery, and between the gallery and the training set.

use gallerist_retrieval::search::{Metric, SearchOptions, search, self_search};

use super::snapshot::Snapshot;
use crate::Result;
use crate::companion::Side;

/// For each row the nearest other row, and its distance.
pub(super) type Neighbours = Vec<(usize, f32)>;

pub(super) fn neighbours_of(snapshot: &Snapshot) -> Result<Neighbours> {
    let options = SearchOptions { metric: Metric::Euclidean, ..SearchOptions::new(1) };
    let lists = self_search(snapshot.rows.as_ref(), &options)?;
    Ok(lists.iter().map(|(rows, distances)| (rows[0] as usize, distances[0])).collect())
}

/// Two items and their distance.
#[derive(Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) a: u64,
    pub(crate) b: u64,
    pub(crate) distance: f32,
}

/// Each item with its nearest neighbour, the closest first, each pair once.
pub(crate) struct Pairs {
    pairs: Vec<Pair>,
    /// The default distance below which two images are near.
    near: f32,
}

/// The near distance of rows of length 1, whose distances are at most 2.
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

    /// The default distance below which two images are near.
    pub(crate) fn near(&self) -> f32 {
        self.near
    }

    /// The largest distance of a pair, 0 where there is none.
    pub(crate) fn furthest(&self) -> f32 {
        self.pairs.last().map_or(0.0, |pair| pair.distance)
    }

    pub(super) fn new(snapshot: &Snapshot, nearest: &Neighbours) -> Self {
        let ids = &snapshot.ids;
        let pairs = nearest
            .iter()
            .enumerate()
            // Two mutual nearest neighbours are one pair.
            .filter(|&(row, &(near, _))| row < near || nearest[near].0 != row)
            .map(|(row, &(near, distance))| Pair { a: ids[row], b: ids[near], distance });
        Self::sorted(snapshot, pairs.collect())
    }

    /// The pairs with at most this distance.
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
