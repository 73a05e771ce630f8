//! The same images embedded by another network: which queries gained and which lost.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use gallerist_retrieval::EmbeddingSet;
use gallerist_retrieval::index::Items;

use super::{Quality, Snapshot, Trial};
use crate::batch::Batcher;
use crate::companion::{Companion, Set, Side};
use crate::gallery::Gallery;
use crate::{Error, Result};

/// The gallery's items as another network embeds them; only those that are in both.
pub(crate) struct Other {
    pub(crate) name: String,
    pub(crate) gallery: Arc<Gallery>,
    pub(crate) search: Batcher,
    /// The queries as the other network embeds them.
    pub(crate) queries: Option<Arc<Side>>,
}

impl Other {
    /// Reads the other network's embeddings of the same images, and of the same queries.
    pub(crate) fn open(path: &Path, queries: Option<&Path>, gallery: &Gallery) -> Result<Self> {
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
        let queries = queries.map(Companion::open).transpose()?;
        let queries = queries.map(|queries| Side::new(Set::Query, queries, &gallery).map(Arc::new));
        Ok(Self {
            name,
            search: Batcher::start(Arc::clone(&gallery))?,
            queries: queries.transpose()?,
            gallery,
        })
    }

    /// What the other network and the gallery's are called: the folders of their runs, or else their files, with as
    /// many folders above them as tell the two apart.
    pub(crate) fn names(&self, gallery: &Gallery) -> (String, String) {
        let runs = [gallery.origin().run.as_deref(), self.gallery.origin().run.as_deref()];
        match runs {
            [Some(own), Some(other)] if own != other => told_apart(own, other),
            _ => told_apart(gallery.name(), &self.name),
        }
    }
}

/// The shortest ends of two paths that differ.
fn told_apart(own: &str, other: &str) -> (String, String) {
    let parts =
        |path: &str| path.split('/').filter(|part| !part.is_empty()).map(str::to_owned).collect::<Vec<_>>();
    let (own, other) = (parts(own), parts(other));
    let end = |parts: &[String], count: usize| parts[parts.len().saturating_sub(count)..].join("/");
    let most = own.len().max(other.len()).max(1);
    let count = (1..=most).find(|&count| end(&own, count) != end(&other, count)).unwrap_or(1);
    (end(&own, count), end(&other, count))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_networks_are_called_by_what_tells_them_apart() {
        let names = |own, other| {
            let (own, other) = told_apart(own, other);
            format!("{own} {other}")
        };
        assert_eq!(names("/home/me/runs/rll", "runs/srt"), "rll srt");
        assert_eq!(
            names("runs/a/embeddings.safetensors", "runs/b/embeddings.safetensors"),
            "a/embeddings.safetensors b/embeddings.safetensors"
        );
        assert_eq!(names("g", "/tmp/other.safetensors"), "g other.safetensors");
        assert_eq!(names("/a/run", "run/"), "a/run run");
        assert_eq!(names("same", "same"), "same same");
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
    /// The mean average precision of these queries with the gallery's network, and with the other.
    pub(crate) mean: f64,
    pub(crate) other_mean: f64,
}

impl Changes {
    pub(super) fn new(trial: Trial, other: &Other) -> Result<Self> {
        let theirs = Snapshot::of(&other.gallery)?;
        let (ours, theirs) = common(trial.gallery(), &theirs);
        let queries = match (trial.gallery, &other.queries) {
            (Some(_), Some(queries)) => Some(common(trial.queries, &Snapshot::of_side(queries))),
            _ => None,
        };
        let quality = |asked: Option<&Snapshot>, gallery: &Snapshot| {
            Quality::new(match asked {
                Some(queries) => Trial { queries, gallery: Some(gallery), rules: trial.rules },
                None => Trial { queries: gallery, gallery: None, rules: trial.rules },
            })
        };
        let own = quality(queries.as_ref().map(|(ours, _)| ours), &ours)?;
        let others = quality(queries.as_ref().map(|(_, theirs)| theirs), &theirs)?;
        let ids = queries.as_ref().map_or(&ours.ids, |(ours, _)| &ours.ids);
        let pairs = own.precision.iter().zip(&others.precision).zip(ids);
        let mut queries: Vec<Change> = pairs
            .filter_map(|((&precision, &other), &id)| {
                Some(Change { id, precision: precision?, other: other? })
            })
            .collect();
        queries.sort_by(|a, b| b.gain().total_cmp(&a.gain()));
        let count = |test: fn(f64) -> bool| queries.iter().filter(|query| test(query.gain())).count();
        let mean = |of: fn(&Change) -> f64| queries.iter().map(of).sum::<f64>() / queries.len().max(1) as f64;
        Ok(Self {
            gained: count(|gain| gain > 0.0),
            lost: count(|gain| gain < 0.0),
            mean: mean(|query| query.precision),
            other_mean: mean(|query| query.other),
            queries,
        })
    }
}

/// The items that are in both, in the same order, with our labels and cameras.
fn common(ours: &Snapshot, theirs: &Snapshot) -> (Snapshot, Snapshot) {
    let rows: HashMap<u64, usize> = ours.ids.iter().enumerate().map(|(row, &id)| (id, row)).collect();
    let both = theirs.ids.iter().enumerate().filter_map(|(row, id)| Some((*rows.get(id)?, row)));
    let (of_ours, of_theirs): (Vec<usize>, Vec<usize>) = both.unzip();
    let ours = ours.select(&of_ours);
    let theirs = theirs.select(&of_theirs);
    let theirs = Snapshot { labels: ours.labels.clone(), cameras: ours.cameras.clone(), ..theirs };
    (ours, theirs)
}
