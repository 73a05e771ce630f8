//! Texts longer than a field of Milvus.

use gallerist_milvus::Error;
use gallerist_retrieval::index::{Index, Items};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{EmbeddingSet, Matrix};

use crate::{empty, flat, server};

#[test]
fn a_text_is_kept_up_to_the_limit_of_milvus() {
    let Some(server) = server() else { return };
    let mut index = empty(&server, &flat(2, Metric::Euclidean));
    let long = |length| EmbeddingSet {
        labels: Some(vec!["x".repeat(length)]),
        ..Matrix::new(1, 2, vec![0.0, 1.0]).unwrap().into()
    };
    index.upsert(&Items::numbered(long(65_535), 5000).unwrap()).unwrap();
    assert_eq!(index.get(&[5000]).unwrap()[0].as_ref().unwrap().label.as_ref().unwrap().len(), 65_535);
    let refused = index.push(&Items::numbered(long(65_536), 5000).unwrap(), true, &mut |_| {});
    assert!(matches!(refused, Err(Error::Text { field: "label", row: 0, .. })), "{refused:?}");
}
