//! What the tests of several crates share. Not published.

pub mod conformance;
#[cfg(unix)]
pub mod milvus;
pub mod naive;
