//! What is there twice: within the gallery, and in the training set.

use gallerist_retrieval::EmbeddingSet;
use gallerist_retrieval::search::{Metric, SearchOptions, search};

use super::{Nearest, Snapshot};
use crate::{Error, Result};

/// Two items, and how far apart.
#[derive(Clone, Copy)]
pub(crate) struct Pair {
    pub(crate) a: u64,
    pub(crate) b: u64,
    pub(crate) distance: f32,
}

/// Each item with its nearest, the closest first, each pair once.
pub(crate) struct Pairs(pub(crate) Vec<Pair>);

impl Pairs {
    pub(super) fn new(snapshot: &Snapshot, nearest: &Nearest) -> Self {
        let ids = &snapshot.ids;
        let mut pairs: Vec<Pair> = nearest
            .iter()
            .enumerate()
            // Of two that are each other's nearest, one.
            .filter(|&(row, &(near, _))| row < near || nearest[near].0 != row)
            .map(|(row, &(near, distance))| Pair { a: ids[row], b: ids[near], distance })
            .collect();
        pairs.sort_by(|a, b| a.distance.total_cmp(&b.distance));
        Self(pairs)
    }

    /// The pairs that are at most so far apart.
    pub(crate) fn within(&self, distance: f32) -> &[Pair] {
        &self.0[..self.0.partition_point(|pair| pair.distance <= distance)]
    }
}

/// Each item of the gallery with the nearest image of the training set, the closest first.
pub(crate) struct Leaks {
    /// `b` is a row of the training set.
    pairs: Pairs,
    pub(crate) paths: Option<Vec<String>>,
    pub(crate) labels: Option<Vec<String>>,
}

impl Leaks {
    pub(super) fn new(snapshot: &Snapshot, training: &EmbeddingSet) -> Result<Self> {
        let (rows, _) = training.embeddings.l2_normalized();
        let options = SearchOptions { metric: Metric::Euclidean, ..SearchOptions::new(1) };
        let lists = search(snapshot.rows.as_ref(), &rows, &options)?;
        let pairs = lists.iter().zip(&snapshot.ids);
        let mut pairs: Vec<Pair> = pairs
            .map(|((found, distances), &a)| Pair { a, b: found[0].into(), distance: distances[0] })
            .collect();
        pairs.sort_by(|a, b| a.distance.total_cmp(&b.distance));
        Ok(Self { pairs: Pairs(pairs), paths: training.paths.clone(), labels: training.labels.clone() })
    }

    pub(crate) fn within(&self, distance: f32) -> &[Pair] {
        self.pairs.within(distance)
    }
}

/// Refuses a training set that was embedded by another network than the gallery.
pub(crate) fn check_training(
    training: &EmbeddingSet,
    model: Option<&String>,
    dimensions: usize,
) -> Result<()> {
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
