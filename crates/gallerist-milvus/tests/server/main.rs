//! The promises of a gallery in Milvus, on a real server. See `gallerist_testkit::milvus` for what
//! happens where there is none.
#![cfg(unix)]

#[path = "../../../gallerist-database/tests/suite/mod.rs"]
mod suite;
mod texts;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use gallerist_milvus::{CollectionLayout, ConnectOptions, MilvusIndex as DatabaseIndex};
use gallerist_testkit::milvus::{self, Server};
use suite::{flat, hnsw};

/// An empty collection of its own on the shared server.
fn empty(server: &Server, layout: &CollectionLayout) -> DatabaseIndex {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let address = server.address(&name).parse().unwrap();
    // The server makes a graph of 20,000 rows in one piece, which takes minutes where other programs use all cores.
    let options = ConnectOptions { patience: Duration::from_secs(900), ..ConnectOptions::default() };
    DatabaseIndex::create(&address, layout, options).unwrap()
}

fn server() -> Option<Arc<Server>> {
    milvus::shared()
}
