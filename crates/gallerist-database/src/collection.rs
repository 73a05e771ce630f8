//! What a database is asked for. The rest is the same for all of them.

use gallerist_retrieval::columns::ColumnKind;
use gallerist_retrieval::condition::Condition;
use gallerist_retrieval::index::{Among, Item, ItemFilter, Items, Origin};
use gallerist_retrieval::{EmbeddingSet, MatrixView};

use crate::client::Client;
use crate::layout::CollectionLayout;
use crate::system::System;
use crate::{Error, Result};

/// A collection of a database, for a [`DatabaseIndex`](crate::DatabaseIndex).
///
/// Every method returns [`Error::Unreachable`] and [`Error::Refused`], and [`Error::Answer`] for an answer that does not fit
/// the question: the number and the size of what an answer has are checked before memory is taken for it.
pub trait Collection: Sized + Send + Sync {
    /// The database.
    const SYSTEM: &'static System;
    /// The most dimensions of an embedding.
    const MOST_DIMENSIONS: usize;
    /// The most results of one query.
    const MOST_RESULTS: usize;
    /// A set of items, as the server reads it.
    type Filter: Clone;

    /// Asks the server for its version, with [`Client::greet`].
    ///
    /// # Errors
    /// As [`Client::greet`].
    fn greet(client: &Client) -> Result<()>;

    /// Makes the collection if there is none of this name. Two programs may do that at the same time.
    ///
    /// # Errors
    /// See the trait.
    fn create(client: &Client, layout: &CollectionLayout) -> Result<()>;

    /// Opens the collection.
    ///
    /// # Errors
    /// [`Error::Missing`], and [`Error::Foreign`] for a collection that is not laid out as a gallery.
    fn open(client: Client) -> Result<Self>;

    /// Removes the collection with everything in it.
    ///
    /// # Errors
    /// See the trait.
    fn drop_collection(&self) -> Result<()>;

    /// The connection.
    fn client(&self) -> &Client;

    /// Dimensions, metric and kind.
    fn layout(&self) -> &CollectionLayout;

    /// Whether the collection keeps the sources of items.
    fn keeps_sources(&self) -> bool {
        true
    }

    /// Items that the server has not put into its graph, and will put into it.
    ///
    /// # Errors
    /// See the trait.
    fn rows_to_index(&self) -> Result<usize>;

    /// Where the embeddings come from.
    ///
    /// # Errors
    /// See the trait.
    fn origin(&self) -> Result<Origin>;

    /// Notes the names and kinds of the columns, and where the embeddings come from if `is_first`, before the first of these
    /// items is sent.
    ///
    /// # Errors
    /// See the trait.
    fn note(&self, items: &Items, is_first: bool) -> Result<()>;

    /// Refuses items that the collection cannot keep.
    ///
    /// # Errors
    /// [`Error::Text`].
    fn check(&self, items: &Items) -> Result<()>;

    /// Adds or replaces the rows named, and waits until a search finds them.
    ///
    /// # Errors
    /// See the trait.
    fn send(&self, items: &Items, rows: &[usize], digests: &[i64]) -> Result<()>;

    /// Removes items that are there, and waits until no search finds them.
    ///
    /// # Errors
    /// See the trait.
    fn delete(&self, ids: &[u64]) -> Result<()>;

    /// Makes what was sent durable.
    ///
    /// # Errors
    /// See the trait.
    fn flush(&self) -> Result<()>;

    /// The number of items.
    ///
    /// # Errors
    /// See the trait.
    fn count(&self) -> Result<usize>;

    /// Whether there is no item.
    ///
    /// # Errors
    /// See the trait.
    fn is_empty(&self) -> Result<bool>;

    /// The items with these ids, in any order; those that are not there are left out.
    ///
    /// # Errors
    /// See the trait.
    fn items(&self, ids: &[u64]) -> Result<Vec<Item>>;

    /// Which of these ids are there, in any order.
    ///
    /// # Errors
    /// See the trait.
    fn which(&self, ids: &[u64]) -> Result<Vec<u64>>;

    /// The digests of the items with these ids, in any order; paths and sources too `with_origin`.
    ///
    /// # Errors
    /// See the trait.
    fn stored(&self, ids: &[u64], with_origin: bool) -> Result<Vec<Stored>>;

    /// Passes the ids and embeddings of the items with these ids to `take`.
    ///
    /// # Errors
    /// See the trait.
    fn embeddings(&self, ids: &[u64], take: &mut dyn FnMut(u64, &[f32])) -> Result<()>;

    /// Id and label of the items that a filter admits, in any order.
    ///
    /// # Errors
    /// See the trait.
    fn labels(&self, filter: &Self::Filter) -> Result<Vec<(u64, Option<String>)>>;

    /// The ids of all items, and their labels, paths, cameras and columns; without embeddings.
    ///
    /// # Errors
    /// See the trait.
    fn table(&self) -> Result<(Vec<u64>, EmbeddingSet)>;

    /// Names and kinds of the further columns.
    ///
    /// # Errors
    /// See the trait.
    fn columns(&self) -> Result<Vec<(String, ColumnKind)>>;

    /// The filter that admits what `filter` admits, its condition on columns aside.
    fn filter(filter: &ItemFilter) -> Self::Filter;

    /// The filter that is equal to a condition, if the server has one.
    ///
    /// # Errors
    /// See the trait.
    fn condition(&self, condition: &Condition) -> Result<Option<Self::Filter>>;

    /// The filter that admits these ids, or all others.
    fn among(ids: &Among<u64>) -> Self::Filter;

    /// The filter that admits what both admit.
    fn both(one: Self::Filter, other: Self::Filter) -> Self::Filter;

    /// `limit` candidates for each of the rows of `queries` named; `ef` of them are looked at in a graph.
    ///
    /// # Errors
    /// See the trait.
    fn candidates(
        &self,
        queries: MatrixView<'_>,
        rows: &[usize],
        limit: usize,
        ef: usize,
        filter: &Self::Filter,
    ) -> Result<Vec<Candidates>>;
}

/// What is known of an item without its embedding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its id.
    pub id: u64,
    /// Its [digest](crate::row::digest).
    pub digest: i64,
    /// Its path.
    pub path: Option<String>,
    /// The name of its source.
    pub source: Option<String>,
}

/// What a server proposes for one query.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidates {
    /// The best first.
    pub ids: Vec<u64>,
    /// The server's score of the last: a similarity, or for the Euclidean metric the squared distance.
    pub last: f64,
    /// There are no others.
    pub all: bool,
}

/// A client of the server, which was reached and has the version that is needed.
pub(crate) fn greeted<C: Collection>(client: Client) -> Result<Client> {
    let system = client.address().system();
    if system != C::SYSTEM {
        let (given, problem) = (client.address().to_string(), "it names another database");
        return Err(Error::Address { system: Some(C::SYSTEM), given, problem });
    }
    C::greet(&client)?;
    Ok(client)
}
