//! An index of any kind, with its checksum repaired: read, mapped, searched, changed and written again.

use gallerist_retrieval::Matrix;
use gallerist_retrieval::index::{Index, ItemFilter, is_index, open_index};

use crate::cost::{Limit, within};
use crate::goals::reached;
use crate::{repair, scratch};

/// Values of a query.
const MOST: usize = 1 << 20;

pub(super) fn run(bytes: &[u8]) {
    let bytes = &repair::safetensors(bytes);
    let path = scratch::file("input.index", bytes);
    let opened = within(Limit::TEXT, bytes, || open_index(&path, false));
    let mapped = within(Limit::TEXT, bytes, || open_index(&path, true));
    let (mut index, mapped) = match (opened, mapped) {
        (Ok(opened), Ok(mapped)) => (opened, mapped),
        (Err(_), Err(_)) => return,
        // Values that are not aligned are read, but not mapped.
        (Ok(_), Err(error)) => {
            assert!(error.to_string().contains("where they are"), "mapped: {error}");
            return;
        }
        (Err(error), Ok(_)) => panic!("an index that is mapped is not opened: {error}"),
    };
    assert!(is_index(&path));
    let info = index.info().expect("a local index");
    reached(info.kind.name);
    // Without items, an index may say any number.
    if info.dimensions > MOST {
        return;
    }
    let query = Matrix::new(1, info.dimensions, vec![0.5; info.dimensions]).expect("a row");
    let find = |index: &dyn Index| index.search(query.view(), 5, &ItemFilter::default());
    let lists = within(Limit::TEXT, bytes, || find(&*index));
    let of_map = find(&*mapped);
    if let (Ok(lists), Ok(of_map)) = (&lists, &of_map) {
        assert_eq!(lists.ids(0), of_map.ids(0), "the mapped index finds other items");
        if !lists.ids(0).is_empty() {
            reached("found");
        }
    }
    assert_eq!(lists.is_ok(), of_map.is_ok());
    let ids = index.ids(&ItemFilter::default()).expect("a local index");
    assert!(ids.windows(2).all(|pair| pair[0] < pair[1]), "ids rise");
    assert_eq!(ids.len(), info.count, "items");
    assert!(index.get(&ids).expect("a local index").iter().all(Option::is_some), "every id has an item");
    let again = scratch::path("again.index");
    index.save(&again).expect("an index that was opened is written");
    let read = open_index(&again, false).expect("an index that was written is opened");
    assert_eq!(read.ids(&ItemFilter::default()).expect("a local index"), ids);
    if let Some(&first) = ids.first() {
        assert_eq!(index.remove(&[first]).expect("a local index"), 1);
        assert_eq!(index.ids(&ItemFilter::default()).expect("a local index"), &ids[1..]);
        let _ = find(&*index);
    }
    index.compact(&mut |_, _| {}).expect("a local index");
    assert_eq!(index.ids(&ItemFilter::default()).expect("a local index").len(), ids.len().saturating_sub(1));
}
