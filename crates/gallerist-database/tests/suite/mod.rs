//! The promises of a gallery in a database, on a server: the same for every database.
//!
//! The test program that includes this defines `DatabaseIndex`, its type of index; `server`, which starts one or skips the
//! test; and `empty`, which makes a collection.

mod conditions;
mod conform;
mod faults;
mod push;

use gallerist_database::{CollectionLayout, Search};
use gallerist_retrieval::search::Metric;

pub(crate) fn flat(dimensions: usize, metric: Metric) -> CollectionLayout {
    CollectionLayout { dimensions, metric, search: Search::Flat }
}

pub(crate) fn hnsw(dimensions: usize, metric: Metric) -> CollectionLayout {
    CollectionLayout { search: Search::Hnsw { m: 16, ef_construction: 200 }, ..flat(dimensions, metric) }
}
