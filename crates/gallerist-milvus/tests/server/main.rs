//! The promises of a gallery in Milvus, on a real server. See `gallerist_testkit::milvus` for what
//! happens where there is none.
#![cfg(unix)]

mod conditions;
mod conform;
mod faults;
mod push;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use gallerist_milvus::{CollectionLayout, ConnectOptions, MilvusIndex, Search};
use gallerist_retrieval::search::Metric;
use gallerist_testkit::milvus::{self, Server};

/// An empty collection of its own on the shared server.
fn empty(server: &Server, layout: &CollectionLayout) -> MilvusIndex {
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let name = format!("test_{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    let address = server.address(&name).parse().unwrap();
    MilvusIndex::create(&address, layout, ConnectOptions::default()).unwrap()
}

fn flat(dimensions: usize, metric: Metric) -> CollectionLayout {
    CollectionLayout { dimensions, metric, search: Search::Flat }
}

fn hnsw(dimensions: usize, metric: Metric) -> CollectionLayout {
    CollectionLayout { search: Search::Hnsw { m: 16, ef_construction: 200 }, ..flat(dimensions, metric) }
}

fn server() -> Option<Arc<Server>> {
    milvus::shared()
}
