//! A gallery in the vector database [Milvus](https://milvus.io), with the same interface as an
//! embedded one: [`MilvusIndex`] is an [`Index`](gallerist_retrieval::index::Index).
//!
//! Scores and order of its lists are those of embedded exact search; with a collection that is
//! searched exactly ([`Search::Flat`]) so are the lists. Milvus' own gRPC protocol is spoken, in
//! clear text: keep server and client in a network that you trust. Tested with Milvus 2.3.5.

mod address;
mod backoff;
mod client;
mod columns;
mod condition;
mod error;
mod filter;
mod grpc;
mod index;
mod layout;
#[cfg(all(test, unix))]
mod old_collections;
mod push;
mod ranking;
mod scheme;
#[doc(hidden)]
pub mod scripted;
mod wire;

pub use address::{Address, DEFAULT_PORT};
pub use client::{ConnectOptions, OnWait};
pub use error::{Error, Result};
pub use index::MilvusIndex;
pub use layout::{CollectionLayout, Search};
pub use push::Pushed;
pub use scheme::{SCHEME, TLS_SCHEME};
