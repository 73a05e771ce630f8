//! Approximate search in a hierarchical navigable small world graph.
//!
//! Malkov and Yashunin, *Efficient and robust approximate nearest neighbor search using
//! Hierarchical Navigable Small World graphs*, IEEE TPAMI 42(4), 2018. Each item is a node with
//! links to near items; a search walks from node to node towards the query, on a few coarse levels
//! first. It finds nearly all of the nearest items with a small part of the comparisons;
//! [`HnswOptions::ef`] sets the trade-off.
//!
//! - The walk is approximate, the scores are not: the found items are scored as in exact search, so
//!   that a list has the same bits where it holds the same items.
//! - A search that has few items to choose from, because the index is small or the filter strict,
//!   compares all of them: its lists are exact.
//! - The graph depends on the rows, their order, [`HnswOptions`] and the processor's instruction
//!   set, not on the number of threads: the same index is built again to the last bit.
//! - Removed and replaced items stay in the graph, and walks pass through them, but they are no
//!   results; [`HnswIndex::compact`] builds the graph again without them.
//! - With [`Metric::InnerProduct`](crate::search::Metric::InnerProduct) and rows of very different
//!   lengths no graph of neighbours is good; measure the recall before trusting it.

mod build;
mod graph;
mod space;
mod walk;

use std::collections::{HashMap, HashSet};
use std::sync::Mutex;

use gallerist_util::interrupt;
use rayon::prelude::*;
use safetensors::Dtype;
use serde::{Deserialize, Serialize};

use super::file::{Parts, Reader, TensorValues};
use super::filter::ItemFilter;
use super::info::IndexKind;
use super::items::Items;
use super::lists::IdLists;
use super::local::{LocalIndex, empty_store};
use super::store::Store;
use crate::matrix::normalize;
use crate::search::{Metric, SearchOptions, pair_scores, search};
use crate::{Error, Matrix, MatrixView, Result};
use gallerist_util::memory::prefer_large_pages;
use graph::Graph;
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
    /// A slot per node of the graph; a slot keeps its number.
    store: Store,
    options: HnswOptions,
    /// One over the length of each row, for the cosine.
    inverse: Vec<f32>,
    /// False: removed, or replaced by a later slot.
    alive: Vec<bool>,
    slots: HashMap<u64, u32>,
    graph: Graph,
    walks: Mutex<Vec<Walk>>,
}

/// A search compares all items when the square of their number is at most this times `ef` times
/// the number of nodes. A walk that admits a share s of the nodes visits about `ef / s`, each at
/// random in memory and with its links; comparing all visits s x nodes in order, an item some 64
/// times as fast.
const SCAN_BELOW: usize = 64;

impl HnswIndex {
    /// Approximate search in a graph.
    pub const KIND: IndexKind = IndexKind {
        name: "hnsw",
        help: "Approximate search on a graph of neighbours",
        noun: "a graph of neighbours",
        is_exact: false,
    };

    /// An empty index in memory.
    ///
    /// # Errors
    /// [`Error::Option`] for 0 dimensions and for options out of range.
    pub fn new(dimensions: usize, metric: Metric, options: HnswOptions) -> Result<Self> {
        options.check()?;
        Ok(Self::from_parts(empty_store(dimensions, metric)?, options, vec![], Graph::new(options.m)))
    }

    fn from_parts(store: Store, options: HnswOptions, alive: Vec<bool>, graph: Graph) -> Self {
        let ids = store.catalog.ids();
        let living = (0..ids.len()).filter(|&slot| alive[slot]);
        let slots = living.map(|slot| (ids[slot], slot as u32)).collect();
        let (inverse, walks) = (Vec::new(), Mutex::default());
        let mut index = Self { store, options, inverse, alive, slots, graph, walks };
        index.measure_rows();
        index
    }

    /// How the graph was built and is searched.
    pub fn options(&self) -> HnswOptions {
        self.options
    }

    /// Nodes of the graph that hold no item any more: removed or replaced.
    pub fn dead(&self) -> usize {
        self.alive.len() - self.slots.len()
    }

    fn space(&self) -> Space<'_> {
        Space {
            metric: self.store.metric,
            dimensions: self.store.dimensions,
            rows: self.store.rows.as_slice(),
            inverse: &self.inverse,
            kernel: Kernel::best(),
        }
    }

    /// Measures the rows that have not been.
    fn measure_rows(&mut self) {
        if self.store.metric == Metric::Cosine {
            let from = self.inverse.len();
            let rows = &self.store.rows.as_slice()[from * self.store.dimensions..];
            let inverse: Vec<f32> = rows.par_chunks(self.store.dimensions).map(inverse_length).collect();
            self.inverse.extend(inverse);
        }
    }

    /// Links the slots from `first` on, and returns those that are not linked because `ends` said to end.
    fn link_from(
        &mut self,
        first: usize,
        ends: impl Fn() -> bool,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Vec<u32> {
        let HnswOptions { m, ef_construction, seed, .. } = self.options;
        let mut graph = std::mem::take(&mut self.graph);
        graph.extend((first..self.alive.len()).map(|slot| build::level_of(slot as u32, m, seed)));
        let new = self.alive.len() - first;
        let choice = (first as u32, ef_construction.max(m), seed);
        let progress = &mut |done| progress(done, new);
        let unlinked = build::link(&mut graph, self.space(), choice, &self.walks, ends, progress);
        self.graph = graph;
        unlinked
    }

    /// Takes slots that are not linked out of the index.
    fn drop_unlinked(&mut self, unlinked: &[u32]) {
        let mut stays = vec![true; self.alive.len()];
        unlinked.iter().for_each(|&slot| stays[slot as usize] = false);
        let kept: Vec<u32> = (0..stays.len() as u32).filter(|&slot| stays[slot as usize]).collect();
        let slots: Vec<usize> = kept.iter().map(|&slot| slot as usize).collect();
        self.graph = self.graph.keep(&kept);
        self.store.keep(&slots);
        self.alive = slots.iter().map(|&slot| self.alive[slot]).collect();
        let ids = self.store.catalog.ids();
        let living = (0..ids.len()).filter(|&slot| self.alive[slot]);
        self.slots = living.map(|slot| (ids[slot], slot as u32)).collect();
        self.inverse.clear();
        self.measure_rows();
    }

    /// The lists of exact search over these slots.
    fn scan(&self, queries: MatrixView<'_>, k: usize, mut slots: Vec<u32>) -> Result<IdLists> {
        let Store { metric, dimensions, catalog, .. } = &self.store;
        let ids = catalog.ids();
        // Equal scores come in the order of rows: of ids.
        slots.sort_unstable_by_key(|&slot| ids[slot as usize]);
        let mut rows = Vec::with_capacity(slots.len() * dimensions);
        let all = self.store.view();
        slots.iter().for_each(|&slot| rows.extend_from_slice(all.row(slot as usize)));
        let rows = Matrix::new(slots.len(), *dimensions, rows)?;
        let found = search(queries, &rows, &SearchOptions { metric: *metric, ..SearchOptions::new(k) })?;
        Ok(self.store.named(&found, |row| slots[row as usize] as usize))
    }

    /// What a walk towards one query finds: more candidates than are wanted, with their scores.
    fn walk(&self, query: &[f32], k: usize, admits: &(impl Fn(u32) -> bool + Sync)) -> Vec<(u64, f32)> {
        let mut row = query.to_vec();
        if self.store.metric == Metric::Cosine {
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
        let scores = pair_scores(query, self.store.view(), &slots, self.store.metric);
        let ids = slots.iter().map(|&slot| self.store.catalog.ids()[slot as usize]);
        ids.zip(scores).collect()
    }

    /// Those of the candidates, the closest first, that may be among the best `k` once they are scored.
    ///
    /// For the cosine, closeness and score are sums of `d` products of rows of length 1, rounded in
    /// two ways: each is within `(d + 5) 2^-24` of the true cosine, so that they differ by at most
    /// `(d + 5) 2^-23`. The bound does not hold for rows so short that products underflow.
    fn contenders(&self, found: Vec<Near>, k: usize) -> Vec<u32> {
        let floor = match (self.store.metric, found.get(k - 1)) {
            (Metric::Cosine, Some(&last)) => {
                closeness_of(last) - 2.0 * (self.store.dimensions + 5) as f32 * f32::EPSILON
            }
            _ => f32::MIN,
        };
        let contends = |&near: &Near| {
            closeness_of(near) >= floor || self.inverse.get(node_of(near) as usize).is_some_and(|&i| i > 1e28)
        };
        found.into_iter().filter(contends).map(node_of).collect()
    }
}

impl LocalIndex for HnswIndex {
    const INDEX_KIND: IndexKind = Self::KIND;

    fn store(&self) -> &Store {
        &self.store
    }

    fn store_mut(&mut self) -> &mut Store {
        &mut self.store
    }

    fn count(&self) -> usize {
        self.slots.len()
    }

    fn slot_of(&self, id: u64) -> Option<usize> {
        self.slots.get(&id).map(|&slot| slot as usize)
    }

    fn is_item(&self, slot: usize) -> bool {
        self.alive[slot]
    }

    fn insert(&mut self, items: &Items, progress: &mut dyn FnMut(usize, usize)) {
        let first = self.alive.len();
        let rows = self.store.rows.owned();
        rows.reserve(items.len() * self.store.dimensions);
        prefer_large_pages(rows);
        // Where the columns of each slot are: in the slot, or in a row of the items.
        let mut places: Vec<usize> = (0..first).collect();
        let mut replaced = Vec::new();
        for row in 0..items.len() {
            let embedding = items.set().embeddings.row(row);
            let id = items.ids()[row];
            if let Some(&slot) = self.slots.get(&id) {
                if self.store.view().row(slot as usize) == embedding {
                    self.store.catalog.replace(slot as usize, items, row);
                    places[slot as usize] = first + row;
                    continue;
                }
                self.alive[slot as usize] = false;
                replaced.push((self.alive.len() as u32, slot));
            }
            self.slots.insert(id, self.alive.len() as u32);
            self.store.catalog.push(items, row);
            places.push(first + row);
            self.store.rows.owned().extend_from_slice(embedding);
            self.alive.push(true);
        }
        self.store.catalog.join_columns(items, first, &places);
        self.measure_rows();
        let unlinked = self.link_from(first, interrupt::is_raised, progress);
        if !unlinked.is_empty() {
            // What they replace stays.
            let gone: HashSet<u32> = unlinked.iter().copied().collect();
            for (new, old) in replaced {
                if gone.contains(&new) {
                    self.alive[old as usize] = true;
                }
            }
            self.drop_unlinked(&unlinked);
            interrupt::throw();
        }
    }

    fn delete(&mut self, ids: &[u64]) -> usize {
        let before = self.slots.len();
        for slot in ids.iter().filter_map(|id| self.slots.remove(id)) {
            self.alive[slot as usize] = false;
        }
        before - self.slots.len()
    }

    fn find(&self, queries: MatrixView<'_>, k: usize, filter: &ItemFilter) -> Result<IdLists> {
        let admission = self.store.catalog.admission(filter, &|slot| self.alive[slot])?;
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
                Ok(IdLists::from_candidates(k, self.store.metric, vec![vec![]; queries.rows()]))
            } else {
                self.scan(queries, k, all())
            };
        }
        let mut found: Vec<Vec<(u64, f32)>> = (0..queries.rows())
            .into_par_iter()
            .map(|query| {
                interrupt::point();
                self.walk(queries.row(query), k, &admits)
            })
            .collect();
        // A part of the graph that no walk reaches makes a list too short: then all are compared.
        for (query, list) in found.iter_mut().enumerate() {
            if list.len() < k {
                let row = MatrixView::new(1, self.store.dimensions, queries.row(query))?;
                let lists = self.scan(row, k, all())?;
                *list = lists.ids(0).iter().copied().zip(lists.scores(0).iter().copied()).collect();
            }
        }
        Ok(IdLists::from_candidates(k, self.store.metric, found))
    }

    fn find_all(&self, queries: MatrixView<'_>, k: usize) -> Result<IdLists> {
        self.scan(
            queries,
            k,
            (0..self.alive.len() as u32).filter(|&slot| self.alive[slot as usize]).collect(),
        )
    }

    fn parts(&self) -> Parts<'_> {
        let (slots, Graph { m, base, upper, levels, entry, .. }) = (self.alive.len(), &self.graph);
        let (base, upper) = (base.as_slice(), upper.as_slice());
        let options = serde_json::to_string(&self.options).expect("options are valid JSON");
        let entry = entry.map(|entry| ("entry", entry.to_string()));
        let alive = self.alive.iter().map(|&alive| u8::from(alive)).collect();
        Parts {
            notes: [("hnsw", options)].into_iter().chain(entry).collect(),
            tensors: vec![
                ("alive", vec![slots], TensorValues::U8(alive)),
                ("levels", vec![slots], TensorValues::U8(levels.into())),
                ("links", vec![slots, 2 * m], TensorValues::U32(base)),
                ("upper_links", vec![upper.len() / m, *m], TensorValues::U32(upper)),
            ],
        }
    }

    fn restore(store: Store, file: &Reader) -> Result<Self> {
        let slots = store.catalog.len();
        let options: HnswOptions = serde_json::from_str(file.note("hnsw")?)
            .map_err(|error| file.refuse(&format!("its options are not readable: {error}")))?;
        let alive: Vec<bool> =
            file.bytes("alive", Dtype::U8, &[slots])?.iter().map(|&byte| byte != 0).collect();
        let levels = file.bytes("levels", Dtype::U8, &[slots])?.to_vec();
        let (shape, base) = file.numbers("links", Dtype::U32, u32::from_le_bytes)?;
        let (_, upper) = file.numbers("upper_links", Dtype::U32, u32::from_le_bytes)?;
        if options.m < 2 || shape != [slots, options.m.saturating_mul(2)] {
            return Err(file.refuse("its links are not twice `m` per slot"));
        }
        let entry = file.optional_note("entry").map(str::parse).transpose();
        let entry = entry.map_err(|_| file.refuse("its entry is no number"))?;
        let graph = Graph::from_parts(options.m, levels, base, upper, entry);
        let graph = graph.map_err(|problem: String| file.refuse(&problem))?;
        let ids = store.catalog.ids().iter().zip(&alive);
        let mut living: Vec<u64> = ids.filter(|&(_, &alive)| alive).map(|(&id, _)| id).collect();
        living.sort_unstable();
        if !living.is_sorted_by(|a, b| a < b) {
            return Err(file.refuse_ids());
        }
        options.check()?;
        Ok(Self::from_parts(store, options, alive, graph))
    }

    fn settings(&self) -> Vec<(&'static str, u64)> {
        let HnswOptions { m, ef_construction, ef, seed } = self.options;
        vec![("m", m as u64), ("ef_construction", ef_construction as u64), ("ef", ef as u64), ("seed", seed)]
    }

    fn dead_slots(&self) -> Option<usize> {
        Some(self.dead())
    }

    fn keep_candidates(&mut self, ef: usize) -> Result<()> {
        let options = HnswOptions { ef, ..self.options };
        options.check()?;
        self.options = options;
        Ok(())
    }

    fn rebuild(&mut self, progress: &mut dyn FnMut(usize, usize)) {
        let kept: Vec<usize> = (0..self.alive.len()).filter(|&slot| self.alive[slot]).collect();
        self.store.keep(&kept);
        self.store.changed = true;
        self.alive = vec![true; kept.len()];
        self.slots = self.store.catalog.ids().iter().copied().zip(0..).collect();
        self.inverse.clear();
        self.measure_rows();
        self.graph = Graph::new(self.options.m);
        self.link_from(0, || false, progress);
    }
}
