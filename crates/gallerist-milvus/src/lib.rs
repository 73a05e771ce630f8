//! A gallery in the vector database [Milvus](https://milvus.io), with the same interface as an
//! embedded one: [`MilvusIndex`] is an [`Index`](gallerist_retrieval::index::Index).
//!
//! Scores and order of its lists are those of embedded exact search; with a collection that is
//! searched exactly ([`Search::Flat`]) so are the lists. The protocol is Milvus' own over gRPC. An address with
//! `milvus://` is not encrypted: keep server and client in a network that you trust, or use `milvus+tls://`.
//! Tested with Milvus 2.3.5.
//!
//! ```no_run
//! use gallerist_milvus::{ConnectOptions, CollectionLayout, MilvusIndex, Search};
//! use gallerist_retrieval::index::{Index, ItemFilter, Items};
//! use gallerist_retrieval::{EmbeddingSet, search::Metric};
//!
//! let set = EmbeddingSet::load("gallery.safetensors")?;
//! let address = "milvus://localhost:19530/birds".parse()?;
//! let layout = CollectionLayout { dimensions: set.embeddings.cols(), metric: Metric::Cosine, search: Search::Flat };
//! let mut index = MilvusIndex::create(&address, &layout, ConnectOptions::default())?;
//! let items = Items::from_set(set)?;
//! let pushed = index.push(&items, false, &mut |done| eprintln!("{} of {}", done.items, items.len()))?;
//! println!("{} sent, {} were there", pushed.sent, pushed.unchanged);
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
#[cfg(all(test, unix))]
mod old_collections;
#[cfg(test)]
mod scripted;
mod wire;

pub use collection::MilvusCollection;
pub use gallerist_database::{
    Address, CollectionLayout, ConnectOptions, Error, OnWait, Pushed, Result, Search,
};

/// A gallery in a collection of a Milvus server.
pub type MilvusIndex = gallerist_database::DatabaseIndex<MilvusCollection>;
