//! What Qdrant's own client reads of a gallery.

use gallerist_qdrant::{ConnectOptions, Error, QdrantIndex};
use gallerist_retrieval::columns::{Column, Columns};
use gallerist_retrieval::index::{Index, Items};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{EmbeddingSet, Matrix};
use gallerist_testkit::qdrant;

use crate::{empty, flat, server};

#[test]
fn the_client_of_qdrant_reads_what_was_pushed() {
    let Some(server) = server() else { return };
    let mut index = empty(&server, &flat(2, Metric::Cosine));
    let columns = vec![
        Column::infer("price (EUR)", ["12.5", "0.30000000000000004"]).unwrap(),
        Column::infer("colour", ["red|blue", ""]).unwrap(),
    ];
    let set = EmbeddingSet {
        labels: Some(vec!["heron".to_owned(), "wren".to_owned()]),
        paths: Some(vec!["1.jpg".to_owned(), "2.jpg".to_owned()]),
        columns: Columns::new(columns).unwrap(),
        model: Some("sha256:abc".to_owned()),
        ..Matrix::new(2, 2, vec![0.1, -0.0, 3.0, 4.0]).unwrap().into()
    };
    index.push(&Items::new(vec![7, u64::MAX / 2], set).unwrap(), false, &mut |_| {}).unwrap();
    let read = server.client(index.address().collection());
    assert!(read.status.success(), "{}", String::from_utf8_lossy(&read.stderr));
    assert_eq!(
        String::from_utf8(read.stdout).unwrap(),
        "metadata gallerist.column.digits.price (EUR) 0\n\
         metadata gallerist.column.numbers.price (EUR) 0\n\
         metadata gallerist.column.tags.colour 1\n\
         metadata gallerist.model sha256:abc\n\
         metadata gallerist.version 1\n\
         index camera keyword\n\
         index label keyword\n\
         index numbers.\"price (EUR)\" float\n\
         index path keyword\n\
         index tags.colour keyword\n\
         vector cosine 2 Cosine m=0\n\
         vector embedding 2 Dot m=0\n\
         point 7 [0.10000000149011612, -0.0] label=heron numbers={'price (EUR)': 12.5} path=1.jpg tags={'colour': ['blue', 'red']}\n\
         point 9223372036854775807 [3.0, 4.0] digits={'price (EUR)': '3.0000000000000004e-1'} label=wren path=2.jpg\n"
    );
}

#[test]
fn a_server_that_wants_a_key_is_not_opened_without() {
    let Some(server) = qdrant::start(Some("secret")) else { return };
    let address = server.address("birds").parse().unwrap();
    let with =
        |token: Option<&str>| ConnectOptions { token: token.map(str::to_owned), ..ConnectOptions::default() };
    for token in [None, Some("wrong"), Some("no\nheader")] {
        let error = QdrantIndex::create(&address, &flat(2, Metric::Cosine), with(token)).err().unwrap();
        assert!(matches!(error, Error::Unreachable { .. }), "{error}");
        assert_eq!(error.hint().unwrap(), "set QDRANT_API_KEY to a key of the server");
    }
    let index = QdrantIndex::create(&address, &flat(2, Metric::Cosine), with(Some("secret"))).unwrap();
    assert_eq!(index.info().unwrap().count, 0);
}
