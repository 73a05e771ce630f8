//! What a user is told when a collection is not what was wanted.

use gallerist_database::{ConnectOptions, Error};
use gallerist_retrieval::search::Metric;

use crate::{DatabaseIndex, empty, flat, hnsw, server};

#[test]
fn a_collection_that_is_not_there_is_named() {
    let Some(server) = server() else { return };
    let address = server.address("nobody_made_this").parse().unwrap();
    let error = DatabaseIndex::open(&address, ConnectOptions::default()).err().unwrap();
    assert!(matches!(error, Error::Missing { .. }), "{error:?}");
    assert!(error.hint().unwrap().contains(&address.to_string()));
}

#[test]
fn a_collection_of_another_layout_is_not_taken_for_the_one_wanted() {
    let Some(server) = server() else { return };
    let index = empty(&server, &flat(8, Metric::Cosine));
    let address = index.address();
    for other in [flat(9, Metric::Cosine), flat(8, Metric::Euclidean), hnsw(8, Metric::Cosine)] {
        let error = DatabaseIndex::create(address, &other, ConnectOptions::default()).err().unwrap();
        let message = error.to_string();
        assert!(message.contains("has 8 dimensions, cosine, exact, not"), "{message}");
    }
    let again = DatabaseIndex::create(address, &flat(8, Metric::Cosine), ConnectOptions::default()).unwrap();
    let opened = DatabaseIndex::open(address, ConnectOptions::default()).unwrap();
    assert_eq!(again.layout(), opened.layout());
    again.drop_collection().unwrap();
    let gone = DatabaseIndex::open(address, ConnectOptions::default()).err().unwrap();
    assert!(matches!(gone, Error::Missing { .. }), "{gone:?}");
}

#[test]
fn the_layout_of_a_graph_is_read_back() {
    let Some(server) = server() else { return };
    let layout = hnsw(5, Metric::InnerProduct);
    let made = empty(&server, &layout);
    assert_eq!(DatabaseIndex::open(made.address(), ConnectOptions::default()).unwrap().layout(), &layout);
}
