//! The one implementation of [`Index`] for the kinds of index on this machine.

use std::path::Path;

use super::catalog::Catalog;
use super::contract::Index;
use super::file::{self, Parts, Reader};
use super::filter::ItemFilter;
use super::info::{IndexInfo, IndexKind, check_dimensions, check_queries};
use super::items::{Item, Items};
use super::lists::IdLists;
use super::origin::Origin;
use super::store::Store;
use super::values::Values;
use crate::columns::ColumnKind;
use crate::file::Source;
use crate::search::Metric;
use crate::{Error, MatrixView, Result};

/// What a kind of index on this machine adds to its [`Store`]: how items are found and changed.
///
/// A slot is a row of the store. It holds an item, or the remains of one that was removed.
pub(crate) trait LocalIndex: Send + Sync + Sized {
    /// Its kind.
    const INDEX_KIND: IndexKind;

    fn store(&self) -> &Store;

    fn store_mut(&mut self) -> &mut Store;

    /// Number of items.
    fn count(&self) -> usize;

    /// The slot of the item with this id.
    fn slot_of(&self, id: u64) -> Option<usize>;

    /// Whether a slot holds an item.
    fn is_item(&self, slot: usize) -> bool;

    /// Takes items that were checked: at least one. Tells `progress` how many of how many are in.
    fn insert(&mut self, items: &Items, progress: &mut dyn FnMut(usize, usize));

    /// Removes items, and returns how many there were.
    fn delete(&mut self, ids: &[u64]) -> usize;

    /// [`Index::search`] with queries that were checked, in an index that is not empty.
    fn find(&self, queries: MatrixView<'_>, k: usize, filter: &ItemFilter) -> Result<IdLists>;

    /// [`Index::search_all`] with queries that were checked, in an index that is not empty.
    fn find_all(&self, queries: MatrixView<'_>, k: usize) -> Result<IdLists> {
        self.find(queries, k, &ItemFilter::default())
    }

    /// What a file of this kind has in addition to the store.
    fn parts(&self) -> Parts<'_> {
        Parts::default()
    }

    /// The index of a store and of the parts in its file. The slots' ids are below 2^63, and nothing
    /// else is known of them.
    fn restore(store: Store, file: &Reader) -> Result<Self>;

    /// The options of its kind.
    fn settings(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Slots that hold no item, for a kind that has such.
    fn dead_slots(&self) -> Option<usize> {
        None
    }

    /// [`Index::set_ef`].
    fn keep_candidates(&mut self, _ef: usize) -> Result<()> {
        Err(Error::Unsupported { what: "`ef`", index: Self::INDEX_KIND.noun.to_owned() })
    }

    /// [`Index::compact`] of an index that may be changed.
    fn rebuild(&mut self, _progress: &mut dyn FnMut(usize, usize)) {}
}

/// A store without rows.
pub(super) fn empty_store(dimensions: usize, metric: Metric) -> Result<Store> {
    check_dimensions(dimensions)?;
    Ok(Store {
        metric,
        dimensions,
        origin: Origin::default(),
        rows: Values::default(),
        catalog: Catalog::default(),
        next_id: 0,
        path: None,
        version: None,
        changed: false,
    })
}

impl<T: LocalIndex> Index for T {
    fn info(&self) -> Result<IndexInfo> {
        let store = self.store();
        Ok(IndexInfo {
            kind: Self::INDEX_KIND,
            place: "embedded",
            metric: store.metric,
            dimensions: store.dimensions,
            count: self.count(),
            model: store.origin.model.clone(),
            metric_of_rows: (self.count() > 0).then(|| store.origin.metric_of_rows()),
            settings: self.settings(),
            dead: self.dead_slots(),
        })
    }

    fn origin(&self) -> Result<Origin> {
        Ok(self.store().origin.clone())
    }

    fn sources(&self) -> Result<Vec<Source>> {
        let items: Vec<usize> = (0..self.store().catalog.len()).filter(|&slot| self.is_item(slot)).collect();
        let sources = self.store().catalog.sources().map(|sources| sources.select(&items));
        Ok(sources.map_or(vec![], |sources| sources.list().to_vec()))
    }

    fn columns(&self) -> Result<Vec<(String, ColumnKind)>> {
        let columns = self.store().catalog.columns();
        Ok(columns.iter().map(|column| (column.name().to_owned(), column.kind())).collect())
    }

    fn labels(&self, filter: &ItemFilter) -> Result<Vec<(u64, Option<String>)>> {
        let catalog = &self.store().catalog;
        Ok(catalog.labelled(catalog.admitted(filter, |slot| self.is_item(slot))?))
    }

    fn ids(&self, filter: &ItemFilter) -> Result<Vec<u64>> {
        let admitted = self.store().catalog.admitted(filter, |slot| self.is_item(slot))?;
        Ok(admitted.into_iter().map(|(id, _)| id).collect())
    }

    fn next_id(&self) -> Result<u64> {
        let ids = self.ids(&ItemFilter::default())?;
        Ok(ids.last().map_or(0, |id| id + 1).max(self.store().next_id))
    }

    fn upsert(&mut self, items: &Items) -> Result<()> {
        self.upsert_with(items, &mut |_, _| {})
    }

    fn upsert_with(&mut self, items: &Items, progress: &mut dyn FnMut(usize, usize)) -> Result<()> {
        self.store().check_writable()?;
        self.info()?.check_items(items)?;
        crate::search::check_count(self.store().catalog.len() + items.len(), "the index")?;
        self.store().catalog.columns().check_joined(&items.set().columns)?;
        if items.is_empty() {
            return Ok(());
        }
        let replaced = items.ids().iter().filter(|&&id| self.slot_of(id).is_some()).count();
        let first = replaced == self.count();
        self.store_mut().origin.add(items, first);
        self.store_mut().changed = true;
        self.insert(items, progress);
        Ok(())
    }

    fn remove(&mut self, ids: &[u64]) -> Result<usize> {
        self.store().check_writable()?;
        let next_id = ids.iter().filter(|&&id| self.slot_of(id).is_some()).map(|id| id + 1).max();
        let removed = self.delete(ids);
        let store = self.store_mut();
        store.next_id = store.next_id.max(next_id.unwrap_or(0));
        store.changed |= removed > 0;
        Ok(removed)
    }

    fn search(&self, queries: MatrixView<'_>, k: usize, filter: &ItemFilter) -> Result<IdLists> {
        checked(self, queries, k, || self.find(queries, k, filter))
    }

    fn search_all(&self, queries: MatrixView<'_>, k: usize) -> Result<IdLists> {
        checked(self, queries, k, || self.find_all(queries, k))
    }

    fn get(&self, ids: &[u64]) -> Result<Vec<Option<Item>>> {
        let store = self.store();
        let item = |slot| store.catalog.item(slot, store.view().row(slot));
        let items = ids.iter().map(|&id| self.slot_of(id).map(item)).collect();
        store.rows.check()?;
        Ok(items)
    }

    fn set_ef(&mut self, ef: usize) -> Result<()> {
        self.keep_candidates(ef)
    }

    fn compact(&mut self, progress: &mut dyn FnMut(usize, usize)) -> Result<()> {
        self.store().check_writable()?;
        self.rebuild(progress);
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        match self.store().path.clone() {
            Some(path) if self.store().changed => self.save(&path),
            _ => Ok(()),
        }
    }

    fn save(&mut self, path: &Path) -> Result<()> {
        let held = self.store().hold(path)?;
        file::write(path, Self::INDEX_KIND.name, self.store(), &self.parts())?;
        self.store_mut().written(path);
        drop(held);
        Ok(())
    }
}

/// What `find` returns, with the checks before it; after it, whether the file of a mapped index is
/// still the one that was opened.
fn checked(
    index: &impl LocalIndex,
    queries: MatrixView<'_>,
    k: usize,
    find: impl FnOnce() -> Result<IdLists>,
) -> Result<IdLists> {
    let store = index.store();
    let found =
        check_queries(queries, k, store.metric, store.dimensions).and_then(|()| match index.count() {
            0 => Err(Error::Empty { what: "the index" }),
            _ => find(),
        });
    store.rows.check()?;
    found
}
