//! The conformance suite that every index passes.

use gallerist_testkit::conformance::{self, Promises};

use crate::{empty, flat, hnsw, server};

#[test]
fn a_flat_collection_keeps_the_promises_of_exact_search() {
    let Some(server) = server() else { return };
    conformance::run(|metric, cols| Box::new(empty(&server, &flat(cols, metric))), &Promises::EXACT);
}

#[test]
fn an_hnsw_collection_keeps_the_promises_of_approximate_search() {
    let Some(server) = server() else { return };
    let promises = Promises { recall: 0.99, ties_at_the_end: false, ..Promises::EXACT };
    conformance::run(|metric, cols| Box::new(empty(&server, &hnsw(cols, metric))), &promises);
}
