//! A gallery in a vector database: what the clients of all databases share.
//!
//! A [`DatabaseIndex`] is an [`Index`](gallerist_retrieval::index::Index) of any [`Collection`]. Here are addresses, the
//! connection over gRPC, retries, the push that can be resumed, the split of filters between server and program, and the
//! re-scoring that makes the lists of a collection those of embedded search. What a database is asked in its own protocol
//! is in `gallerist-milvus` and `gallerist-qdrant`.

mod address;
mod backoff;
mod client;
mod collection;
mod error;
mod grpc;
mod index;
mod layout;
mod origin;
mod push;
mod ranking;
pub mod row;
#[doc(hidden)]
pub mod scripted;
mod system;

pub use address::Address;
pub use client::{Answer, Client, ConnectOptions, OnWait, Refusal};
pub use collection::{Candidates, Collection, Stored};
pub use error::{Error, Result};
pub use index::DatabaseIndex;
pub use layout::{CollectionLayout, Search};
pub use origin::{origin_of, origin_texts};
pub use push::Pushed;
pub use system::{MILVUS, QDRANT, System};
