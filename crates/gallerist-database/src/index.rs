//! A collection as an index.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use gallerist_retrieval as retrieval;
use gallerist_retrieval::columns::ColumnKind;
use gallerist_retrieval::index::{
    Among, IdLists, Index, IndexInfo, Item, ItemFilter, Items, Origin, check_queries,
};
use gallerist_retrieval::{Error as Fault, MatrixView};

use crate::client::{Client, ConnectOptions};
use crate::collection::{Collection, greeted};
use crate::layout::CollectionLayout;
use crate::{Address, Error, Result, ranking, row};

/// A gallery in a collection of a database.
///
/// A search reflects the changes by this value, and everything that was acknowledged before it was
/// opened. Scores and order of its lists are those of embedded exact search.
pub struct DatabaseIndex<C> {
    pub(crate) collection: C,
    /// Candidates that a search of a graph looks at.
    ef: usize,
}

/// Candidates that a search of a graph looks at unless told otherwise.
const DEFAULT_EF: usize = 128;
/// The most candidates that a search of a graph looks at.
const MOST_EF: usize = 32_768;

impl<C: Collection> DatabaseIndex<C> {
    /// Opens the gallery at `address`.
    ///
    /// Loading a large collection into the memory of the server may take minutes; it is waited for
    /// as long as [`ConnectOptions::patience`] allows.
    ///
    /// # Errors
    /// [`Error::Address`] for the address of another database, [`Error::Unreachable`], [`Error::Version`],
    /// [`Error::Missing`], [`Error::Foreign`] for a collection that is not laid out as a gallery, and [`Error::Refused`].
    pub fn open(address: &Address, options: ConnectOptions) -> Result<Self> {
        Self::load(greeted::<C>(Client::new(address, options))?)
    }

    /// Opens the gallery at `address`, or makes an empty one where there is no such collection.
    ///
    /// # Errors
    /// As [`open`](Self::open), and [`Error::Differs`] where the collection that is there has
    /// another layout.
    pub fn create(address: &Address, layout: &CollectionLayout, options: ConnectOptions) -> Result<Self> {
        if layout.dimensions == 0 || layout.dimensions > C::MOST_DIMENSIONS {
            let (system, most) = (C::SYSTEM, C::MOST_DIMENSIONS);
            return Err(Error::Dimensions { system, most, found: layout.dimensions });
        }
        let client = greeted::<C>(Client::new(address, options))?;
        C::create(&client, layout)?;
        let index = Self::load(client)?;
        if index.layout() != layout {
            let client = index.collection.client();
            return Err(Error::Differs {
                system: C::SYSTEM,
                server: client.server().to_owned(),
                collection: client.collection(),
                wanted: layout.to_string(),
                found: index.layout().to_string(),
            });
        }
        Ok(index)
    }

    pub(crate) fn load(client: Client) -> Result<Self> {
        Ok(Self { collection: C::open(client)?, ef: DEFAULT_EF })
    }

    /// Removes the collection with everything in it.
    ///
    /// # Errors
    /// [`Error::Unreachable`] and [`Error::Refused`].
    pub fn drop_collection(self) -> Result<()> {
        self.collection.drop_collection()
    }

    /// The collection.
    pub fn collection(&self) -> &C {
        &self.collection
    }

    /// Dimensions, metric and kind.
    pub fn layout(&self) -> &CollectionLayout {
        self.collection.layout()
    }

    /// Where the collection is.
    pub fn address(&self) -> &Address {
        self.collection.client().address()
    }

    /// Items that the server has not put into its graph yet. They are found all the same, by comparison
    /// with every one of them.
    ///
    /// # Errors
    /// [`Error::Unreachable`] and [`Error::Refused`].
    pub fn rows_to_index(&self) -> Result<usize> {
        self.collection.rows_to_index()
    }

    /// Waits until the server has put all items into its graph.
    ///
    /// # Errors
    /// As [`rows_to_index`](Self::rows_to_index), and [`Error::Unreachable`] when their number has not fallen for
    /// [`ConnectOptions::patience`].
    pub fn wait_for_index(&self) -> Result<()> {
        self.collection.client().wait_for_none(|| self.rows_to_index(), "not all items are indexed yet")
    }

    /// What the collection says of itself, with this number of items.
    fn described(&self, count: usize) -> Result<IndexInfo> {
        let origin = self.collection.origin()?;
        let layout = self.layout();
        Ok(IndexInfo {
            kind: layout.search.kind(),
            place: C::SYSTEM.name,
            metric: layout.metric,
            dimensions: layout.dimensions,
            count,
            metric_of_rows: (origin != Origin::default()).then(|| origin.metric_of_rows()),
            model: origin.model,
            settings: Vec::new(),
            dead: None,
        })
    }

    /// The items as the collection keeps them: one without sources has the ids of paths.
    pub(crate) fn without_lost_sources<'a>(&self, items: &'a Items) -> Result<Cow<'a, Items>> {
        if self.collection.keeps_sources() || items.set().sources.is_none() {
            return Ok(Cow::Borrowed(items));
        }
        Ok(Cow::Owned(items.without_sources()?))
    }

    /// Refuses items that do not belong into this gallery.
    pub(crate) fn check(&self, items: &Items) -> Result<IndexInfo> {
        let info = self.described(0)?;
        info.check_items(items)?;
        self.collection.check(items)?;
        Ok(info)
    }

    /// Refuses items that do not belong into this gallery, and notes where the first items come from.
    pub(crate) fn admit(&self, items: &Items) -> Result<()> {
        let info = self.check(items)?;
        if items.is_empty() {
            return Ok(());
        }
        // What items without a model declare is noted for an empty collection only: items that are there without an origin may
        // be of another metric.
        let origin = Origin { source: None, ..Origin::from(items.set()) };
        let is_first = info.metric_of_rows.is_none()
            && (origin.model.is_some() || (origin != Origin::default() && self.collection.is_empty()?));
        self.collection.note(items, is_first)?;
        // Another program may have noted another network since.
        self.check(items).map(drop)
    }

    /// Sends these rows.
    pub(crate) fn send(&self, items: &Items, rows: &[usize]) -> Result<()> {
        let digests: Vec<i64> = rows.iter().map(|&row| row::digest(items.set(), row)).collect();
        self.collection.send(items, rows, &digests)
    }

    /// The server's filter that admits what `filter` admits.
    ///
    /// A condition for which the server has no equal filter is evaluated here: the texts and columns of all
    /// items are requested.
    fn filter(&self, filter: &ItemFilter) -> Result<C::Filter> {
        let plain = C::filter(filter);
        let Some(condition) = &filter.condition else { return Ok(plain) };
        if let Some(condition) = self.collection.condition(condition)? {
            return Ok(C::both(plain, condition));
        }
        let (ids, set) = self.collection.table()?;
        let wanted: Vec<u64> = condition.rows(&set)?.into_iter().map(|row| ids[row]).collect();
        Ok(C::both(plain, C::among(&shorter(wanted, &ids))))
    }

    fn read_labels(&self, filter: &ItemFilter) -> Result<Vec<(u64, Option<String>)>> {
        let mut found = self.collection.labels(&self.filter(filter)?)?;
        found.sort_unstable_by_key(|&(id, _)| id);
        Ok(found)
    }
}

/// The shorter of two lists: the wanted ids, or all others. Items that are added meanwhile are in none.
fn shorter(wanted: Vec<u64>, all: &[u64]) -> Among<u64> {
    if wanted.len() <= all.len() / 2 {
        return Among::In(wanted);
    }
    let wanted: HashSet<u64> = wanted.into_iter().collect();
    Among::NotIn(all.iter().filter(|id| !wanted.contains(id)).copied().collect())
}

impl<C: Collection> Index for DatabaseIndex<C> {
    fn info(&self) -> retrieval::Result<IndexInfo> {
        Ok(self.described(self.collection.count()?)?)
    }

    /// Where the embeddings come from, as the collection says now.
    fn origin(&self) -> retrieval::Result<Origin> {
        Ok(self.collection.origin()?)
    }

    fn columns(&self) -> retrieval::Result<Vec<(String, ColumnKind)>> {
        Ok(self.collection.columns()?)
    }

    fn check_filter(&self, filter: &ItemFilter) -> retrieval::Result<()> {
        let Some(condition) = &filter.condition else { return Ok(()) };
        if self.collection.condition(condition)?.is_none() {
            condition.rows(&self.collection.table()?.1)?;
        }
        Ok(())
    }

    fn labels(&self, filter: &ItemFilter) -> retrieval::Result<Vec<(u64, Option<String>)>> {
        Ok(self.read_labels(filter)?)
    }

    /// Sends the items in batches. When a call fails, the batches before it are in: the same call
    /// again completes them.
    fn upsert(&mut self, items: &Items) -> retrieval::Result<()> {
        let items = &*self.without_lost_sources(items)?;
        self.admit(items)?;
        let rows: Vec<usize> = (0..items.len()).collect();
        for rows in rows.chunks(self.layout().rows_per_call()) {
            self.send(items, rows)?;
        }
        Ok(())
    }

    fn remove(&mut self, ids: &[u64]) -> retrieval::Result<usize> {
        let mut wanted = ids.to_vec();
        wanted.sort_unstable();
        wanted.dedup();
        let there = self.collection.which(&wanted)?;
        for ids in there.chunks(self.layout().rows_per_call()) {
            self.collection.delete(ids)?;
        }
        Ok(there.len())
    }

    fn search(&self, queries: MatrixView<'_>, k: usize, filter: &ItemFilter) -> retrieval::Result<IdLists> {
        check_queries(queries, k, self.layout().metric, self.layout().dimensions)?;
        let k = ranking::within_limit(&self.collection, k)?;
        let filter = self.filter(filter)?;
        Ok(ranking::ranked(&self.collection, queries, k, self.ef, &filter)?)
    }

    fn get(&self, ids: &[u64]) -> retrieval::Result<Vec<Option<Item>>> {
        let found = self.collection.items(ids)?;
        let found: HashMap<u64, Item> = found.into_iter().map(|item| (item.id, item)).collect();
        Ok(ids.iter().map(|id| found.get(id).cloned()).collect())
    }

    /// At least as many candidates are kept as a search returns. 128 by default, at most 32,768.
    fn set_ef(&mut self, ef: usize) -> retrieval::Result<()> {
        if self.layout().search.kind().is_exact {
            return Err(Fault::Unsupported { what: "`ef`", index: "an exact collection".to_owned() });
        }
        self.ef = ef.clamp(1, MOST_EF);
        Ok(())
    }

    fn flush(&mut self) -> retrieval::Result<()> {
        Ok(self.collection.flush()?)
    }
}
