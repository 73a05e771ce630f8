//! Comparison with another network: which queries improved and which got worse.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::Arc;

use gallerist_retrieval::EmbeddingSet;
use gallerist_retrieval::file::{Source, Sources};
use gallerist_retrieval::index::Items;

use super::failures::{Quality, Trial};
use super::snapshot::Snapshot;
use crate::batch::{Batcher, Searches};
use crate::companion::{Companion, Set, Side};
use crate::gallery::{Catalog, Gallery};
use crate::{Error, Result};

/// The items of the gallery, embedded by another network.
pub(crate) struct Other {
    pub(crate) name: String,
    pub(crate) gallery: Arc<Gallery>,
    pub(crate) search: Batcher<Searches>,
    /// The queries, embedded by the other network.
    pub(crate) queries: Option<Arc<Side>>,
}

/// An image, by the name of its source and its path.
type Key = (Option<String>, String);

/// An error names up to this many images that only one of the two sets holds.
const NAMED: usize = 3;

impl Other {
    /// Reads the other network's embeddings of the same images, and of the same queries.
    ///
    /// Images are identified by source and path; by path alone where one of two sets has no sources.
    pub(crate) fn open(path: &Path, queries: Option<(&Path, &Side)>, gallery: &Gallery) -> Result<Self> {
        let name = path.display().to_string();
        let (set, ids) = {
            let catalog = gallery.catalog();
            let ours = (gallery.name(), &*catalog);
            (paired(ours, (&name, EmbeddingSet::load(path)?))?, catalog.ids().to_vec())
        };
        let gallery = Arc::new(Gallery::from_items(name.clone(), &Items::new(ids, set)?)?);
        let queries = queries.map(|(path, ours)| {
            let name = path.display().to_string();
            let set = paired((&ours.name, &ours.catalog), (&name, EmbeddingSet::load(path)?))?;
            Side::new(Set::Query, Companion::from_set(name, set), &gallery).map(Arc::new)
        });
        Ok(Self {
            name,
            search: Batcher::start(Searches(Arc::clone(&gallery)))?,
            queries: queries.transpose()?,
            gallery,
        })
    }

    /// The names of the gallery's network and of the other one: the folders of their runs, or their files, with as many
    /// parent folders as distinguish the two.
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

/// The rows of `set` in the order of `ours`, under our sources. Refuses a set of other images.
fn paired((our_name, ours): (&str, &Catalog), (name, set): (&str, EmbeddingSet)) -> Result<EmbeddingSet> {
    let by_path_alone = set.sources.is_none() || ours.sources.counts().next().is_none();
    let key = |source: Option<&str>, path: &str| -> Key {
        (source.filter(|_| !by_path_alone).map(str::to_owned), path.to_owned())
    };
    let rows = 0..ours.len();
    let named = rows.clone().filter_map(|row| Some((key(ours.sources.get(row), ours.path(row)?), row)));
    let our_rows: Vec<(Key, usize)> = named.collect();
    let all_named = our_rows.len() == ours.len();
    let Some(paths) = set.paths.as_ref().filter(|_| all_named) else {
        let of = if all_named { name } else { our_name };
        return Err(refused(format!("not all rows of `{of}` have a path, which identifies an image")));
    };
    let their_rows = paths.iter().enumerate().map(|(row, path)| (key(set.source_of(row), path), row));
    let our_rows = unique(our_name, our_rows)?;
    let their_rows = unique(name, their_rows.collect())?;
    let (only_ours, only_theirs) = (only_in(&our_rows, &their_rows), only_in(&their_rows, &our_rows));
    if !only_ours.is_empty() || !only_theirs.is_empty() {
        let sides = [(our_name, only_ours, our_rows.len()), (name, only_theirs, their_rows.len())];
        let sides = sides.map(|(of, only, all)| listed(of, &only, all)).join("\n  ");
        return Err(refused(format!("`{name}` and `{our_name}` do not hold the same images\n  {sides}")));
    }
    let mut order = vec![0; ours.len()];
    our_rows.iter().for_each(|(key, &row)| order[row] = their_rows[key]);
    let names: Vec<&str> = ours.sources.counts().map(|(name, _)| name).collect();
    let place = |row| ours.sources.get(row).and_then(|source| names.iter().position(|name| *name == source));
    let list = names.iter().map(|&name| Source { name: name.to_owned(), images: None }).collect();
    let sources = if names.is_empty() { None } else { Some(Sources::new(list, rows.map(place))?) };
    Ok(EmbeddingSet { sources, ..set.select(&order) })
}

fn refused(problem: String) -> Error {
    let hint = "embed the same images with both networks; `gallerist embed --source NAME` names them where they \
                were moved in between";
    Error::Option { problem, hint: Some(hint.to_owned()) }
}

fn unique(name: &str, rows: Vec<(Key, usize)>) -> Result<BTreeMap<Key, usize>> {
    let mut keys = BTreeMap::new();
    for (key, row) in rows {
        if keys.contains_key(&key) {
            let problem = format!("`{name}` holds several images with the path `{}`", key.1);
            return Err(refused(format!("{problem}, and the other set knows no sources")));
        }
        keys.insert(key, row);
    }
    Ok(keys)
}

fn only_in<'a>(a: &'a BTreeMap<Key, usize>, b: &BTreeMap<Key, usize>) -> Vec<&'a Key> {
    a.keys().filter(|key| !b.contains_key(*key)).collect()
}

/// `3 of 5 are only in `a.safetensors`: `1.png` of `/photos`, ...`
fn listed(name: &str, only: &[&Key], all: usize) -> String {
    let named = only.iter().take(NAMED).map(|(source, path)| match source {
        Some(source) => format!("`{path}` of `{source}`"),
        None => format!("`{path}`"),
    });
    let mut text = format!("{} of {all} are only in `{name}`", only.len());
    if !only.is_empty() {
        text += &format!(": {}", named.collect::<Vec<_>>().join(", "));
    }
    if only.len() > NAMED {
        text += ", …";
    }
    text
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

/// All queries that both networks can answer, the largest gain of the other network first.
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
