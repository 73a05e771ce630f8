//! What is there twice: within the gallery, and in the training set.

use gallerist_retrieval::EmbeddingSet;
use gallerist_retrieval::search::{Metric, SearchOptions, search};

use super::{Nearest, Snapshot};
use crate::gallery::{Gallery, as_compared};
use crate::{Error, Result};

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

/// The near distance of a gallery: [`NEAR`] for rows of length 1; where lengths count, the same share of the root of
/// the mean squared distance of two items, which is about the root of 2 for rows of length 1.
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
    /// `b` is a row of the training set.
    pub(crate) pairs: Pairs,
    pub(crate) paths: Option<Vec<String>>,
    pub(crate) labels: Option<Vec<String>>,
}

impl Leaks {
    pub(super) fn new(snapshot: &Snapshot, training: &EmbeddingSet) -> Result<Self> {
        let rows = as_compared(snapshot.metric, &training.embeddings);
        let options = SearchOptions { metric: Metric::Euclidean, ..SearchOptions::new(1) };
        let lists = search(snapshot.rows.as_ref(), &rows, &options)?;
        let pairs = lists.iter().zip(&snapshot.ids);
        let pairs =
            pairs.map(|((found, distances), &a)| Pair { a, b: found[0].into(), distance: distances[0] });
        Ok(Self {
            pairs: Pairs::sorted(snapshot, pairs.collect()),
            paths: training.paths.clone(),
            labels: training.labels.clone(),
        })
    }
}

/// Refuses a training set that was embedded by another network than the gallery, or otherwise.
pub(crate) fn check_training(training: &EmbeddingSet, gallery: &Gallery) -> Result<()> {
    let (model, dimensions) = (gallery.origin().model.as_ref(), gallery.dimensions());
    let metrics = [gallery.origin().metric, training.metric].map(Option::unwrap_or_default);
    if gallery.metric() != Metric::Cosine && metrics[0] != metrics[1] {
        let [first, other] = metrics;
        return Err(gallerist_retrieval::Error::Metrics { first, other }.into());
    }
    let same_model = model.is_none() || training.model.is_none() || model == training.model.as_ref();
    if same_model && training.embeddings.cols() == dimensions && training.embeddings.rows() > 0 {
        return Ok(());
    }
    let problem = match same_model {
        false => "the training set was embedded with another network than the gallery".to_owned(),
        true => format!(
            "the training set has {} rows of {} values, the gallery's have {dimensions}",
            training.embeddings.rows(),
            training.embeddings.cols()
        ),
    };
    Err(Error::Option { problem, hint: Some("embed the training set with the gallery's network".to_owned()) })
}
