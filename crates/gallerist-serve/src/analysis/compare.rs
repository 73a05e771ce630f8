//! The same images embedded by another network: which queries gained and which lost.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use gallerist_retrieval::EmbeddingSet;
use gallerist_retrieval::index::Items;

use super::{Quality, Snapshot};
use crate::batch::Batcher;
use crate::gallery::Gallery;
use crate::{Error, Result};

/// The gallery's items as another network embeds them; only those that are in both.
pub(crate) struct Other {
    pub(crate) name: String,
    pub(crate) gallery: Arc<Gallery>,
    pub(crate) search: Batcher,
}

impl Other {
    /// Reads the other network's embeddings of the same images.
    pub(crate) fn open(path: &Path, gallery: &Gallery) -> Result<Self> {
        let name = path.display().to_string();
        let items = Items::from_set(EmbeddingSet::load(path)?)?;
        let set = items.set();
        let rows: HashMap<u64, usize> = items.ids().iter().enumerate().map(|(row, &id)| (id, row)).collect();
        let common: Vec<usize> =
            gallery.read().catalog.ids().iter().filter_map(|id| rows.get(id).copied()).collect();
        if common.is_empty() || set.paths.is_none() {
            return Err(Error::Option {
                problem: format!("`{name}` and `{}` have no image in common", gallery.name()),
                hint: Some(
                    "images are told by their paths: embed the same images with both networks".to_owned(),
                ),
            });
        }
        let gallery = Arc::new(Gallery::from_set(name.clone(), set.select(&common))?);
        Ok(Self { name, search: Batcher::start(Arc::clone(&gallery))?, gallery })
    }
}

/// A query and its average precision with either network.
pub(crate) struct Change {
    pub(crate) id: u64,
    pub(crate) precision: f64,
    pub(crate) other: f64,
}

impl Change {
    /// What the other network gains.
    pub(crate) fn gain(&self) -> f64 {
        self.other - self.precision
    }
}

/// All queries that both networks can answer, that in which the other gains most first.
pub(crate) struct Changes {
    pub(crate) queries: Vec<Change>,
    pub(crate) gained: usize,
    pub(crate) lost: usize,
}

impl Changes {
    pub(super) fn new(snapshot: &Snapshot, other: &Other) -> Result<Self> {
        let theirs = Snapshot::of(&other.gallery)?;
        let rows: HashMap<u64, usize> = snapshot.ids.iter().enumerate().map(|(row, &id)| (id, row)).collect();
        let common: Vec<usize> = theirs.ids.iter().filter_map(|id| rows.get(id).copied()).collect();
        // Both among the same items, and by the gallery's labels.
        let labels: Vec<String> = common.iter().map(|&row| snapshot.labels[row].clone()).collect();
        let ours = Quality::new(&snapshot.rows.select(&common), &labels)?;
        let others = Quality::new(&theirs.rows, &labels)?;
        let pairs = ours.precision.iter().zip(&others.precision).zip(&theirs.ids);
        let mut queries: Vec<Change> = pairs
            .filter_map(|((&precision, &other), &id)| {
                Some(Change { id, precision: precision?, other: other? })
            })
            .collect();
        queries.sort_by(|a, b| b.gain().total_cmp(&a.gain()));
        let count = |test: fn(f64) -> bool| queries.iter().filter(|query| test(query.gain())).count();
        Ok(Self { gained: count(|gain| gain > 0.0), lost: count(|gain| gain < 0.0), queries })
    }
}
