//! A gallery of any storage format, with the metadata of its items.

mod catalog;
mod query;
mod searcher;
#[cfg(test)]
mod tests;

use std::path::{Path, PathBuf};

use gallerist_retrieval::Error::{Changed, DuplicateId};
use gallerist_retrieval::columns::Columns;
use gallerist_retrieval::file::{MappedCompact, Source, Sources};
use gallerist_retrieval::index::{Added, Addition, Index, Item, ItemFilter, Items, Origin};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{EmbeddingSet, GalleryFile, Matrix};
use gallerist_util::sync::{Arc, RwLock, RwLockReadGuard, RwLockWriteGuard};

pub(crate) use catalog::{Catalog, Entry, same_class};
use query::ITEMS_AT_A_TIME;
pub(crate) use query::{Listed, Query, as_compared};
pub(crate) use searcher::Searcher;

use crate::stamp::Stamp;
use crate::{Error, Result};

/// A gallery: a file of embeddings, an index, a collection in a database.
///
/// Items are compared by the Euclidean distance, as in `gallerist search`: of rows divided by their length if the
/// gallery declares the cosine, of the rows themselves if it declares the Euclidean distance.
pub struct Gallery {
    name: String,
    origin: Origin,
    metric: Metric,
    dimensions: usize,
    kind: &'static str,
    /// The evaluation protocol of the data set, if the file names it.
    protocol: Option<String>,
    /// The sources of the items and their places, when the gallery was opened.
    sources: Vec<Source>,
    /// Its file.
    file: Option<PathBuf>,
    /// Catalog and search are changed under one lock.
    inside: RwLock<Inside>,
}

/// The parts of a gallery that change when items are added or removed.
pub(crate) struct Inside {
    /// Shared with searches, so that a change does not wait for their answers; copied by a change if one has it.
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) searcher: Searcher,
    /// Its file when it was read or written last; `None` without a file, or if another program is known to have changed it.
    stamp: Option<Stamp>,
    /// Whether it is being replaced, or has been: then nothing changes it.
    frozen: bool,
    /// Whether the index may have a change that is not stored, because storing it failed and so did taking it back.
    unstored: bool,
}

impl Inside {
    fn new(catalog: Catalog, searcher: Searcher) -> RwLock<Self> {
        RwLock::new(Self {
            catalog: Arc::new(catalog),
            searcher,
            stamp: None,
            frozen: false,
            unstored: false,
        })
    }
}

/// The most values of a compact file that one search decodes: 256 MiB.
const DECODED_VALUES: usize = 1 << 26;

/// Refuses a metric that images are not searched by.
fn check_metric(gallery: &str, metric: Metric) -> Result<()> {
    match metric {
        Metric::Cosine | Metric::Euclidean => Ok(()),
        Metric::InnerProduct => Err(Error::Metric { gallery: gallery.to_owned() }),
    }
}

impl Gallery {
    /// Opens a file of embeddings (`.npy`, `.safetensors` in f32, bf16 or int8) or an index. With `writable` an index
    /// is read into memory, so that it [can be changed](Self::is_index); otherwise it is mapped.
    ///
    /// The ids of the items of a file of embeddings come from their paths, as in
    /// [`Items::from_set`](gallerist_retrieval::index::Items::from_set).
    ///
    /// # Errors
    /// A file that cannot be read, rows that are not finite, and a gallery that is compared by the inner product.
    pub fn open(path: &Path, writable: bool) -> Result<Self> {
        let stamp = Stamp::of(path);
        let gallery = Self { file: Some(path.to_owned()), ..Self::read_file(path, writable)? };
        gallery.write().stamp = Some(stamp);
        Ok(gallery)
    }

    fn read_file(path: &Path, writable: bool) -> Result<Self> {
        let name = path.display().to_string();
        let opened = match GalleryFile::open(path, writable)? {
            GalleryFile::Embeddings(set) => Self::from_set(name, *set),
            GalleryFile::Compact(compact) => Self::from_compact(name, path, compact),
            GalleryFile::Index(index) => Self::from_index(name, index),
        };
        opened.map_err(|error| match error {
            Error::Retrieval(DuplicateId { .. }) => Error::Option {
                problem: format!("`{}`: {error}", path.display()),
                hint: Some(format!(
                    "number the items: `gallerist index build {} --ids rows --out FILE.index`",
                    path.display()
                )),
            },
            error => error,
        })
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
        // Decoded temporarily for the metadata; this verifies the checksum, too.
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
        let catalog = catalog.with_columns(set.columns.clone());
        let inside = Inside::new(catalog, searcher);
        let sources = set.sources.as_ref().map_or(vec![], |sources| sources.list().to_vec());
        let (metric, dimensions) = (set.metric.unwrap_or_default(), set.embeddings.cols());
        let protocol = set.protocol.clone();
        Self { name, origin, metric, dimensions, kind, protocol, sources, file: None, inside }
    }

    /// A gallery that is kept in an [`Index`].
    ///
    /// # Errors
    /// When the index compares by the inner product, or by the Euclidean distance without saying whether its rows have
    /// length 1; for a database also the errors of the network.
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
        let mut columns = Vec::new();
        for ids in index.ids(&ItemFilter::default())?.chunks(ITEMS_AT_A_TIME) {
            for item in index.get(ids)?.into_iter().flatten() {
                catalog.push(item.id, Entry::from(&item));
                columns.push(item.columns);
            }
        }
        let catalog = catalog.with_columns(Columns::of_rows(&index.columns()?, &columns));
        let kind = match info.place {
            "embedded" => info.kind.name,
            "Qdrant" => "qdrant",
            _ => "milvus",
        };
        let sources = index.sources()?;
        let inside = Inside::new(catalog, Searcher::Index(index, info.metric));
        let (metric, dimensions) = (info.metric, info.dimensions);
        let protocol = None;
        Ok(Self { name, origin, metric, dimensions, kind, protocol, sources, file: None, inside })
    }

    /// The file or address that the gallery was opened from.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// A short name: that of the file without folders and ending; of a file with a common name in a run directory
    /// (`embeddings.safetensors`, `gallery.safetensors`), that of the directory.
    pub fn short_name(&self) -> String {
        let path = Path::new(&self.name);
        let text = |part: Option<&std::ffi::OsStr>| part.map(|part| part.to_string_lossy().into_owned());
        let stem = text(path.file_stem());
        let of_run = matches!(stem.as_deref(), Some("embeddings" | "gallery"));
        let folder = path.parent().filter(|_| of_run).and_then(|folder| text(folder.file_name()));
        folder.or(stem).unwrap_or_else(|| "gallery".to_owned())
    }

    /// The origin of its embeddings: network, run, images.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// How its items are compared: by the cosine or by the Euclidean distance.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// The sources of its items when it was opened, and the places of their images; empty if unknown.
    pub fn sources(&self) -> &[Source] {
        &self.sources
    }

    /// How many items it has now; for a collection of a database, those that were read.
    pub fn count(&self) -> usize {
        self.read().catalog.len()
    }

    /// Values per embedding.
    pub fn dimensions(&self) -> usize {
        self.dimensions
    }

    /// How it is searched: `exact`, `compact`, `hnsw`, `milvus` or `qdrant`.
    pub fn kind(&self) -> &'static str {
        self.kind
    }

    /// The evaluation protocol of the data set, if the file names it.
    pub fn protocol(&self) -> Option<&str> {
        self.protocol.as_deref()
    }

    /// Whether it is an index, to which items can be added and from which they can be removed.
    pub fn is_index(&self) -> bool {
        matches!(self.read().searcher, Searcher::Index(..))
    }

    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Inside> {
        self.inside.read().expect("no thread panics while it holds this lock")
    }

    /// The row of an item as it is compared. For a database this is a request over the network.
    pub(crate) fn embedding(&self, id: u64) -> Result<Option<Vec<f32>>> {
        let inside = self.read();
        inside.searcher.embedding(&inside.catalog, id)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Inside> {
        self.inside.write().expect("no thread panics while it holds this lock")
    }

    /// The inside, to be changed. A file that another program has changed is not overwritten.
    fn to_change(&self) -> Result<RwLockWriteGuard<'_, Inside>> {
        let inside = self.write();
        if inside.frozen {
            return Err(Error::Reopening);
        }
        match &self.file {
            Some(_) if inside.stamp.as_ref().is_none_or(Stamp::is_outdated) => Err(Error::Outdated),
            _ => Ok(inside),
        }
    }

    /// Refuses changes, or permits them again. Those in progress are finished first.
    pub(crate) fn freeze(&self, frozen: bool) {
        self.write().frozen = frozen;
    }

    /// Whether its file does not have what is in memory. A gallery without a file may always have changed.
    pub(crate) fn is_outdated(&self) -> bool {
        let inside = self.read();
        inside.unstored || inside.stamp.as_ref().is_none_or(Stamp::is_outdated)
    }

    /// Adds items and returns when they are stored durably. Without `replace`, an item that would replace another one
    /// is refused. After an error nothing has changed.
    pub(crate) fn add(&self, items: &Items, replace: bool) -> Result<Added> {
        self.store_items(replace, |index| Ok((items.clone(), Addition::of(index, items)?)))
    }

    /// [`add`](Self::add) for items whose further columns are not given: each keeps those of the item that it replaces.
    pub(crate) fn add_keeping_columns(&self, items: &Items, replace: bool) -> Result<Added> {
        self.store_items(replace, |index| with_columns_of_replaced(index, items))
    }

    fn store_items(
        &self,
        replace: bool,
        compared: impl FnOnce(&dyn Index) -> Result<(Items, Addition)>,
    ) -> Result<Added> {
        let mut inside = self.to_change()?;
        let index = inside.searcher.index()?;
        let (items, mut addition) = compared(&*index)?;
        if !replace {
            addition.check(&items)?;
        }
        let added = addition.added();
        if inside.unstored {
            addition.new.append(&mut addition.unchanged);
        }
        let (gone, written) = addition.changes(&items);
        if gone.is_empty() && written.is_empty() {
            return Ok(added);
        }
        self.store(&mut inside, &gone, Some(&written))?;
        let catalog = Arc::make_mut(&mut inside.catalog);
        for id in gone.iter().chain(written.ids()) {
            catalog.remove(*id);
        }
        for row in 0..written.len() {
            let item = written.item(row);
            catalog.push_with(item.id, Entry::from(&item), &item.columns);
        }
        Ok(added)
    }

    /// Removes an item and returns when that is stored durably; false if there is no such item. After an error nothing has
    /// changed.
    pub(crate) fn remove(&self, id: u64) -> Result<bool> {
        let mut inside = self.to_change()?;
        if inside.catalog.row(id).is_none() {
            return Ok(false);
        }
        self.store(&mut inside, &[id], None)?;
        Arc::make_mut(&mut inside.catalog).remove(id);
        Ok(true)
    }

    /// Changes the index and stores it durably. A change that cannot be stored is taken back, so that a client that repeats
    /// it is not told that it is there already.
    fn store(&self, inside: &mut Inside, gone: &[u64], written: Option<&Items>) -> Result<()> {
        let index = inside.searcher.index()?;
        let ids: Vec<u64> = gone.iter().chain(written.map_or(&[][..], Items::ids)).copied().collect();
        let before = index.get(&ids)?;
        let change = |index: &mut dyn Index| {
            if !gone.is_empty() {
                index.remove(gone)?;
            }
            if let Some(written) = written.filter(|written| !written.is_empty()) {
                index.upsert(written)?;
            }
            index.flush()
        };
        if let Err(error) = change(index) {
            inside.unstored = put_back(index, &ids, before).is_err();
            // The stamp stays: if the failed write has replaced the file, the gallery must be opened again.
            return Err(match error {
                // Another program changed the file after the stamp was compared.
                Changed { .. } => {
                    inside.stamp = None;
                    Error::Outdated
                }
                error => error.into(),
            });
        }
        inside.unstored = false;
        inside.stamp = self.file().map(Stamp::of);
        Ok(())
    }

    /// The number of results of a search for all items, and whether these are all. An index gives its nearest `k`, and a
    /// compact file does if decoding all of its rows would need too much memory.
    pub(crate) fn all_or(&self, k: usize) -> (usize, bool) {
        let inside = self.read();
        let all = inside.catalog.len().max(1);
        let possible = match inside.searcher {
            Searcher::Rows { .. } => true,
            Searcher::Compact { .. } => all.saturating_mul(self.dimensions) <= DECODED_VALUES,
            Searcher::Index(..) => false,
        };
        if possible { (all, true) } else { (k.min(all), k >= all) }
    }

    /// The number of results of a search for all items; `None` if their embeddings would need too much memory, or a
    /// database would have to return too many.
    pub(crate) fn all(&self) -> Option<usize> {
        const MOST_OF_A_DATABASE: usize = 16_384;
        let inside = self.read();
        let all = inside.catalog.len().max(1);
        let fits = match inside.searcher {
            Searcher::Rows { .. } => true,
            _ if ["milvus", "qdrant"].contains(&self.kind) && all > MOST_OF_A_DATABASE => false,
            _ => all.saturating_mul(self.dimensions) <= DECODED_VALUES,
        };
        fits.then_some(all)
    }

    /// The file that it was opened from.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// The file that stores its map, next to its own.
    pub(crate) fn map_file(&self) -> Option<PathBuf> {
        let mut map = self.file.as_ref()?.as_os_str().to_owned();
        map.push(".map.safetensors");
        Some(map.into())
    }

    pub(crate) fn search(&self, queries: &[Query]) -> Result<Vec<Listed>> {
        let inside = self.read();
        let lists = inside.searcher.search(&inside.catalog, queries)?;
        let listed = |found| Listed { found, catalog: Arc::clone(&inside.catalog) };
        Ok(lists.into_iter().map(listed).collect())
    }
}

/// `items` with the further columns of the items that they replace, compared with those of the index.
fn with_columns_of_replaced(index: &dyn Index, items: &Items) -> Result<(Items, Addition)> {
    let addition = Addition::of(index, items)?;
    let kept = |row: usize| {
        let replaced = addition.replaced.iter().find(|replaced| replaced.row == row);
        replaced.map(|replaced| replaced.there.columns.clone()).unwrap_or_default()
    };
    let kept: Vec<Columns> = (0..items.len()).map(kept).collect();
    if kept.iter().all(Columns::is_empty) {
        return Ok((items.clone(), addition));
    }
    let set = EmbeddingSet { columns: Columns::of_rows(&[], &kept), ..items.set().clone() };
    let items = Items::new(items.ids().to_vec(), set)?;
    let addition = Addition::of(index, &items)?;
    Ok((items, addition))
}

/// Gives the items `ids` back what they were.
fn put_back(index: &mut dyn Index, ids: &[u64], before: Vec<Option<Item>>) -> Result<()> {
    index.remove(ids)?;
    let sources = index.sources()?;
    // One by one, because a text that an item lacks is none, and that of a row is empty.
    for item in before.into_iter().flatten() {
        let Item { id, embedding, label, path, camera, source, columns } = item;
        let known = |name: &String| sources.iter().find(|source| source.name == *name).cloned();
        let source = source.map(|name| known(&name).unwrap_or(Source { name, images: None }));
        let set = EmbeddingSet {
            labels: label.map(|label| vec![label]),
            paths: path.map(|path| vec![path]),
            cameras: camera.map(|camera| vec![camera]),
            sources: source.map(|source| Sources::one(source, 1)),
            columns,
            ..Matrix::new(1, embedding.len(), embedding)?.into()
        };
        index.upsert(&Items::new(vec![id], set)?)?;
    }
    Ok(())
}
