//! Exact search behind the door of an index.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use super::catalog::Catalog;
use super::file::{self, Contents};
use super::values::Values;
use super::{
    IdLists, Index, IndexInfo, IndexKind, Item, ItemFilter, Items, Origin, check_items, check_queries,
};
use crate::file::Source;
use crate::search::{Gallery, Metric, SearchOptions, search};
use crate::{Error, MatrixView, Result};

/// An index that compares a query with every item: the lists of [`search`](crate::search::search()).
///
/// Rows are kept in the order of their ids, so that equal scores come in that order. Adding items
/// whose ids all follow those that are there costs their copy, other changes cost a copy of the
/// whole index: change many at a time. In memory, the first search after a change packs a second
/// copy of the rows in the order in which the kernels read them.
pub struct ExactIndex {
    metric: Metric,
    dimensions: usize,
    origin: Origin,
    rows: Values<f32>,
    catalog: Catalog,
    packed: OnceLock<Gallery>,
    path: Option<PathBuf>,
    changed: bool,
}

impl ExactIndex {
    /// An empty index in memory.
    ///
    /// # Errors
    /// [`Error::Option`] for 0 dimensions.
    pub fn new(dimensions: usize, metric: Metric) -> Result<Self> {
        super::check_dimensions(dimensions)?;
        let (origin, rows, catalog) = (Origin::default(), Values::default(), Catalog::default());
        Ok(Self::from_contents(Contents { metric, dimensions, origin, rows, catalog, graph: None }))
    }

    /// Reads an index that [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::Format`] for a file that is cut short, damaged or no such index.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::read(path.as_ref(), false)
    }

    /// Reads an index whose rows stay in the file, which may be larger than memory. It cannot be
    /// changed. All of the file is read once, to check it.
    ///
    /// Replacing the file, as [`save`](Self::save) does, changes nothing for this index. Once it was
    /// written to or cut short in place, every search and every look at its items is refused with
    /// [`Error::Changed`]; see [`MappedMatrix`](crate::file::MappedMatrix).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn map(path: impl AsRef<Path>) -> Result<Self> {
        Self::read(path.as_ref(), true)
    }

    fn read(path: &Path, mapped: bool) -> Result<Self> {
        let contents = file::read(path, mapped)?;
        if contents.graph.is_some() {
            return Err(file::refuse(path, "wanted an exact index, found a graph of neighbours", None));
        }
        Ok(Self::from_contents(contents).at(path))
    }

    pub(super) fn at(self, path: &Path) -> Self {
        Self { path: Some(path.to_owned()), ..self }
    }

    pub(super) fn from_contents(contents: Contents) -> Self {
        Self {
            metric: contents.metric,
            dimensions: contents.dimensions,
            origin: contents.origin,
            rows: contents.rows,
            catalog: contents.catalog,
            packed: OnceLock::new(),
            path: None,
            changed: false,
        }
    }

    /// Where the embeddings come from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// Writes the index, atomically; [`Index::flush`] writes there from now on.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn save(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        let kind = (self.metric, self.dimensions, &self.origin);
        file::write(path, kind, (&self.rows, &self.catalog), None)?;
        self.path = Some(path.to_owned());
        self.changed = false;
        Ok(())
    }

    /// The sources of the items, in the order of their first item.
    pub fn sources(&self) -> Vec<Source> {
        self.catalog.sources().map_or(vec![], |sources| sources.list().to_vec())
    }

    /// The ids of all items that `filter` admits, rising.
    pub fn ids(&self, filter: &ItemFilter) -> Vec<u64> {
        self.catalog.admitted(filter, |_| true).into_iter().map(|(id, _)| id).collect()
    }

    /// Id and label of every item that `filter` admits, in the order of ids.
    pub fn labels(&self, filter: &ItemFilter) -> Vec<(u64, Option<String>)> {
        self.catalog.labelled(self.catalog.admitted(filter, |_| true))
    }

    fn mapped(&self) -> bool {
        matches!(self.rows, Values::Mapped(..))
    }

    fn check_writable(&self) -> Result<()> {
        match &self.path {
            Some(path) if self.mapped() => Err(Error::ReadOnly { path: path.clone() }),
            _ => Ok(()),
        }
    }

    fn view(&self) -> MatrixView<'_> {
        MatrixView::new(self.catalog.len(), self.dimensions, self.rows.as_slice()).expect("a row per id")
    }

    fn row_of(&self, id: u64) -> Option<usize> {
        self.catalog.ids().binary_search(&id).ok()
    }

    /// Keeps the rows named, in that order.
    fn keep(&mut self, kept: &[usize]) {
        let mut rows = Vec::with_capacity(kept.len() * self.dimensions);
        kept.iter().for_each(|&row| rows.extend_from_slice(self.view().row(row)));
        self.rows = Values::Owned(rows);
        self.catalog = self.catalog.select(kept);
    }

    /// Sorts rows of which the later stands behind by id; of two rows with one id the later stays.
    fn sort(&mut self) {
        let ids = self.catalog.ids();
        let mut order: Vec<usize> = (0..ids.len()).collect();
        // A stable sort keeps the order of rows with one id.
        order.sort_by_key(|&row| ids[row]);
        let stays = |at: &usize| order.get(at + 1).is_none_or(|&next| ids[next] != ids[order[*at]]);
        let kept: Vec<usize> = (0..order.len()).filter(stays).map(|at| order[at]).collect();
        self.keep(&kept);
    }
}

impl Index for ExactIndex {
    fn info(&self) -> Result<IndexInfo> {
        Ok(IndexInfo {
            kind: IndexKind::Exact,
            place: "embedded",
            metric: self.metric,
            dimensions: self.dimensions,
            count: self.catalog.len(),
            model: self.origin.model.clone(),
        })
    }

    fn upsert(&mut self, items: &Items) -> Result<()> {
        self.check_writable()?;
        check_items(items, self.metric, self.dimensions, self.origin.model.as_deref())?;
        self.origin.check_metric(items, self.catalog.len() == 0)?;
        crate::search::check_count(self.catalog.len() + items.len(), "the index")?;
        if items.is_empty() {
            return Ok(());
        }
        self.origin.add(items, self.catalog.len() == 0);
        for row in 0..items.len() {
            self.catalog.push(items, row);
        }
        self.rows.owned().extend_from_slice(items.set().embeddings.as_slice());
        if !self.catalog.ids().is_sorted_by(|a, b| a < b) {
            self.sort();
        }
        self.packed.take();
        self.changed = true;
        Ok(())
    }

    fn remove(&mut self, ids: &[u64]) -> Result<usize> {
        self.check_writable()?;
        let mut gone = vec![false; self.catalog.len()];
        for row in ids.iter().filter_map(|&id| self.row_of(id)) {
            gone[row] = true;
        }
        let kept: Vec<usize> = (0..gone.len()).filter(|&row| !gone[row]).collect();
        let removed = gone.len() - kept.len();
        if removed > 0 {
            self.keep(&kept);
            self.packed.take();
            self.changed = true;
        }
        Ok(removed)
    }

    fn search(&self, queries: MatrixView<'_>, k: usize, filter: &ItemFilter) -> Result<IdLists> {
        let found = self.find(queries, k, filter);
        self.rows.check()?;
        found
    }

    fn get(&self, ids: &[u64]) -> Result<Vec<Option<Item>>> {
        let item = |row| self.catalog.item(row, self.view().row(row));
        let items = ids.iter().map(|&id| self.row_of(id).map(item)).collect();
        self.rows.check()?;
        Ok(items)
    }

    fn flush(&mut self) -> Result<()> {
        match self.path.clone() {
            Some(path) if self.changed => self.save(path),
            _ => Ok(()),
        }
    }
}

impl ExactIndex {
    fn find(&self, queries: MatrixView<'_>, k: usize, filter: &ItemFilter) -> Result<IdLists> {
        check_queries(queries, k, self.metric, self.dimensions)?;
        if self.catalog.len() == 0 {
            return Err(Error::Empty { what: "the index" });
        }
        let admission = self.catalog.admission(filter);
        let admits = |_: usize, row: usize| admission.admits(row);
        let options = SearchOptions {
            metric: self.metric,
            filter: if filter.is_empty() { None } else { Some(&admits) },
            ..SearchOptions::new(k)
        };
        let found = match self.packed.get() {
            _ if self.mapped() => search(queries, self.view(), &options)?,
            Some(packed) => packed.search(queries, &options)?,
            None => {
                let packed = Gallery::new(self.view(), self.metric)?;
                self.packed.get_or_init(|| packed).search(queries, &options)?
            }
        };
        let mut lists = IdLists::default();
        for (rows, scores) in found.iter() {
            let ids = rows.iter().map(|&row| self.catalog.ids()[row as usize]);
            lists.push(ids.zip(scores.iter().copied()));
        }
        Ok(lists)
    }
}
