//! Exact search as an [`Index`](super::Index).

use std::sync::OnceLock;

use super::file::Reader;
use super::filter::ItemFilter;
use super::info::IndexKind;
use super::items::Items;
use super::lists::IdLists;
use super::local::{LocalIndex, empty_store};
use super::store::Store;
use crate::search::{Gallery, Metric, SearchOptions, search};
use crate::{MatrixView, Result};

/// An index that compares a query with every item: the lists of [`search`](crate::search::search()).
///
/// Rows are kept in the order of their ids, so that equal scores come in that order. Adding items
/// whose ids all follow the existing ids copies the new rows; every other change copies the whole
/// index, so make many changes at a time. In memory, the first search after a change packs a second
/// copy of the rows in the order in which the kernels read them.
pub struct ExactIndex {
    store: Store,
    packed: OnceLock<Gallery>,
}

impl ExactIndex {
    /// Exact search.
    pub const KIND: IndexKind = IndexKind {
        name: "exact",
        help: "Exact search: compares every item",
        noun: "an exact index",
        is_exact: true,
    };

    /// An empty index in memory.
    ///
    /// # Errors
    /// [`Error::Option`](crate::Error::Option) for 0 dimensions.
    pub fn new(dimensions: usize, metric: Metric) -> Result<Self> {
        Ok(Self { store: empty_store(dimensions, metric)?, packed: OnceLock::new() })
    }

    /// Sorts the rows by id. Of two rows with one id the later stays.
    fn sort(&mut self) {
        let ids = self.store.catalog.ids();
        let mut order: Vec<usize> = (0..ids.len()).collect();
        // A stable sort keeps the order of rows with one id.
        order.sort_by_key(|&row| ids[row]);
        let stays = |at: &usize| order.get(at + 1).is_none_or(|&next| ids[next] != ids[order[*at]]);
        let kept: Vec<usize> = (0..order.len()).filter(stays).map(|at| order[at]).collect();
        self.store.keep(&kept);
    }
}

impl LocalIndex for ExactIndex {
    const INDEX_KIND: IndexKind = Self::KIND;

    fn store(&self) -> &Store {
        &self.store
    }

    fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }

    fn count(&self) -> usize {
        self.store.catalog.len()
    }

    fn slot_of(&self, id: u64) -> Option<usize> {
        self.store.catalog.ids().binary_search(&id).ok()
    }

    fn is_item(&self, _slot: usize) -> bool {
        true
    }

    fn insert(&mut self, items: &Items, _progress: &mut dyn FnMut(usize, usize)) {
        let before = self.store.catalog.len();
        for row in 0..items.len() {
            self.store.catalog.push(items, row);
        }
        self.store.catalog.append_columns(items, before);
        self.store.rows.owned().extend_from_slice(items.set().embeddings.as_slice());
        if !self.store.catalog.ids().is_sorted_by(|a, b| a < b) {
            self.sort();
        }
        self.packed.take();
    }

    fn delete(&mut self, ids: &[u64]) -> usize {
        let mut gone = vec![false; self.store.catalog.len()];
        for row in ids.iter().filter_map(|&id| self.slot_of(id)) {
            gone[row] = true;
        }
        let kept: Vec<usize> = (0..gone.len()).filter(|&row| !gone[row]).collect();
        let removed = gone.len() - kept.len();
        if removed > 0 {
            self.store.keep(&kept);
            self.packed.take();
        }
        removed
    }

    fn find(&self, queries: MatrixView<'_>, k: usize, filter: &ItemFilter) -> Result<IdLists> {
        let Store { metric, catalog, .. } = &self.store;
        let admission = catalog.admission(filter, &|_| true)?;
        let admits = |_: usize, row: usize| admission.admits(row);
        let options = SearchOptions {
            metric: *metric,
            filter: if filter.is_empty() { None } else { Some(&admits) },
            ..SearchOptions::new(k)
        };
        let found = match self.packed.get() {
            _ if self.store.is_mapped() => search(queries, self.store.view(), &options)?,
            Some(packed) => packed.search(queries, &options)?,
            None => {
                let packed = Gallery::new(self.store.view(), *metric)?;
                self.packed.get_or_init(|| packed).search(queries, &options)?
            }
        };
        Ok(self.store.named(&found, |row| row as usize))
    }

    fn restore(store: Store, file: &Reader) -> Result<Self> {
        if !store.catalog.ids().is_sorted_by(|a, b| a < b) {
            return Err(file.refuse_ids());
        }
        Ok(Self { store, packed: OnceLock::new() })
    }
}
