//! A server that is killed in the middle of an upload loses nothing that it acknowledged.
//!
//! The test program that includes this defines `DatabaseIndex`, its type of index, and `start`, which starts a server of
//! its own.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gallerist_database::{CollectionLayout, ConnectOptions, Error, Pushed, Search};
use gallerist_retrieval::index::{Index, Items};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{EmbeddingSet, Matrix};

use crate::{DatabaseIndex, start};

const DIMENSIONS: usize = 64;
/// Some 15 calls.
const ITEMS: usize = 60_000;

fn items() -> Items {
    let mut state = 7u64;
    let mut value = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 40) as f32 / (1 << 23) as f32 - 1.0
    };
    let values = (0..ITEMS * DIMENSIONS).map(|_| value()).collect();
    let names = |of: &dyn Fn(usize) -> String| Some((0..ITEMS).map(of).collect());
    let set = EmbeddingSet {
        labels: names(&|row| format!("class {}", row % 97)),
        paths: names(&|row| format!("photos/{row}.jpg")),
        model: Some("sha256:of the test".to_owned()),
        ..Matrix::new(ITEMS, DIMENSIONS, values).unwrap().into()
    };
    Items::from_set(set).unwrap()
}

fn layout() -> CollectionLayout {
    CollectionLayout { dimensions: DIMENSIONS, metric: Metric::Cosine, search: Search::Flat }
}

/// One server at a time: both need all of a small machine.
static ONE: Mutex<()> = Mutex::new(());

/// Every one of the first `count` items is there, the same to the last bit.
fn assert_there(index: &DatabaseIndex, items: &Items, count: usize) {
    for start in (0..count).step_by(10_000) {
        let rows = start..count.min(start + 10_000);
        for (row, found) in rows.clone().zip(index.get(&items.ids()[rows]).unwrap()) {
            assert_eq!(found, Some(items.item(row)), "item {row} of {count} that were acknowledged");
        }
    }
}

/// Pushes the items, and does something to the server when a quarter of them is acknowledged. The result, and the number of
/// items that were acknowledged.
fn push_and(index: &mut DatabaseIndex, items: &Items, act: impl FnOnce()) -> (Result<Pushed, Error>, usize) {
    let acknowledged = AtomicUsize::new(0);
    let result = std::thread::scope(|scope| {
        let push = scope.spawn(|| {
            index.push(items, false, &mut |done: &Pushed| acknowledged.store(done.items, Ordering::SeqCst))
        });
        while acknowledged.load(Ordering::SeqCst) < ITEMS / 4 {
            assert!(!push.is_finished(), "the upload ended early");
            std::thread::sleep(Duration::from_millis(1));
        }
        act();
        push.join().unwrap()
    });
    (result, acknowledged.into_inner())
}

#[test]
fn what_was_acknowledged_before_a_kill_is_there_and_is_not_sent_again() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mut server) = start() else { return };
    let address = server.address("killed").parse().unwrap();
    let items = items();
    let impatient = ConnectOptions { patience: Duration::from_millis(500), ..ConnectOptions::default() };
    drop(DatabaseIndex::create(&address, &layout(), ConnectOptions::default()).unwrap());
    let mut index = DatabaseIndex::open(&address, impatient).unwrap();

    let (failed, acknowledged) = push_and(&mut index, &items, || server.kill());
    assert!(matches!(failed, Err(Error::Unreachable { .. })), "{failed:?}");
    assert!((ITEMS / 4..ITEMS).contains(&acknowledged), "killed in the middle: {acknowledged}");

    server.restart();
    let mut index = DatabaseIndex::open(&address, ConnectOptions::default()).unwrap();
    assert_there(&index, &items, acknowledged);
    let resumed = index.push(&items, false, &mut |_| {}).unwrap();
    assert_eq!(resumed.items, ITEMS);
    assert!(resumed.unchanged >= acknowledged, "{acknowledged} were acknowledged: {resumed:?}");
    assert_eq!(index.info().unwrap().count, ITEMS);
    assert_there(&index, &items, ITEMS);
    let again = index.push(&items, false, &mut |_| {}).unwrap();
    assert_eq!((again.sent, again.unchanged), (0, ITEMS));
}

#[test]
fn a_push_waits_for_a_server_that_comes_back() {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let Some(mut server) = start() else { return };
    let address = server.address("back").parse().unwrap();
    let items = items();
    let waits = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&waits);
    let options = ConnectOptions {
        patience: Duration::from_secs(240),
        on_wait: Some(Arc::new(move |why: &str| told.lock().unwrap().push(why.to_owned()))),
        ..ConnectOptions::default()
    };
    let mut index = DatabaseIndex::create(&address, &layout(), options).unwrap();
    let (pushed, _) = push_and(&mut index, &items, || server.restart());
    assert_eq!(pushed.unwrap().items, ITEMS);
    let waits = waits.lock().unwrap();
    assert!(waits.iter().any(|why| why.contains("trying again in")), "{waits:?}");
    assert_eq!(index.info().unwrap().count, ITEMS);
    assert_there(&index, &items, ITEMS);
}
