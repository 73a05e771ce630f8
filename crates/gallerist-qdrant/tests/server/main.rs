//! The promises of a gallery in Qdrant, on a server that speaks its protocol and has its engine. See
//! `gallerist_testkit::qdrant` for what it is, and what happens where there is none.
#![cfg(unix)]

mod client;
mod numbers;
#[path = "../../../gallerist-database/tests/suite/mod.rs"]
mod suite;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gallerist_qdrant::{CollectionLayout, ConnectOptions, QdrantIndex as DatabaseIndex};
use gallerist_testkit::qdrant::{self, Server};
use suite::{flat, hnsw};

/// An empty collection of its own on the shared server.
fn empty(server: &Server, layout: &CollectionLayout) -> DatabaseIndex {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let name = format!("test-{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let address = server.address(&name).parse().unwrap();
    DatabaseIndex::create(&address, layout, ConnectOptions::default()).unwrap()
}

fn server() -> Option<Arc<Server>> {
    qdrant::shared()
}
