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
use gallerist_retrieval::index::{Added, Addition, Index, Item, ItemFilter, Items, Origin, stable_id};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{EmbeddingSet, GalleryFile, Matrix};
use gallerist_util::sync::{Arc, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use gallerist_util::text::shell_word;

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
    form: Form,
    /// The evaluation protocol of the data set, if the file names it.
    protocol: Option<String>,
    /// The sources of the items and their places, when the gallery was opened.
    sources: Vec<Source>,
    /// Its file.
    file: Option<PathBuf>,
    /// Locked during a change, which may take minutes: not by the threads that answer requests.
    changes: Mutex<Changes>,
    /// Locked during a search, and during a change of an index. The threads that answer requests lock it only where there is
    /// no index.
    searcher: RwLock<Searcher>,
    /// Locked for a moment: a change replaces it, while the searcher is still locked. Who has locked the searcher sees the
    /// items that the searcher has.
    catalog: RwLock<Arc<Catalog>>,
}

/// How a gallery is stored.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    /// Rows in f32, in memory.
    Rows,
    /// Rows in bf16 or int8, mapped.
    Compact,
    /// An index that only this program changes.
    Index,
    /// A collection that other programs change, too.
    Database,
}

/// What a change of a gallery must know and leave.
#[derive(Default)]
struct Changes {
    /// Its file when it was read or written last; `None` without a file, or if another program is known to have changed it.
    stamp: Option<Stamp>,
    /// Whether it is being replaced, or has been: then nothing changes it.
    frozen: bool,
    /// Whether the index may have a change that is not stored, because storing it failed and so did taking it back.
    unstored: bool,
}

/// Why no lock of a gallery is poisoned.
const NO_PANIC: &str = "no thread panics while it holds this lock";

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
        gallery.changes().stamp = Some(stamp);
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
                    shell_word(&path.to_string_lossy())
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
        Ok(Self::with_searcher(name, items, searcher, Form::Rows))
    }

    fn from_compact(name: String, path: &Path, compact: MappedCompact) -> Result<Self> {
        // Decoded temporarily for the metadata; this verifies the checksum, too.
        let set = EmbeddingSet::load(path)?;
        let metric = set.metric.unwrap_or_default();
        check_metric(&name, metric)?;
        let searcher = Searcher::compact(compact, metric)?;
        Ok(Self::with_searcher(name, &Items::from_set(set)?, searcher, Form::Compact))
    }

    fn with_searcher(name: String, items: &Items, searcher: Searcher, form: Form) -> Self {
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
        let sources = set.sources.as_ref().map_or(vec![], |sources| sources.list().to_vec());
        Self {
            name,
            origin,
            metric: set.metric.unwrap_or_default(),
            dimensions: set.embeddings.cols(),
            kind: if form == Form::Compact { "compact" } else { "exact" },
            form,
            protocol: set.protocol.clone(),
            sources,
            file: None,
            changes: Mutex::new(Changes::default()),
            searcher: RwLock::new(searcher),
            catalog: RwLock::new(Arc::new(catalog)),
        }
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
        let (form, kind) = match info.place {
            "embedded" => (Form::Index, info.kind.name),
            "Qdrant" => (Form::Database, "qdrant"),
            _ => (Form::Database, "milvus"),
        };
        Ok(Self {
            name,
            origin,
            metric: info.metric,
            dimensions: info.dimensions,
            kind,
            form,
            protocol: None,
            sources: index.sources()?,
            file: None,
            changes: Mutex::new(Changes::default()),
            searcher: RwLock::new(Searcher::Index(index, info.metric)),
            catalog: RwLock::new(Arc::new(catalog)),
        })
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

    /// How many items it has now. Of a collection of a database it counts those that were read when it was opened or found
    /// since, and those that were added or removed here.
    pub fn count(&self) -> usize {
        self.catalog().len()
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
        matches!(self.form, Form::Index | Form::Database)
    }

    /// Whether other programs may add and remove items while it is open.
    pub(crate) fn is_database(&self) -> bool {
        self.form == Form::Database
    }

    /// Its items. Nobody who reads them waits for a change.
    pub(crate) fn catalog(&self) -> Arc<Catalog> {
        Arc::clone(&self.catalog.read().expect(NO_PANIC))
    }

    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().expect(NO_PANIC)
    }

    fn searcher(&self) -> RwLockReadGuard<'_, Searcher> {
        self.searcher.read().expect(NO_PANIC)
    }

    fn searcher_to_change(&self) -> RwLockWriteGuard<'_, Searcher> {
        self.searcher.write().expect(NO_PANIC)
    }

    /// Changes the items. Who calls it has locked the searcher to change it.
    fn publish(&self, change: impl FnOnce(&mut Catalog)) {
        let before = {
            let mut now = self.catalog.write().expect(NO_PANIC);
            // In place if nobody reads it: a copy of a million items takes 0.1 s.
            if let Some(own) = Arc::get_mut(&mut now) {
                return change(own);
            }
            Arc::clone(&now)
        };
        let mut changed = Catalog::clone(&before);
        change(&mut changed);
        *self.catalog.write().expect(NO_PANIC) = Arc::new(changed);
    }

    /// Takes note of items that another program has added to the database or replaced there. Who calls it has locked the
    /// searcher, so that no change of this program is lost.
    fn learn(&self, items: &[Item]) -> Arc<Catalog> {
        loop {
            let before = self.catalog();
            let new: Vec<&Item> = items.iter().filter(|item| !before.has(item)).collect();
            if new.is_empty() {
                return before;
            }
            let mut changed = Catalog::clone(&before);
            changed.put(&new);
            let changed = Arc::new(changed);
            let mut now = self.catalog.write().expect(NO_PANIC);
            // Otherwise another search has changed it meanwhile.
            if Arc::ptr_eq(&now, &before) {
                *now = Arc::clone(&changed);
                return changed;
            }
        }
    }

    /// The row of an item as it is compared. An index is asked, for a database over the network.
    pub(crate) fn embedding(&self, id: u64) -> Result<Option<Vec<f32>>> {
        let searcher = self.searcher();
        let mut items = Vec::new();
        let embedding = searcher.embedding(&self.catalog(), id, &mut |item| items.push(item))?;
        if self.is_database() {
            self.learn(&items);
        }
        Ok(embedding)
    }

    /// The items, the rows of those that are there, and these as they are compared. Other programs may have removed items from
    /// a database.
    pub(crate) fn rows(&self) -> Result<(Arc<Catalog>, Vec<usize>, Arc<Matrix>)> {
        let catalog = self.catalog();
        if let Some(rows) = self.searcher().all()? {
            return Ok((Arc::clone(&catalog), (0..catalog.len()).collect(), rows));
        }
        // In parts: a change would wait for all of them, and every search would wait behind it.
        let (mut there, mut values) = (Vec::new(), Vec::with_capacity(catalog.len() * self.dimensions));
        let starts = (0..).step_by(ITEMS_AT_A_TIME);
        for (ids, start) in catalog.ids().chunks(ITEMS_AT_A_TIME).zip(starts) {
            let items = self.searcher().get(ids)?;
            for (item, row) in items.into_iter().zip(start..) {
                let Some(item) = item else { continue };
                there.push(row);
                values.extend(item.embedding);
            }
        }
        let rows = Matrix::new(there.len(), self.dimensions, values)?;
        Ok((catalog, there, Arc::new(as_compared(self.metric, &rows))))
    }

    /// How many items a search compares with now. An index is asked, for a database over the network.
    pub(crate) fn searched(&self) -> Result<usize> {
        match &*self.searcher() {
            Searcher::Index(index, _) => Ok(index.info()?.count),
            _ => Ok(self.count()),
        }
    }

    /// The state of changes, to make one. A file that another program has changed is not overwritten.
    fn to_change(&self) -> Result<MutexGuard<'_, Changes>> {
        let changes = self.changes();
        if changes.frozen {
            return Err(Error::Reopening);
        }
        match &self.file {
            Some(_) if changes.stamp.as_ref().is_none_or(Stamp::is_outdated) => Err(Error::Outdated),
            _ => Ok(changes),
        }
    }

    /// Refuses changes, or permits them again. Those in progress are finished first.
    pub(crate) fn freeze(&self, frozen: bool) {
        self.changes().frozen = frozen;
    }

    /// Whether its file does not have what is in memory. A gallery without a file may always have changed.
    pub(crate) fn is_outdated(&self) -> bool {
        let changes = self.changes();
        changes.unstored || changes.stamp.as_ref().is_none_or(Stamp::is_outdated)
    }

    /// Adds items and returns when they are stored durably. Without `replace`, an item that would replace another one
    /// is refused. After an error nothing has changed; where that cannot be achieved, because taking the change back fails, too,
    /// each item that was to be replaced is in the index in its old or its new form.
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
        let mut changes = self.to_change()?;
        let mut searcher = self.searcher_to_change();
        let index = searcher.index()?;
        let (items, mut addition) = compared(&*index)?;
        if !replace {
            addition.check(&items)?;
        }
        let added = addition.added();
        if self.is_database() && !addition.unchanged.is_empty() {
            // Another program may have added them, those without a source under the ids of their paths.
            let paths = items.set().paths.as_ref();
            let by_path = addition.unchanged.iter().filter_map(|&row| Some(stable_id(&paths?[row])));
            let by_id = addition.unchanged.iter().map(|&row| items.ids()[row]);
            let mut ids: Vec<u64> = by_id.chain(by_path).collect();
            ids.sort_unstable();
            ids.dedup();
            self.learn(&index.get(&ids)?.into_iter().flatten().collect::<Vec<_>>());
        }
        if changes.unstored {
            addition.new.append(&mut addition.unchanged);
        }
        let (gone, written) = addition.changes(&items);
        if gone.is_empty() && written.is_empty() {
            return Ok(added);
        }
        self.store(&mut changes, index, &gone, Some(&written))?;
        let written: Vec<Item> = (0..written.len()).map(|row| written.item(row)).collect();
        self.publish(|catalog| {
            for id in &gone {
                catalog.remove(*id);
            }
            catalog.put(&written.iter().collect::<Vec<_>>());
        });
        Ok(added)
    }

    /// Removes an item and returns when that is stored durably; false if there is no such item. Errors are those of
    /// [`add`](Self::add).
    pub(crate) fn remove(&self, id: u64) -> Result<bool> {
        let mut changes = self.to_change()?;
        let mut searcher = self.searcher_to_change();
        if self.catalog().row(id).is_none() {
            return Ok(false);
        }
        self.store(&mut changes, searcher.index()?, &[id], None)?;
        self.publish(|catalog| {
            catalog.remove(id);
        });
        Ok(true)
    }

    /// Changes the index and stores it durably. A change that cannot be stored is taken back, so that a client that repeats
    /// it is not told that it is there already.
    fn store(
        &self,
        changes: &mut Changes,
        index: &mut dyn Index,
        gone: &[u64],
        written: Option<&Items>,
    ) -> Result<()> {
        let ids: Vec<u64> = gone.iter().chain(written.map_or(&[][..], Items::ids)).copied().collect();
        let before = index.get(&ids)?;
        let change = |index: &mut dyn Index| {
            if let Some(written) = written.filter(|written| !written.is_empty()) {
                index.upsert(written)?;
            }
            // Last, so that no image is without an item if a database fails in between.
            if !gone.is_empty() {
                index.remove(gone)?;
            }
            index.flush()
        };
        if let Err(error) = change(index) {
            changes.unstored = put_back(index, &ids, before).is_err();
            // The stamp stays: if the failed write has replaced the file, the gallery must be opened again.
            return Err(match error {
                // Another program changed the file after the stamp was compared.
                Changed { .. } => {
                    changes.stamp = None;
                    Error::Outdated
                }
                error => error.into(),
            });
        }
        changes.unstored = false;
        changes.stamp = self.file().map(Stamp::of);
        Ok(())
    }

    /// The number of results of a search for `all` items, and whether these are all. An index gives its nearest `k`, and a
    /// compact file does if decoding all of its rows would need too much memory.
    pub(crate) fn all_or(&self, k: usize, all: usize) -> (usize, bool) {
        let all = all.max(1);
        let possible = match self.form {
            Form::Rows => true,
            Form::Compact => all.saturating_mul(self.dimensions) <= DECODED_VALUES,
            Form::Index | Form::Database => false,
        };
        if possible { (all, true) } else { (k.min(all), k >= all) }
    }

    /// The number of results of a search for `all` items; `None` if their embeddings would need too much memory, or a
    /// database would have to return too many.
    pub(crate) fn all(&self, all: usize) -> Option<usize> {
        const MOST_OF_A_DATABASE: usize = 16_384;
        // Milvus also counts replaced and removed items until it merges its segments.
        let are_few = self.is_database() && self.count() <= MOST_OF_A_DATABASE;
        let all = if are_few { all.min(MOST_OF_A_DATABASE) } else { all };
        let all = all.max(1);
        let fits = match self.form {
            Form::Rows => true,
            Form::Database if all > MOST_OF_A_DATABASE => false,
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
        let searcher = self.searcher();
        let catalog = self.catalog();
        let mut new = Vec::new();
        let mut note = |item: Item| {
            if self.is_database() && !catalog.has(&item) {
                new.push(item);
            }
        };
        let lists = searcher.search(&catalog, queries, &mut note)?;
        let catalog = if new.is_empty() { catalog } else { self.learn(&new) };
        Ok(lists.into_iter().map(|found| Listed { found, catalog: Arc::clone(&catalog) }).collect())
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

/// Gives the items `ids` back what they were. What cannot be written stays as it is: nothing is removed that was there before.
fn put_back(index: &mut dyn Index, ids: &[u64], before: Vec<Option<Item>>) -> Result<()> {
    let is_new = ids.iter().zip(&before).filter(|(_, before)| before.is_none());
    let new: Vec<u64> = is_new.map(|(id, _)| *id).collect();
    let sources = index.sources()?;
    let mut result = Ok(());
    for item in before.into_iter().flatten() {
        result = result.and(put_back_one(index, &sources, item));
    }
    if !new.is_empty() {
        index.remove(&new)?;
    }
    result
}

/// Writes an item as it was. Not together with others, because a text that an item lacks is none, and that of a row is empty.
fn put_back_one(index: &mut dyn Index, sources: &[Source], item: Item) -> Result<()> {
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
    Ok(index.upsert(&Items::new(vec![id], set)?)?)
}
