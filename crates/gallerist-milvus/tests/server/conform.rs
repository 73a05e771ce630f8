//! The conformance suite that every index passes.

use std::time::Duration;

use gallerist_testkit::conformance::{self, Promises};

use crate::{empty, flat, hnsw, server};

/// Seconds on an idle machine; on a busy one it took more than 20.
const LAG: Duration = Duration::from_secs(120);

#[test]
fn a_flat_collection_keeps_the_promises_of_exact_search() {
    let Some(server) = server() else { return };
    let promises = Promises { count_lags: LAG, ..Promises::EXACT };
    conformance::run(|metric, cols| Box::new(empty(&server, &flat(cols, metric))), &promises);
}

#[test]
fn an_hnsw_collection_keeps_the_promises_of_approximate_search() {
    let Some(server) = server() else { return };
    let promises = Promises { recall: 0.99, ties_at_the_end: false, count_lags: LAG, ..Promises::EXACT };
    conformance::run(|metric, cols| Box::new(empty(&server, &hnsw(cols, metric))), &promises);
}
