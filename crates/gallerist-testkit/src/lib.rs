//! Shared parts of the tests of several crates. Not published.

pub mod allocator;
pub mod conditions;
pub mod conformance;
#[cfg(unix)]
pub mod milvus;
pub mod naive;
#[cfg(unix)]
pub mod pipe;
#[cfg(unix)]
pub mod qdrant;
pub mod ranks;
#[cfg(unix)]
mod server;
