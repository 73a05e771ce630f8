//! A gallery in the vector database [Qdrant](https://qdrant.tech), with the same interface as an
//! embedded one: [`QdrantIndex`] is an [`Index`](gallerist_retrieval::index::Index).
//!
//! Scores and order of its lists are those of embedded exact search; with a collection that is
//! searched exactly ([`Search::Flat`]) so are the lists. Qdrant's gRPC protocol is spoken, in which an embedding has 4 bytes
//! a value and keeps its bits. `docs/qdrant.md` says what was tested.
//!
//! ```no_run
//! use gallerist_qdrant::{CollectionLayout, ConnectOptions, QdrantIndex, Search};
//! use gallerist_retrieval::index::{Index, ItemFilter, Items};
//! use gallerist_retrieval::{EmbeddingSet, search::Metric};
//!
//! let set = EmbeddingSet::load("gallery.safetensors")?;
//! let address = "qdrant://localhost:6334/birds".parse()?;
//! let layout = CollectionLayout { dimensions: set.embeddings.cols(), metric: Metric::Cosine, search: Search::Flat };
//! let mut index = QdrantIndex::create(&address, &layout, ConnectOptions::default())?;
//! index.push(&Items::from_set(set)?, false, &mut |done| eprintln!("{}", done.items))?;
//!
//! let queries = EmbeddingSet::load("queries.safetensors")?.embeddings;
//! let lists = index.search(queries.view(), 10, &ItemFilter::default().label_not_in(["heron"]))?;
//! println!("{:?}", lists.ids(0));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod collection;
mod columns;
mod condition;
mod filter;
mod layout;
mod payload;
#[cfg(test)]
mod scripted;
mod wire;

pub use collection::QdrantCollection;
pub use filter::QdrantFilter;
pub use gallerist_database::{
    Address, CollectionLayout, ConnectOptions, Error, OnWait, Pushed, Result, Search,
};

/// A gallery in a collection of a Qdrant server.
pub type QdrantIndex = gallerist_database::DatabaseIndex<QdrantCollection>;
