//! Galleries that live: items come and go, and lists name them by stable ids.
//!
//! [`Index`] is the one door to exact search, to approximate search and to a vector database.
//! Whatever stands behind it keeps the same promises: an id names one item; a list is ordered by
//! score, then by the lower id; a score is what exact search computes, up to rounding; a row that
//! is not finite is refused by name, never ranked.
//!
//! ```
//! use gallerist_retrieval::index::{ExactIndex, Index, ItemFilter, Items};
//! use gallerist_retrieval::{EmbeddingSet, Matrix, search::Metric};
//!
//! let rows = Matrix::new(3, 2, vec![1.0, 0.0, 0.8, 0.6, 0.0, 1.0])?;
//! let labels = ["heron", "wren", "wren"].map(String::from).to_vec();
//! let set = EmbeddingSet { labels: Some(labels), ..rows.into() };
//!
//! let mut index = ExactIndex::new(2, Metric::Cosine)?;
//! index.upsert(&Items::new(vec![10, 20, 30], set)?)?;
//! let query = Matrix::new(1, 2, vec![1.0, 0.1])?;
//! let lists = index.search(query.view(), 2, &ItemFilter::default())?;
//! assert_eq!(lists.ids(0), [10, 20]);
//! let wrens = ItemFilter::default().label_in(["wren"]);
//! assert_eq!(index.search(query.view(), 2, &wrens)?.ids(0), [20, 30]);
//! # Ok::<(), gallerist_retrieval::Error>(())
//! ```

mod addition;
mod catalog;
mod embedded;
mod exact;
mod file;
mod filter;
mod hnsw;
mod items;
mod lists;
mod values;

use serde::Serialize;

use crate::search::Metric;
use crate::{EmbeddingSet, Error, MatrixView, Result};

pub use addition::{Added, Addition, Replaced};
pub use embedded::EmbeddedIndex;
pub use exact::ExactIndex;
pub use file::is_index;
pub use filter::{Among, ItemFilter};
pub use hnsw::{HnswIndex, HnswOptions};
pub use items::{Item, ItemName, Items, MAX_ID, item_id, stable_id};
pub use lists::IdLists;

/// A gallery whose items are named by ids: search, add, replace, remove.
///
/// What is added or removed is seen by the next search. It outlives the process once
/// [`flush`](Self::flush) has returned.
pub trait Index: Send + Sync {
    /// What the index holds.
    ///
    /// # Errors
    /// Only of a place that has to be asked over a network.
    fn info(&self) -> Result<IndexInfo>;

    /// Adds items; an item whose id is there already takes its place.
    ///
    /// The first items that name a model give the index their [model](IndexInfo::model).
    ///
    /// # Errors
    /// What [`check_items`] and [`Origin::check_metric`] refuse; then nothing has changed. [`Error::ReadOnly`] for
    /// an index that cannot be changed.
    fn upsert(&mut self, items: &Items) -> Result<()>;

    /// Adds items that are not there yet. Items that are there unchanged are left as they are; one
    /// that differs from the item of that id is refused, unless `replace`.
    ///
    /// ```
    /// use gallerist_retrieval::index::{ExactIndex, Index, Items};
    /// use gallerist_retrieval::{Matrix, search::Metric};
    ///
    /// let item = |value| Items::new(vec![7], Matrix::new(1, 1, vec![value])?.into());
    /// let mut index = ExactIndex::new(1, Metric::Euclidean)?;
    /// index.add(&item(0.5)?, false)?;
    /// assert_eq!(index.add(&item(0.5)?, false)?.unchanged, 1);
    /// assert!(index.add(&item(0.6)?, false).is_err());
    /// assert_eq!(index.add(&item(0.6)?, true)?.replaced, 1);
    /// # Ok::<(), gallerist_retrieval::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Replaces`], and as [`upsert`](Self::upsert); then nothing has changed.
    fn add(&mut self, items: &Items, replace: bool) -> Result<Added> {
        let addition = Addition::of(self, items)?;
        if !replace {
            addition.check(items)?;
        }
        let (gone, written) = addition.changes(items);
        if !gone.is_empty() {
            self.remove(&gone)?;
        }
        if !written.is_empty() {
            self.upsert(&written)?;
        }
        Ok(addition.added())
    }

    /// Removes the items with these ids, and says how many there were. Ids that name no item are
    /// passed over.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] for an index that cannot be changed.
    fn remove(&mut self, ids: &[u64]) -> Result<usize>;

    /// For each row of `queries` the best `k` items that `filter` admits. A list is shorter than
    /// `k` where there are fewer.
    ///
    /// # Errors
    /// What [`check_queries`] refuses, and [`Error::Empty`] for an index without items.
    fn search(&self, queries: MatrixView<'_>, k: usize, filter: &ItemFilter) -> Result<IdLists>;

    /// The items with these ids, in that order; `None` for an id that names no item.
    ///
    /// # Errors
    /// Only of a place that has to be asked over a network.
    fn get(&self, ids: &[u64]) -> Result<Vec<Option<Item>>>;

    /// Makes all that was acknowledged so far durable. An index in memory has nothing to do.
    ///
    /// # Errors
    /// [`Error::Io`] and those of a place that has to be asked over a network.
    fn flush(&mut self) -> Result<()>;
}

/// How an index finds the nearest items.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum IndexKind {
    /// By comparing the query with every item.
    Exact,
    /// By walking a graph of neighbours (Malkov and Yashunin, 2018): nearly all of the nearest
    /// items, at a small part of the comparisons.
    Hnsw,
}

/// What an index holds.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IndexInfo {
    /// How it finds the nearest items.
    pub kind: IndexKind,
    /// Where it lives: `embedded`, or the name of a database.
    pub place: &'static str,
    /// How rows are compared.
    pub metric: Metric,
    /// Values per embedding.
    pub dimensions: usize,
    /// Items that a search may find.
    pub count: usize,
    /// The fingerprint of the model that made the embeddings, where it is known.
    pub model: Option<String>,
}

/// Where the embeddings of an index come from.
///
/// The first items that know it say it. Items that do not know it change nothing; nor do items of
/// another run, whose model [`check_items`] keeps the same. Where items of another place are added,
/// there is no one place any more: then each item's own [source](Item::source) says it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Origin {
    /// The fingerprint of the model that made the embeddings.
    pub model: Option<String>,
    /// Where the images were read from.
    pub source: Option<String>,
    /// The run directory of the model, where it was at the time.
    pub run: Option<String>,
    /// How the model's run compares its embeddings, which also says how long the rows are: length 1 for the cosine,
    /// as the network gives them for the Euclidean distance. `None` in indices made before files named it.
    pub metric: Option<Metric>,
}

impl From<&EmbeddingSet> for Origin {
    fn from(set: &EmbeddingSet) -> Self {
        Self {
            model: set.model.clone(),
            source: set.source.clone(),
            run: set.run.clone(),
            metric: set.metric,
        }
    }
}

impl Origin {
    /// Refuses items whose file declares another metric than that of the items before: rows of length 1 and rows as
    /// a network gives them do not mix. Items that declare none are taken.
    ///
    /// # Errors
    /// [`Error::Metrics`].
    pub fn check_metric(&self, items: &Items, empty: bool) -> Result<()> {
        // Files that name no metric have rows of length 1.
        let known = self.metric.unwrap_or_default();
        match items.set().metric {
            Some(other) if !empty && other != known => Err(Error::Metrics { first: known, other }),
            _ => Ok(()),
        }
    }

    /// Takes note of items that are added; `first` when there are no others.
    fn add(&mut self, items: &Items, first: bool) {
        if items.is_empty() {
            return;
        }
        let set = items.set();
        let places = set.sources.as_ref().map_or(0, |sources| sources.list().len());
        match &set.source {
            Some(source) if first => self.source = Some(source.clone()),
            Some(source) => drop(self.source.take_if(|known| known != source)),
            // Items of several places have none in common.
            None if places > 1 => self.source = None,
            None => {}
        }
        if first && set.run.is_some() || self.run.is_none() {
            self.run.clone_from(&set.run);
        }
        if first && set.metric.is_some() {
            self.metric = set.metric;
        }
        if self.model.is_none() {
            self.model.clone_from(&set.model);
        }
    }
}

/// Refuses embeddings of no values.
fn check_dimensions(dimensions: usize) -> Result<()> {
    match dimensions {
        0 => Err(Error::Option { option: "dimensions", wanted: "at least 1", found: "0".to_owned() }),
        _ => Ok(()),
    }
}

/// Refuses queries that no index of this metric and dimension can rank.
///
/// # Errors
/// [`Error::Option`] for `k` = 0, [`Error::Dimensions`], [`Error::NonFinite`], [`Error::TooLong`]
/// and [`Error::TooManyRows`].
pub fn check_queries(queries: MatrixView<'_>, k: usize, metric: Metric, dimensions: usize) -> Result<()> {
    crate::search::check_query(queries, dimensions, k)?;
    crate::search::check_count(queries.rows(), "queries")?;
    metric.check(queries, 0..queries.rows(), "queries")
}

/// Refuses items that do not belong into an index of this metric, dimension and model.
///
/// Items that name no model are taken by any index: that is how two models are mixed on purpose.
///
/// # Errors
/// [`Error::ItemDimensions`], [`Error::NonFinite`], [`Error::TooLong`] and [`Error::Models`].
pub fn check_items(items: &Items, metric: Metric, dimensions: usize, model: Option<&str>) -> Result<()> {
    let set = items.set();
    if set.embeddings.cols() != dimensions {
        return Err(Error::ItemDimensions { items: set.embeddings.cols(), index: dimensions });
    }
    if let (Some(index), Some(items)) = (model, &set.model)
        && index != items
    {
        return Err(Error::Models { first: Some(index.to_owned()), other: Some(items.clone()) });
    }
    metric.check(set.embeddings.view(), 0..items.len(), "items")
}
