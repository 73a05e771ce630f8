//! Approximate search in a hierarchical navigable small world graph.
//!
//! Malkov and Yashunin, *Efficient and robust approximate nearest neighbor search using
//! Hierarchical Navigable Small World graphs*, IEEE TPAMI 42(4), 2018. Each item is a node with
//! links to near items; a search walks from node to node towards the query, on a few coarse levels
//! first. It finds nearly all of the nearest items at a small part of the comparisons; how many,
//! [`HnswOptions::ef`] says.
//!
//! - The walk is approximate, the scores are not: what it found is scored as in exact search, so
//!   that a list has the same bits where it holds the same items.
//! - A search that has few items to choose from, because the index is small or the filter strict,
//!   compares all of them: its lists are exact.
//! - The graph depends on the rows, their order, [`HnswOptions`] and the processor's instruction
//!   set, not on the number of threads: the same index is built again to the last bit.
//! - Removed and replaced items stay in the graph as places to walk through, and are found no
//!   more; [`HnswIndex::compact`] builds the graph anew without them.
//! - With [`Metric::InnerProduct`](crate::search::Metric::InnerProduct) and rows of very different
//!   lengths no graph of neighbours is good; measure the recall before trusting it.

mod build;
mod graph;
mod space;
mod walk;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::catalog::Catalog;
use super::file::{self, Contents};
use super::values::Values;
use super::{
    IdLists, Index, IndexInfo, IndexKind, Item, ItemFilter, Items, Origin, check_items, check_queries,
};
use crate::file::Source;
use crate::matrix::normalize;
use crate::search::{Metric, SearchOptions, pair_scores, search};
use crate::{Error, Matrix, MatrixView, Result};
use gallerist_util::memory::prefer_large_pages;
pub(in crate::index) use graph::Graph;
use space::{Kernel, Space, inverse_length};
use walk::{Near, Quest, Walk, closeness_of, node_of};

/// How a graph is built and searched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct HnswOptions {
    /// Links a new item gets on each level, at least 2; on the lowest level an item keeps up to
    /// twice as many. 16 in the paper's experiments. Memory: 8 bytes x `m` an item.
    pub m: usize,
    /// Candidates among which a new item's links are chosen, at least 1: more make a better graph
    /// and take longer.
    pub ef_construction: usize,
    /// Candidates a search keeps, at least 1: more find more and take longer. A search for more
    /// results keeps as many candidates as results.
    pub ef: usize,
    /// Seed of the levels and of the order in which items are linked.
    pub seed: u64,
}

impl Default for HnswOptions {
    fn default() -> Self {
        Self { m: 16, ef_construction: 100, ef: 64, seed: 1 }
    }
}

impl HnswOptions {
    fn check(&self) -> Result<()> {
        let at_least = |option, value: usize, least: usize, wanted| {
            if value < least {
                Err(Error::Option { option, wanted, found: value.to_string() })
            } else {
                Ok(())
            }
        };
        at_least("m", self.m, 2, "at least 2")?;
        if self.m > 1024 {
            return Err(Error::Option { option: "m", wanted: "at most 1024", found: self.m.to_string() });
        }
        at_least("ef_construction", self.ef_construction, 1, "at least 1")?;
        at_least("ef", self.ef, 1, "at least 1")
    }
}

/// An index that walks a graph of neighbours instead of comparing a query with every item.
///
/// ```
/// use gallerist_retrieval::index::{HnswIndex, HnswOptions, Index, ItemFilter, Items};
/// use gallerist_retrieval::{Matrix, search::Metric};
///
/// let rows = Matrix::new(1000, 1, (0..1000).map(|i| i as f32).collect())?;
/// let mut index = HnswIndex::new(1, Metric::Euclidean, HnswOptions::default())?;
/// index.upsert(&Items::numbered(rows.into(), 0)?)?;
/// let query = Matrix::new(1, 1, vec![500.2])?;
/// assert_eq!(index.search(query.view(), 3, &ItemFilter::default())?.ids(0), [500, 501, 499]);
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
pub struct HnswIndex {
    metric: Metric,
    dimensions: usize,
    options: HnswOptions,
    origin: Origin,
    /// A slot per node of the graph; a slot stays where it is.
    rows: Values<f32>,
    /// One over the length of each row, for the cosine.
    inverse: Vec<f32>,
    catalog: Catalog,
    /// False: removed, or replaced by a later slot.
    alive: Vec<bool>,
    slots: HashMap<u64, u32>,
    graph: Graph,
    walks: Mutex<Vec<Walk>>,
    path: Option<PathBuf>,
    changed: bool,
}

/// A search compares all items when the square of their number is at most this times `ef` times
/// the number of nodes. A walk that admits a share s of the nodes visits about `ef / s`, each at
/// random in memory and with its links; comparing all visits s x nodes in order, an item some 64
/// times as fast.
const SCAN_BELOW: usize = 64;

impl HnswIndex {
    /// An empty index in memory.
    ///
    /// # Errors
    /// [`Error::Option`] for 0 dimensions and for options out of range.
    pub fn new(dimensions: usize, metric: Metric, options: HnswOptions) -> Result<Self> {
        options.check()?;
        super::check_dimensions(dimensions)?;
        Self::from_contents(Contents {
            metric,
            dimensions,
            origin: Origin::default(),
            rows: Values::default(),
            catalog: Catalog::default(),
            graph: Some((options, vec![], Graph::new(options.m))),
        })
    }

    /// Reads an index that [`save`](Self::save) wrote.
    ///
    /// # Errors
    /// [`Error::Io`], and [`Error::Format`] for a file that is cut short, damaged or no such index.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        Self::read(path.as_ref(), false)
    }

    /// Reads an index whose rows and links stay in the file, which may be larger than memory. It
    /// cannot be changed. All of the file is read once, to check it.
    ///
    /// Changes to the file are treated as by [`ExactIndex::map`](super::ExactIndex::map).
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn map(path: impl AsRef<Path>) -> Result<Self> {
        Self::read(path.as_ref(), true)
    }

    fn read(path: &Path, mapped: bool) -> Result<Self> {
        let contents = file::read(path, mapped)?;
        if contents.graph.is_none() {
            return Err(file::refuse(path, "wanted a graph of neighbours, found an exact index", None));
        }
        Ok(Self::from_contents(contents)?.at(path))
    }

    pub(super) fn at(self, path: &Path) -> Self {
        Self { path: Some(path.to_owned()), ..self }
    }

    pub(super) fn from_contents(contents: Contents) -> Result<Self> {
        let (options, alive, graph) = contents.graph.expect("the contents of an index with a graph");
        options.check()?;
        let ids = contents.catalog.ids();
        let living = (0..ids.len()).filter(|&slot| alive[slot]);
        let slots = living.map(|slot| (ids[slot], slot as u32)).collect();
        let mut index = Self {
            metric: contents.metric,
            dimensions: contents.dimensions,
            options,
            origin: contents.origin,
            rows: contents.rows,
            inverse: Vec::new(),
            catalog: contents.catalog,
            alive,
            slots,
            graph,
            walks: Mutex::default(),
            path: None,
            changed: false,
        };
        index.measure_rows();
        Ok(index)
    }

    /// How the graph was built and is searched.
    pub fn options(&self) -> HnswOptions {
        self.options
    }

    /// Sets the candidates that a search keeps, [`HnswOptions::ef`].
    ///
    /// # Errors
    /// [`Error::Option`] for 0.
    pub fn set_ef(&mut self, ef: usize) -> Result<()> {
        let options = HnswOptions { ef, ..self.options };
        options.check()?;
        self.options = options;
        Ok(())
    }

    /// Where the embeddings come from.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    /// The sources of the items, in the order of their first item.
    pub fn sources(&self) -> Vec<Source> {
        let living: Vec<usize> = (0..self.alive.len()).filter(|&slot| self.alive[slot]).collect();
        let sources = self.catalog.sources().map(|sources| sources.select(&living));
        sources.map_or(vec![], |sources| sources.list().to_vec())
    }

    /// The ids of all items that `filter` admits, rising.
    pub fn ids(&self, filter: &ItemFilter) -> Vec<u64> {
        self.catalog.admitted(filter, |slot| self.alive[slot]).into_iter().map(|(id, _)| id).collect()
    }

    /// Id and label of every item that `filter` admits, in the order of ids.
    pub fn labels(&self, filter: &ItemFilter) -> Vec<(u64, Option<String>)> {
        self.catalog.labelled(self.catalog.admitted(filter, |slot| self.alive[slot]))
    }

    /// As [`Index::search`], comparing every item: what the walk's lists are measured by.
    ///
    /// # Errors
    /// As [`Index::search`].
    pub fn search_all(&self, queries: MatrixView<'_>, k: usize) -> Result<IdLists> {
        check_queries(queries, k, self.metric, self.dimensions)?;
        if self.slots.is_empty() {
            return Err(Error::Empty { what: "the index" });
        }
        let found = self.scan(
            queries,
            k,
            (0..self.alive.len() as u32).filter(|&slot| self.alive[slot as usize]).collect(),
        );
        self.rows.check()?;
        found
    }

    /// Nodes of the graph that are no items any more: removed or replaced.
    pub fn dead(&self) -> usize {
        self.alive.len() - self.slots.len()
    }

    /// As [`Index::upsert`]; tells `progress` how many of how many items are linked.
    ///
    /// # Errors
    /// As [`Index::upsert`].
    pub fn upsert_with(&mut self, items: &Items, progress: &mut dyn FnMut(usize, usize)) -> Result<()> {
        self.check_writable()?;
        check_items(items, self.metric, self.dimensions, self.origin.model.as_deref())?;
        self.origin.check_metric(items, self.slots.is_empty())?;
        crate::search::check_count(self.alive.len() + items.len(), "the index")?;
        self.origin.add(items, self.slots.is_empty());
        self.changed |= !items.is_empty();
        let first = self.alive.len();
        let rows = self.rows.owned();
        rows.reserve(items.len() * self.dimensions);
        prefer_large_pages(rows);
        for row in 0..items.len() {
            let embedding = items.set().embeddings.row(row);
            let id = items.ids()[row];
            if let Some(&slot) = self.slots.get(&id) {
                if self.rows_view().row(slot as usize) == embedding {
                    self.catalog.replace(slot as usize, items, row);
                    continue;
                }
                self.alive[slot as usize] = false;
            }
            self.slots.insert(id, self.alive.len() as u32);
            self.catalog.push(items, row);
            self.rows.owned().extend_from_slice(embedding);
            self.alive.push(true);
        }
        self.measure_rows();
        self.link_from(first, progress);
        Ok(())
    }

    /// Builds the graph anew from the items that are left, and gives back the memory of the
    /// others.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] for a mapped index.
    pub fn compact(&mut self, progress: &mut dyn FnMut(usize, usize)) -> Result<()> {
        self.check_writable()?;
        let kept: Vec<usize> = (0..self.alive.len()).filter(|&slot| self.alive[slot]).collect();
        let mut rows = Vec::with_capacity(kept.len() * self.dimensions);
        kept.iter().for_each(|&slot| rows.extend_from_slice(self.rows_view().row(slot)));
        self.rows = Values::Owned(rows);
        self.catalog = self.catalog.select(&kept);
        self.alive = vec![true; kept.len()];
        self.slots = self.catalog.ids().iter().copied().zip(0..).collect();
        self.inverse.clear();
        self.measure_rows();
        self.graph = Graph::new(self.options.m);
        self.changed = true;
        self.link_from(0, progress);
        Ok(())
    }

    /// Writes the index, atomically; [`Index::flush`] writes there from now on.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn save(&mut self, path: impl AsRef<Path>) -> Result<()> {
        let path = path.as_ref();
        file::write(
            path,
            (self.metric, self.dimensions, &self.origin),
            (&self.rows, &self.catalog),
            Some((&self.options, &self.alive, &self.graph)),
        )?;
        self.path = Some(path.to_owned());
        self.changed = false;
        Ok(())
    }

    fn check_writable(&self) -> Result<()> {
        match &self.path {
            Some(path) if matches!(self.rows, Values::Mapped(..)) => {
                Err(Error::ReadOnly { path: path.clone() })
            }
            _ => Ok(()),
        }
    }

    fn rows_view(&self) -> MatrixView<'_> {
        MatrixView::new(self.alive.len(), self.dimensions, self.rows.as_slice()).expect("a row per slot")
    }

    fn space(&self) -> Space<'_> {
        Space {
            metric: self.metric,
            dimensions: self.dimensions,
            rows: self.rows.as_slice(),
            inverse: &self.inverse,
            kernel: Kernel::best(),
        }
    }

    /// Measures the rows that have not been.
    fn measure_rows(&mut self) {
        if self.metric == Metric::Cosine {
            let from = self.inverse.len();
            let rows = &self.rows.as_slice()[from * self.dimensions..];
            let inverse: Vec<f32> = rows.par_chunks(self.dimensions).map(inverse_length).collect();
            self.inverse.extend(inverse);
        }
    }

    fn link_from(&mut self, first: usize, progress: &mut dyn FnMut(usize, usize)) {
        let HnswOptions { m, ef_construction, seed, .. } = self.options;
        let mut graph = std::mem::take(&mut self.graph);
        graph.extend((first..self.alive.len()).map(|slot| build::level_of(slot as u32, m, seed)));
        let new = self.alive.len() - first;
        let choice = (first as u32, ef_construction.max(m), seed);
        build::link(&mut graph, self.space(), choice, &self.walks, &mut |done| progress(done, new));
        self.graph = graph;
    }

    /// The lists of exact search over the slots named.
    fn scan(&self, queries: MatrixView<'_>, k: usize, mut slots: Vec<u32>) -> Result<IdLists> {
        let ids = self.catalog.ids();
        // Equal scores come in the order of rows: of ids.
        slots.sort_unstable_by_key(|&slot| ids[slot as usize]);
        let mut rows = Vec::with_capacity(slots.len() * self.dimensions);
        slots.iter().for_each(|&slot| rows.extend_from_slice(self.rows_view().row(slot as usize)));
        let rows = Matrix::new(slots.len(), self.dimensions, rows)?;
        let found = search(queries, &rows, &SearchOptions { metric: self.metric, ..SearchOptions::new(k) })?;
        let mut lists = IdLists::default();
        for (rows, scores) in found.iter() {
            let found = rows.iter().map(|&row| ids[slots[row as usize] as usize]);
            lists.push(found.zip(scores.iter().copied()));
        }
        Ok(lists)
    }

    /// What a walk towards one query finds: more candidates than are wanted, with their scores.
    fn walk(&self, query: &[f32], k: usize, admits: &(impl Fn(u32) -> bool + Sync)) -> Vec<(u64, f32)> {
        let mut row = query.to_vec();
        if self.metric == Metric::Cosine {
            normalize(&mut row);
        }
        let graph = self.graph.view();
        let Some(entry) = graph.entry else { return Vec::new() };
        let quest = Quest { graph, space: self.space(), row: &row, inverse: 1.0 };
        let mut near = quest.near(entry);
        for level in (1..=graph.level(entry)).rev() {
            near = Walk::descend(&quest, near, level);
        }
        let mut walk = self.walks.lock().expect("no walk panics").pop().unwrap_or_default();
        let found = walk.beam(&quest, &[near], 0, self.options.ef.max(k), admits);
        self.walks.lock().expect("no walk panics").push(walk);

        let slots = self.contenders(found, k);
        let scores = pair_scores(query, self.rows_view(), &slots, self.metric);
        let ids = slots.iter().map(|&slot| self.catalog.ids()[slot as usize]);
        ids.zip(scores).collect()
    }

    /// Those of the candidates, the closest first, that may be among the best `k` once they are scored.
    ///
    /// For the cosine, closeness and score are sums of `d` products of rows of length 1, rounded in
    /// two ways: each is within `(d + 5) 2^-24` of the true cosine, so that they differ by at most
    /// `(d + 5) 2^-23`. The bound does not hold for rows so short that products underflow.
    fn contenders(&self, found: Vec<Near>, k: usize) -> Vec<u32> {
        let floor = match (self.metric, found.get(k - 1)) {
            (Metric::Cosine, Some(&last)) => {
                closeness_of(last) - 2.0 * (self.dimensions + 5) as f32 * f32::EPSILON
            }
            _ => f32::MIN,
        };
        let contends = |&near: &Near| {
            closeness_of(near) >= floor || self.inverse.get(node_of(near) as usize).is_some_and(|&i| i > 1e28)
        };
        found.into_iter().filter(contends).map(node_of).collect()
    }
}

impl Index for HnswIndex {
    fn info(&self) -> Result<IndexInfo> {
        Ok(IndexInfo {
            kind: IndexKind::Hnsw,
            place: "embedded",
            metric: self.metric,
            dimensions: self.dimensions,
            count: self.slots.len(),
            model: self.origin.model.clone(),
        })
    }

    fn upsert(&mut self, items: &Items) -> Result<()> {
        self.upsert_with(items, &mut |_, _| {})
    }

    fn remove(&mut self, ids: &[u64]) -> Result<usize> {
        self.check_writable()?;
        let before = self.slots.len();
        for slot in ids.iter().filter_map(|id| self.slots.remove(id)) {
            self.alive[slot as usize] = false;
        }
        self.changed |= self.slots.len() < before;
        Ok(before - self.slots.len())
    }

    fn search(&self, queries: MatrixView<'_>, k: usize, filter: &ItemFilter) -> Result<IdLists> {
        let found = self.find(queries, k, filter);
        self.rows.check()?;
        found
    }

    fn get(&self, ids: &[u64]) -> Result<Vec<Option<Item>>> {
        let item = |&slot: &u32| self.catalog.item(slot as usize, self.rows_view().row(slot as usize));
        let items = ids.iter().map(|id| self.slots.get(id).map(item)).collect();
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

impl HnswIndex {
    fn find(&self, queries: MatrixView<'_>, k: usize, filter: &ItemFilter) -> Result<IdLists> {
        check_queries(queries, k, self.metric, self.dimensions)?;
        if self.slots.is_empty() {
            return Err(Error::Empty { what: "the index" });
        }
        let admission = self.catalog.admission(filter);
        let every = filter.is_empty() && self.dead() == 0;
        let admits = |slot: u32| every || self.alive[slot as usize] && admission.admits(slot as usize);
        let nodes = self.alive.len();
        let admitted = if filter.is_empty() {
            self.slots.len()
        } else {
            (0..nodes as u32).into_par_iter().filter(|&slot| admits(slot)).count()
        };
        let all = || (0..nodes as u32).filter(|&slot| admits(slot)).collect();
        let k = k.min(admitted.max(1));
        let breadth = self.options.ef.max(k);
        if admitted.saturating_mul(admitted) <= SCAN_BELOW.saturating_mul(breadth).saturating_mul(nodes) {
            return if admitted == 0 {
                Ok(IdLists::from_candidates(k, self.metric, vec![vec![]; queries.rows()]))
            } else {
                self.scan(queries, k, all())
            };
        }
        let mut found: Vec<Vec<(u64, f32)>> = (0..queries.rows())
            .into_par_iter()
            .map(|query| self.walk(queries.row(query), k, &admits))
            .collect();
        // A part of the graph that no walk reaches makes a list too short: then all are compared.
        for (query, list) in found.iter_mut().enumerate() {
            if list.len() < k {
                let row = MatrixView::new(1, self.dimensions, queries.row(query))?;
                let lists = self.scan(row, k, all())?;
                *list = lists.ids(0).iter().copied().zip(lists.scores(0).iter().copied()).collect();
            }
        }
        Ok(IdLists::from_candidates(k, self.metric, found))
    }
}
