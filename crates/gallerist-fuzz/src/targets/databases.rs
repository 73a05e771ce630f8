//! Answers of the server of a database: each begins with its length in two bytes. The first ones are those to opening a
//! collection.

use gallerist_database::{Collection, DatabaseIndex, scripted};
use gallerist_retrieval::Matrix;
use gallerist_retrieval::condition::Condition;
use gallerist_retrieval::index::{Index, ItemFilter};

use crate::cost::{Limit, within};
use crate::goals::reached;

/// Calls that are answered.
const CALLS: usize = 40;

#[cfg(feature = "milvus")]
pub(super) fn milvus(bytes: &[u8]) {
    run::<gallerist_milvus::MilvusCollection>(bytes);
}

#[cfg(feature = "qdrant")]
pub(super) fn qdrant(bytes: &[u8]) {
    run::<gallerist_qdrant::QdrantCollection>(bytes);
}

fn run<C: Collection>(bytes: &[u8]) {
    let mut answers = Vec::new();
    let mut rest = bytes;
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_le_bytes(*length)).min(after.len());
        let (answer, after) = after.split_at(length);
        answers.push(answer.to_vec());
        rest = after;
    }
    // Every call may be answered with everything.
    let limit =
        Limit { memory_of_byte: 200 * CALLS as u64, ns_of_byte: 20_000 * CALLS as u64, ..Limit::TEXT };
    let open = || scripted::open::<C>(answers.clone(), CALLS);
    let Ok(index) = within(limit, bytes, open) else { return };
    reached("opened");
    let _ = index.origin();
    let dimensions = index.layout().dimensions;
    let query = Matrix::new(1, dimensions, vec![0.5; dimensions]).expect("a row");
    let all = ItemFilter::default();
    // Each on a new connection, whose answers begin again.
    let call = |use_index: &dyn Fn(&mut DatabaseIndex<C>)| {
        if let Ok(mut index) = open() {
            within(limit, bytes, || use_index(&mut index));
        }
    };
    call(&|index| {
        if let Ok(lists) = index.search(query.view(), 3, &all) {
            assert!(lists.ids(0).len() <= 3, "more than k results");
            if !lists.ids(0).is_empty() {
                reached("found");
            }
        }
    });
    call(&|index| {
        if let Ok(items) = index.get(&[1, 2, 3]) {
            assert_eq!(items.len(), 3);
            if items.iter().any(Option::is_some) {
                reached("items");
            }
            assert!(items.iter().flatten().all(|item| item.embedding.len() == dimensions));
        }
    });
    call(&|index| {
        if let Ok(labels) = index.labels(&all) {
            assert!(labels.windows(2).all(|pair| pair[0].0 <= pair[1].0), "ids rise");
            if !labels.is_empty() {
                reached("labels");
            }
        }
    });
    call(&|index| drop(index.info().inspect(|_| reached("info"))));
    call(&|index| drop(index.columns().inspect(|_| reached("columns"))));
    call(&|index| drop(index.remove(&[1]).inspect(|_| reached("removed"))));
    let condition = Condition::parse("price < 2 or label = \"a\"").expect("a condition");
    let filter = ItemFilter { condition: Some(condition), ..ItemFilter::default() };
    call(&|index| drop(index.labels(&filter).inspect(|_| reached("filtered"))));
}
