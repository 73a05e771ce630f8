//! Information about an index: its kind, its content and the origin of the content.

use serde::{Serialize, Serializer};

use super::items::Items;
use super::origin::Origin;
use crate::search::Metric;
use crate::{Error, MatrixView, Result, fingerprint};

/// How an index finds the nearest items.
///
/// The kinds of this crate are [`ExactIndex::KIND`](super::ExactIndex::KIND) and
/// [`HnswIndex::KIND`](super::HnswIndex::KIND); [`index_kinds`](super::index_kinds) lists them. An
/// [`Index`](super::Index) of another crate may have a kind of its own.
#[derive(Clone, Copy, Debug)]
pub struct IndexKind {
    /// The name in files, JSON and options; it identifies the kind.
    pub name: &'static str,
    /// A description, for the help of an option.
    pub help: &'static str,
    /// What messages call an index of this kind, with its article.
    pub noun: &'static str,
    /// Whether a search compares the query with every item.
    pub is_exact: bool,
}

impl PartialEq for IndexKind {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for IndexKind {}

impl Serialize for IndexKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> std::result::Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name)
    }
}

/// What an index contains.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct IndexInfo {
    /// How it finds the nearest items.
    pub kind: IndexKind,
    /// Where it is stored: `embedded`, or the name of a database.
    pub place: &'static str,
    /// How rows are compared.
    pub metric: Metric,
    /// Values per embedding.
    pub dimensions: usize,
    /// Items that a search can find.
    pub count: usize,
    /// The fingerprint of the model that made the embeddings, where it is known.
    pub model: Option<String>,
    /// The metric for which the rows of the items were made; `None` if there are no items yet, and for a collection of a
    /// database that does not say where its items come from.
    #[serde(skip)]
    pub metric_of_rows: Option<Metric>,
    /// The options of its kind with their values.
    #[serde(skip)]
    pub settings: Vec<(&'static str, u64)>,
    /// Entries of removed and replaced items that searches still pass through; `None` for a kind
    /// that keeps none.
    #[serde(skip)]
    pub dead: Option<usize>,
}

impl IndexInfo {
    /// Refuses items that do not belong into this index.
    ///
    /// Rows that declare another metric than the rows of the index have other lengths: 1 for the
    /// cosine, as a network gives them for the Euclidean distance. Items that declare no metric, or
    /// no model, are taken by any index: that is how two models are mixed on purpose. Rows of one model that are scaled to
    /// length 1, and rows that are [not](crate::fingerprint), are only mixed under the cosine.
    ///
    /// # Errors
    /// [`Error::Metrics`], [`Error::ItemDimensions`], [`Error::Models`], [`Error::NonFinite`] and
    /// [`Error::TooLong`], in this order.
    pub fn check_items(&self, items: &Items) -> Result<()> {
        let set = items.set();
        if let (Some(first), Some(other)) = (self.metric_of_rows, set.metric)
            && first != other
        {
            return Err(Error::Metrics { first, other });
        }
        if set.embeddings.cols() != self.dimensions {
            return Err(Error::ItemDimensions { items: set.embeddings.cols(), index: self.dimensions });
        }
        if let (Some(index), Some(items)) = (&self.model, &set.model)
            && !fingerprint::comparable(index, items, self.metric)
        {
            return Err(Error::Models { first: Some(index.clone()), other: Some(items.clone()) });
        }
        self.metric.check(set.embeddings.view(), 0..items.len(), "items")
    }

    /// Refuses queries that this index cannot rank.
    ///
    /// # Errors
    /// [`Error::Option`] for `k` = 0, [`Error::Dimensions`], [`Error::NonFinite`], [`Error::TooLong`]
    /// and [`Error::TooManyRows`].
    pub fn check_queries(&self, queries: MatrixView<'_>, k: usize) -> Result<()> {
        check_queries(queries, k, self.metric, self.dimensions)
    }
}

/// [`IndexInfo::check_queries`] for an index of this metric and dimension.
///
/// # Errors
/// As [`IndexInfo::check_queries`].
pub fn check_queries(queries: MatrixView<'_>, k: usize, metric: Metric, dimensions: usize) -> Result<()> {
    crate::search::check_query(queries, dimensions, k)?;
    crate::search::check_count(queries.rows(), "queries")?;
    metric.check(queries, 0..queries.rows(), "queries")
}

/// Refuses embeddings of no values.
pub(super) fn check_dimensions(dimensions: usize) -> Result<()> {
    match dimensions {
        0 => Err(Error::Option { option: "dimensions", wanted: "at least 1", found: "0".to_owned() }),
        _ => Ok(()),
    }
}

impl Origin {
    /// Takes note of items that are added; `first` when no others remain.
    pub(super) fn add(&mut self, items: &Items, first: bool) {
        if items.is_empty() {
            return;
        }
        let new = items.origin();
        let places = items.set().sources.as_ref().map_or(0, |sources| sources.list().len());
        match new.source {
            Some(source) if first => self.source = Some(source),
            Some(source) => drop(self.source.take_if(|known| *known != source)),
            // Items of several places have none in common.
            None if places > 1 => self.source = None,
            None => {}
        }
        if first && new.metric.is_some() {
            self.metric = new.metric;
        }
        let differs = match (&self.model, &new.model) {
            (Some(known), Some(new)) => fingerprint::split(known).0 != fingerprint::split(new).0,
            (None, None) => false,
            _ => true,
        };
        if first && (items.is_forced() && differs) {
            // All items of the old model are gone.
            (self.model, self.run, self.threshold) = (new.model, new.run, new.threshold);
        } else if items.is_forced() && differs {
            (self.model, self.run, self.threshold) = (None, None, None);
        } else if first || !differs {
            if first && new.run.is_some() || self.run.is_none() {
                self.run = new.run;
            }
            // Items of an unknown network may be of another one than those that the threshold was calibrated on.
            if first || new.model.is_some() {
                self.threshold = self.threshold.take().or(new.threshold);
            }
            self.model = self.model.take().or(new.model);
        }
    }
}
