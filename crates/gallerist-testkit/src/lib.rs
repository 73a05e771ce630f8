//! Shared parts of the tests of several crates. Not published.

use std::io::Write;

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

/// Says that a program which tests need is missing, so that they are skipped.
///
/// # Panics
/// If the environment variable `required` is 1.
pub fn missing(required: &str, text: &str) {
    assert!(std::env::var_os(required).is_none_or(|value| value != "1"), "{text}");
    // Not `eprintln!`, whose output is captured in passing tests.
    let _ = writeln!(std::io::stderr(), "SKIPPED: {text}");
}
