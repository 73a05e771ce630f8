//! A gallery, whatever it is kept in, with what is known about its items.

mod catalog;
mod searcher;

use std::path::{Path, PathBuf};
use std::sync::{RwLock, RwLockReadGuard, RwLockWriteGuard};

use gallerist_retrieval::file::{MappedCompact, Source};
use gallerist_retrieval::index::{Added, Addition, Index, ItemFilter, Items, Origin};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{EmbeddingSet, GalleryFile, Matrix};

pub(crate) use catalog::{Catalog, Entry, same_class};
pub(crate) use searcher::Searcher;

use crate::{Error, Result};

/// Items whose metadata is asked for at a time: their embeddings come along.
const ITEMS_AT_A_TIME: usize = 4096;

/// A gallery: a file of embeddings, an index, a collection in a database.
///
/// Images are compared as `gallerist search` compares them, by their Euclidean distance: rows divided by their lengths
/// where the gallery declares the cosine, rows as they are where it declares the Euclidean distance.
pub struct Gallery {
    name: String,
    origin: Origin,
    metric: Metric,
    dimensions: usize,
    kind: &'static str,
    /// The protocol of the images' data set, where the file names it.
    protocol: Option<String>,
    /// Where the images of its sources were when it was opened.
    sources: Vec<Source>,
    /// Beside the gallery's own file.
    map: Option<PathBuf>,
    /// Items and search change together.
    inside: RwLock<Inside>,
}

/// What a change of the gallery changes.
pub(crate) struct Inside {
    pub(crate) catalog: Catalog,
    pub(crate) searcher: Searcher,
}

/// One search: a row as the gallery's are compared (of length 1 for the cosine), how many items, and which.
pub(crate) struct Query {
    pub(crate) vector: Vec<f32>,
    pub(crate) k: usize,
    pub(crate) filter: ItemFilter,
}

/// Ids with their Euclidean distances, the nearest first.
pub(crate) type Found = Vec<(u64, f32)>;

/// Rows as they are compared: of length 1 for the cosine.
pub(crate) fn as_compared(metric: Metric, rows: &Matrix) -> Matrix {
    match metric {
        Metric::Cosine => rows.l2_normalized().0,
        Metric::Euclidean | Metric::InnerProduct => rows.clone(),
    }
}

/// Refuses what images are not searched by.
fn check_metric(gallery: &str, metric: Metric) -> Result<()> {
    match metric {
        Metric::Cosine | Metric::Euclidean => Ok(()),
        Metric::InnerProduct => Err(Error::Metric { gallery: gallery.to_owned() }),
    }
}

impl Gallery {
    /// Opens a file of embeddings (`.npy`, `.safetensors` in f32, bf16 or int8) or an index. An index is
    /// read into memory where it is to be [changed](Self::is_index), and else left in its file.
    ///
    /// The ids of a file's items are those of
    /// [`Items::from_set`](gallerist_retrieval::index::Items::from_set): of their paths.
    ///
    /// # Errors
    /// What the file's reader refuses, rows that are not finite, and a gallery that is compared by the inner product.
    pub fn open(path: &Path, writable: bool) -> Result<Self> {
        let mut map = path.as_os_str().to_owned();
        map.push(".map.safetensors");
        Ok(Self { map: Some(map.into()), ..Self::read_file(path, writable)? })
    }

    fn read_file(path: &Path, writable: bool) -> Result<Self> {
        let name = path.display().to_string();
        match GalleryFile::open(path, writable)? {
            GalleryFile::Embeddings(set) => Self::from_set(name, set),
            GalleryFile::Compact(compact) => Self::from_compact(name, path, compact),
            GalleryFile::Index(index) => Self::from_index(name, index),
        }
    }

    /// A gallery of embeddings in memory.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_set(name: impl Into<String>, set: EmbeddingSet) -> Result<Self> {
        Self::from_items(name, &Items::from_set(set)?)
    }

    /// A gallery of items in memory.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn from_items(name: impl Into<String>, items: &Items) -> Result<Self> {
        let (name, metric) = (name.into(), items.set().metric.unwrap_or_default());
        check_metric(&name, metric)?;
        let searcher = Searcher::rows(as_compared(metric, &items.set().embeddings))?;
        Ok(Self::with_searcher(name, items, searcher, "exact"))
    }

    fn from_compact(name: String, path: &Path, compact: MappedCompact) -> Result<Self> {
        // Decoded for a moment only, for what stands beside the embeddings; the checksum is checked by it.
        let set = EmbeddingSet::load(path)?;
        let metric = set.metric.unwrap_or_default();
        check_metric(&name, metric)?;
        let searcher = Searcher::compact(compact, metric)?;
        Ok(Self::with_searcher(name, &Items::from_set(set)?, searcher, "compact"))
    }

    fn with_searcher(name: String, items: &Items, searcher: Searcher, kind: &'static str) -> Self {
        let set = items.set();
        let origin = Origin::from(set);
        let mut catalog = Catalog::default();
        for (row, &id) in items.ids().iter().enumerate() {
            let entry = |list: &'_ Option<Vec<String>>| list.as_ref().map(|list| list[row].clone());
            let [label, path, camera] = [&set.labels, &set.paths, &set.cameras].map(entry);
            let (label, path, camera) = (label.as_deref(), path.as_deref(), camera.as_deref());
            catalog.push(id, Entry { label, path, camera, source: set.source_of(row) });
        }
        let inside = RwLock::new(Inside { catalog, searcher });
        let sources = set.sources.as_ref().map_or(vec![], |sources| sources.list().to_vec());
        let (metric, dimensions) = (set.metric.unwrap_or_default(), set.embeddings.cols());
        let protocol = set.protocol.clone();
        Self { name, origin, metric, dimensions, kind, protocol, sources, map: None, inside }
    }

    /// A gallery that is kept in an [`Index`].
    ///
    /// # Errors
    /// When the index compares by the inner product, or by the Euclidean distance without saying whether its rows have
    /// length 1; and those of a place that is asked over a network.
    pub fn from_index(name: impl Into<String>, index: Box<dyn Index>) -> Result<Self> {
        let name = name.into();
        let (info, origin) = (index.info()?, index.origin()?);
        check_metric(&name, info.metric)?;
        if info.metric == Metric::Euclidean && origin.metric.is_none() {
            return Err(Error::Option {
                problem: format!(
                    "`{name}` compares rows by Euclidean distance, and does not say whether they have length 1"
                ),
                hint: Some("build the index again from its embeddings".to_owned()),
            });
        }
        let mut catalog = Catalog::default();
        for ids in index.ids(&ItemFilter::default())?.chunks(ITEMS_AT_A_TIME) {
            for item in index.get(ids)?.into_iter().flatten() {
                catalog.push(item.id, Entry::from(&item));
            }
        }
        let kind = if info.place == "embedded" { info.kind.name } else { "milvus" };
        let sources = index.sources()?;
        let inside = RwLock::new(Inside { catalog, searcher: Searcher::Index(index, info.metric) });
        let (metric, dimensions) = (info.metric, info.dimensions);
        let protocol = None;
        Ok(Self { name, origin, metric, dimensions, kind, protocol, sources, map: None, inside })
    }

    /// What the gallery was opened from.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Where its embeddings come from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// How its items are compared: by the cosine or by the Euclidean distance.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// The sources of its items when it was opened, with where their images are; none where that is
    /// not known.
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// Values per embedding.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// How it is searched: `exact`, `compact`, `hnsw` or `milvus`.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// The protocol that the images' data set is measured by, where the file names it.
    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// Whether items can come and go: only in an index.
    pub fn is_index(&self) -> bool {
        matches!(self.read().searcher, Searcher::Index(..))
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Inside> {
        self.inside.read().expect("no thread panics while it holds this lock")
    }

    /// The row of an item as it is compared. Of a database it is asked over the network.
    pub(crate) fn embedding(&self, id: u64) -> Result<Option<Vec<f32>>> {
        let inside = self.read();
        inside.searcher.embedding(&inside.catalog, id)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inside> {
        self.inside.write().expect("no thread panics while it holds this lock")
    }

    /// Adds items, and returns when they would outlive the process. One that would take the place of
    /// another is refused, unless `replace`.
    pub(crate) fn add(&self, items: &Items, replace: bool) -> Result<Added> {
        let mut inside = self.write();
        let Inside { catalog, searcher } = &mut *inside;
        let index = searcher.index()?;
        let addition = Addition::of(&*index, items)?;
        if !replace {
            addition.check(items)?;
        }
        let (gone, written) = addition.changes(items);
        if !gone.is_empty() {
            index.remove(&gone)?;
        }
        if !written.is_empty() {
            index.upsert(&written)?;
        }
        for id in gone.iter().chain(written.ids()) {
            catalog.remove(*id);
        }
        for row in 0..written.len() {
            let item = written.item(row);
            catalog.push(item.id, Entry::from(&item));
        }
        if addition.added() != (Added { unchanged: items.len(), ..Added::default() }) {
            index.flush()?;
        }
        Ok(addition.added())
    }

    /// Removes an item, and returns when that would outlive the process; false when there is none.
    pub(crate) fn remove(&self, id: u64) -> Result<bool> {
        let mut inside = self.write();
        let Inside { catalog, searcher } = &mut *inside;
        let index = searcher.index()?;
        if catalog.row(id).is_none() {
            return Ok(false);
        }
        index.remove(&[id])?;
        catalog.remove(id);
        index.flush()?;
        Ok(true)
    }

    /// Where its map is kept.
    pub(crate) fn map_file(&self) -> Option<PathBuf> {
        self.map.clone()
    }

    pub(crate) fn search(&self, queries: &[Query]) -> Result<Vec<Found>> {
        let inside = self.read();
        inside.searcher.search(&inside.catalog, queries)
    }
}
