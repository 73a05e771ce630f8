//! Shared parts of the tests of several crates. Not published.

pub mod allocator;
pub mod conditions;
pub mod conformance;
#[cfg(unix)]
pub mod milvus;
pub mod naive;
#[cfg(unix)]
pub mod pipe;
pub mod ranks;
