//! Models of the server: its real code under many schedules of its threads.
//!
//! ```sh
//! RUSTFLAGS="--cfg shuttle" cargo test --release --target-dir target/shuttle -p gallerist-serve --lib models
//! ```

use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};
use std::task::Poll;
use std::time::Instant;

use axum::body::{Body, to_bytes};
use axum::http::{Request, StatusCode};
use gallerist_retrieval::file::{Source, Sources};
use gallerist_retrieval::index::{ExactIndex, Index, ItemFilter, Items};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{EmbeddingSet, Matrix};
use serde_json::Value;
use shuttle::future::block_on;
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use shuttle::{Config, Runner, thread};
use tower_service::Service;

use crate::analysis::Turn;
use crate::batch::{Batcher, Refused, Searches};
use crate::client::Peer;
use crate::gallery::{Gallery, Listed, Query};
use crate::gate::Gate;
use crate::http::Galleries;
use crate::limits::{BURST, Connections, Key, Rate};
use crate::reload::Reloader;
use crate::reloaded::Outcome;
use crate::saved::{Change, Kind, Saved};
use crate::state::State;
use crate::{Contents, Options};

/// Runs a model with so many schedules at random, and as many that delay threads at few places (PCT), which find rare orders.
fn check(schedules: usize, model: impl Fn() + Send + Sync + 'static) {
    let model = Arc::new(model);
    let again = Arc::clone(&model);
    let mut config = Config::new();
    // The default is meant for small models.
    config.stack_size = 1 << 20;
    Runner::new(RandomScheduler::new(schedules), config.clone()).run(move || model());
    Runner::new(PctScheduler::new(3, schedules), config).run(move || again());
}

/// Threads that are waited for.
fn together(work: Vec<Box<dyn FnOnce() + Send>>) {
    let threads: Vec<_> = work.into_iter().map(thread::spawn).collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

/// A gate for two tasks, with one that waits.
const AT_ONCE: usize = 2;
const INSIDE: usize = AT_ONCE + 1;

/// A task that notes how many run.
fn task(running: &Arc<AtomicUsize>) -> impl FnOnce() + Send + 'static + use<> {
    let running = Arc::clone(running);
    move || {
        let now = running.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(now <= AT_ONCE, "{now} tasks run");
        thread::yield_now();
        running.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Polls once, and gives up.
async fn cancelled(asked: impl Future) {
    let mut asked = Box::pin(asked);
    std::future::poll_fn(|context| Poll::Ready(drop(asked.as_mut().poll(context)))).await;
}

#[test]
fn a_gate_keeps_its_limits_and_cancelled_requests_give_their_places_back() {
    check(2000, || {
        let gate = Gate::new(AT_ONCE, INSIDE - AT_ONCE);
        let running = Arc::new(AtomicUsize::new(0));
        let client = |is_cancelled: bool| {
            let (gate, work) = (gate.clone(), task(&running));
            Box::new(move || {
                match is_cancelled {
                    // Its work continues and keeps its place.
                    true => block_on(cancelled(gate.run(work))),
                    false => drop(block_on(gate.run(work))),
                }
                assert!(gate.inside() <= INSIDE);
            }) as Box<dyn FnOnce() + Send>
        };
        together(vec![client(false), client(true), client(false), client(true), client(false)]);
        while gate.inside() > 0 {
            thread::yield_now();
        }
        let gates: Vec<_> = (0..AT_ONCE).map(|_| gate.clone()).collect();
        let again = gates.into_iter().map(|gate| {
            let work = task(&running);
            Box::new(move || assert!(block_on(gate.run(work)).is_ok(), "a place did not come back"))
                as Box<dyn FnOnce() + Send>
        });
        together(again.collect());
    });
}

#[test]
fn a_gate_refuses_nobody_because_of_one_whom_it_refuses() {
    check(2000, || {
        let gate = Gate::new(AT_ONCE, INSIDE - AT_ONCE);
        let running = Arc::new(AtomicUsize::new(0));
        let refused = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
        // As many clients as have room, each with one task after the other; and one more client.
        let client = |kind: usize| {
            let (gate, running, refused) = (gate.clone(), Arc::clone(&running), Arc::clone(&refused));
            Box::new(move || {
                for _ in 0..2 - kind {
                    let failed = block_on(gate.run(task(&running))).is_err();
                    refused[kind].fetch_add(failed.into(), Ordering::SeqCst);
                }
            }) as Box<dyn FnOnce() + Send>
        };
        let clients = (0..INSIDE).map(|_| client(0)).chain([client(1)]);
        together(clients.collect());
        let [of_those, of_one] = [0, 1].map(|kind| refused[kind].load(Ordering::SeqCst));
        assert!(of_those == 0 || of_one == 0, "{of_those} were refused although the one more was not let in");
    });
}

#[test]
fn connections_of_a_client_never_exceed_its_limit_and_are_all_returned() {
    const MOST: usize = 2;
    check(2000, || {
        let connections = Connections::default();
        let open = Arc::new(AtomicUsize::new(0));
        let peer = Peer([1, 1, 1, 1].into());
        let client = || {
            let (connections, open) = (connections.clone(), Arc::clone(&open));
            Box::new(move || {
                for _ in 0..2 {
                    let held = connections.open(peer, MOST);
                    if held.is_some() {
                        assert!(open.fetch_add(1, Ordering::SeqCst) < MOST);
                        thread::yield_now();
                        open.fetch_sub(1, Ordering::SeqCst);
                    }
                }
            }) as Box<dyn FnOnce() + Send>
        };
        together(vec![client(), client(), client()]);
        let all: Vec<_> = (0..MOST).map(|_| connections.open(peer, MOST)).collect();
        assert!(all.iter().all(Option::is_some) && connections.open(peer, MOST).is_none());
    });
}

#[test]
fn requests_of_one_client_at_one_moment_get_its_burst_and_no_more() {
    check(3000, || {
        let rate = Arc::new(Rate::new(1));
        let [one, other] = [1, 2].map(|last| Key::of([1, 1, 1, last].into()));
        let answered = Arc::new(AtomicUsize::new(0));
        let now = Instant::now();
        let client = || {
            let (rate, answered) = (Arc::clone(&rate), Arc::clone(&answered));
            Box::new(move || {
                for _ in 0..BURST {
                    match rate.take(one, now) {
                        Ok(()) => _ = answered.fetch_add(1, Ordering::SeqCst),
                        Err(wait) => assert!(!wait.is_zero()),
                    }
                }
            }) as Box<dyn FnOnce() + Send>
        };
        let stranger = {
            let rate = Arc::clone(&rate);
            Box::new(move || assert!((0..BURST).all(|_| rate.take(other, now).is_ok())))
        };
        together(vec![client(), client(), stranger]);
        assert_eq!(answered.load(Ordering::SeqCst), BURST as usize);
    });
}

#[test]
fn one_analysis_computes_at_a_time_and_each_that_is_not_stopped_does() {
    check(3000, || {
        let turn = Arc::new(Turn::default());
        let running = Arc::new(AtomicUsize::new(0));
        let [kept, stopped] = [(), ()].map(|()| Arc::new(AtomicBool::new(false)));
        let analysis = |stopped: &Arc<AtomicBool>, may_be_stopped: bool| {
            let (turn, running, stopped) = (Arc::clone(&turn), Arc::clone(&running), Arc::clone(stopped));
            Box::new(move || {
                let held = turn.wait(&stopped);
                assert!(held.is_some() || may_be_stopped);
                if held.is_some() {
                    assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0, "two compute");
                    thread::yield_now();
                    running.fetch_sub(1, Ordering::SeqCst);
                }
            }) as Box<dyn FnOnce() + Send>
        };
        let stop = {
            let (turn, stopped) = (Arc::clone(&turn), Arc::clone(&stopped));
            Box::new(move || turn.stop(&stopped)) as Box<dyn FnOnce() + Send>
        };
        together(vec![analysis(&kept, false), analysis(&kept, false), analysis(&stopped, true), stop]);
        assert!(turn.wait(&kept).is_some(), "the turn is given back");
    });
}

#[test]
fn a_stopped_analysis_does_not_wait_for_the_one_that_computes() {
    check(3000, || {
        let turn = Arc::new(Turn::default());
        let [computing, stopped] = [(), ()].map(|()| Arc::new(AtomicBool::new(false)));
        let held = turn.wait(&computing).unwrap();
        let waits = {
            let (turn, stopped) = (Arc::clone(&turn), Arc::clone(&stopped));
            Box::new(move || assert!(turn.wait(&stopped).is_none())) as Box<dyn FnOnce() + Send>
        };
        let stop = {
            let (turn, stopped) = (Arc::clone(&turn), Arc::clone(&stopped));
            Box::new(move || turn.stop(&stopped)) as Box<dyn FnOnce() + Send>
        };
        together(vec![waits, stop]);
        drop(held);
    });
}

/// Items by id at these places on a line.
fn items(places: &[(u64, f32, &str)]) -> Items {
    let rows = Matrix::new(places.len(), 1, places.iter().map(|place| place.1).collect()).unwrap();
    let set = EmbeddingSet {
        metric: Some(Metric::Euclidean),
        labels: Some(places.iter().map(|place| place.2.to_owned()).collect()),
        paths: Some(places.iter().map(|place| format!("{}.png", place.0)).collect()),
        sources: Some(Sources::one(Source { name: "model".to_owned(), images: None }, places.len())),
        ..rows.into()
    };
    Items::new(places.iter().map(|place| place.0).collect(), set).unwrap()
}

fn index() -> ExactIndex {
    let mut index = ExactIndex::new(1, Metric::Euclidean).unwrap();
    index.upsert(&items(&[(1, 10.0, "old"), (2, 20.0, "b"), (3, 30.0, "c"), (4, 55.0, "d")])).unwrap();
    index
}

fn query(place: f32, k: usize) -> Query {
    Query { vector: vec![place], k, filter: ItemFilter::default(), mask: None }
}

/// What a search found: ids, distances, and labels by the catalog.
fn described(Listed { found, catalog }: &Listed) -> String {
    let one = |&(id, distance): &(u64, f32)| {
        let label = catalog.row(id).map_or("missing", |row| catalog.labels.get(row).unwrap_or("none"));
        format!("{id} {distance} {label}")
    };
    found.iter().map(one).collect::<Vec<_>>().join(", ")
}

#[test]
fn a_search_sees_a_gallery_before_or_after_a_change_never_between() {
    check(2000, || {
        let gallery = Arc::new(Gallery::from_index("model", Box::new(index())).unwrap());
        // Item 1 is replaced, then item 2 removed.
        let states = [
            "2 0 b, 1 10 old, 3 10 c, 4 35 d",
            "2 0 b, 3 10 c, 4 35 d, 1 79 new",
            "3 10 c, 4 35 d, 1 79 new",
        ];
        let change = {
            let gallery = Arc::clone(&gallery);
            Box::new(move || {
                let replaced = gallery.add(&items(&[(1, 99.0, "new")]), true).unwrap();
                assert_eq!(replaced.unchanged, 0);
                assert!(gallery.remove(2).unwrap());
            }) as Box<dyn FnOnce() + Send>
        };
        let search = || {
            let gallery = Arc::clone(&gallery);
            Box::new(move || {
                let mut last = 0;
                for _ in 0..3 {
                    let found = described(&gallery.search(&[query(20.0, 4)]).unwrap()[0]);
                    let state = states.iter().position(|state| found == *state);
                    let state = state.unwrap_or_else(|| panic!("between: {found}"));
                    assert!(state >= last, "an earlier state: {found}");
                    last = state;
                }
            }) as Box<dyn FnOnce() + Send>
        };
        together(vec![search(), change, search()]);
    });
}

#[test]
fn every_query_of_a_batch_gets_its_own_answer_and_the_thread_ends_with_its_gallery() {
    check(2000, || {
        let gallery = Arc::new(Gallery::from_index("model", Box::new(index())).unwrap());
        let batcher = Arc::new(Batcher::start(Searches(Arc::clone(&gallery))).unwrap());
        let client = |place: f32, nearest: u64| {
            let batcher = Arc::clone(&batcher);
            Box::new(move || {
                for k in [1, 5000] {
                    let found = block_on(batcher.ask(query(place, k))).unwrap().found;
                    assert_eq!(found[0].0, nearest);
                    assert_eq!(found.len(), k.min(4));
                }
            }) as Box<dyn FnOnce() + Send>
        };
        let broken = {
            let batcher = Arc::clone(&batcher);
            // Of another length than the gallery's rows: it fails alone.
            let query = Query { vector: vec![1.0, 2.0], ..query(0.0, 1) };
            Box::new(move || {
                let refused = block_on(batcher.ask(query)).err().expect("it fails");
                assert!(matches!(refused, Refused::Failed(_) | Refused::Broken), "{refused:?}");
            }) as Box<dyn FnOnce() + Send>
        };
        let given_up = {
            let batcher = Arc::clone(&batcher);
            Box::new(move || {
                block_on(cancelled(batcher.ask(query(20.0, 1))));
            }) as Box<dyn FnOnce() + Send>
        };
        together(vec![client(11.0, 1), client(29.0, 3), broken, given_up]);
        drop(batcher);
        // The thread has the gallery until it ends.
        while Arc::strong_count(&gallery) > 1 {
            thread::yield_now();
        }
    });
}

/// A folder in memory where there is one: a model writes files thousands of times.
fn folder() -> tempfile::TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { tempfile::tempdir_in(memory).unwrap() } else { tempfile::tempdir().unwrap() }
}

#[test]
fn changes_of_tags_are_all_kept_while_the_file_is_read_again() {
    check(500, || {
        let folder = folder();
        let gallery = folder.path().join("g.index");
        let saved = Arc::new(Saved::open(Some(&gallery), |_| ()));
        let client = |name: &'static str| {
            let saved = Arc::clone(&saved);
            Box::new(move || {
                for id in 0..2 {
                    let add = Change { add: vec![id], ..Change::default() };
                    let lists = saved.change(Kind::Tags, name, &add).unwrap();
                    assert_eq!(lists.ids(Kind::Tags, name).unwrap().len(), id as usize + 1);
                }
            }) as Box<dyn FnOnce() + Send>
        };
        let reader = {
            let saved = Arc::clone(&saved);
            Box::new(move || saved.read_again().unwrap()) as Box<dyn FnOnce() + Send>
        };
        together(vec![client("a"), client("b"), reader]);
        let stored = Saved::open(Some(&gallery), |_| ()).now();
        assert_eq!(
            (stored.tags_of(0), stored.tags_of(1)),
            (vec!["a".into(), "b".into()], vec!["a".into(), "b".into()])
        );
        assert_eq!(stored, saved.now());
    });
}

/// A server of one index in a file, without its sockets.
struct Served {
    galleries: Arc<Galleries>,
    reloader: Reloader,
    file: PathBuf,
    _folder: tempfile::TempDir,
}

impl Served {
    fn new() -> Self {
        static INDEX: LazyLock<Vec<u8>> = LazyLock::new(|| {
            let folder = folder();
            let file = folder.path().join("m.index");
            index().save(&file).unwrap();
            std::fs::read(file).unwrap()
        });
        let folder = folder();
        let file = folder.path().join("m.index");
        std::fs::write(&file, &*INDEX).unwrap();
        let options = Options {
            tokens: vec!["secret".parse().unwrap()],
            audit: Some(folder.path().join("audit.jsonl")),
            analysis_items: 0,
            threads: 2,
            ..Options::default()
        };
        let contents =
            || Ok::<_, crate::Error>(Contents::from(Gallery::open(&folder.path().join("m.index"), true)?));
        let (states, shared) = State::all(vec![("m".to_owned(), contents().unwrap())], &options).unwrap();
        let galleries = Arc::new(Galleries::new(&states));
        let own = file.clone();
        let reopen = Box::new(move |_: &str| Ok(Contents::from(Gallery::open(&own, true)?)));
        let reloader = Reloader::new(reopen, Arc::clone(&galleries), shared, options, states);
        Self { galleries, reloader, file, _folder: folder }
    }

    fn ask(&self, method: &str, path: &str) -> (StatusCode, Value) {
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        let request = request.header("authorization", "Bearer secret").body(Body::empty()).unwrap();
        let mut router = Arc::clone(&self.galleries).router();
        block_on(async {
            let answer = router.call(request).await.unwrap();
            let status = answer.status();
            let body = to_bytes(answer.into_body(), usize::MAX).await.unwrap();
            (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
        })
    }
}

/// Requests set the clock of their time limits; nobody lets it run.
fn clock() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

/// Searches for the two items nearest to item 3, while item 1 may be removed.
fn search(served: &Arc<Served>) -> Box<dyn FnOnce() + Send> {
    let served = Arc::clone(served);
    Box::new(move || {
        let (status, found) = served.ask("GET", "/api/v1/items/3/similar?k=2");
        assert_eq!(status, StatusCode::OK, "{found}");
        let ids = found["results"].as_array().unwrap().iter().map(|hit| hit["id"].as_str().unwrap());
        let ids: Vec<&str> = ids.collect();
        assert!(ids == ["2", "1"] || ids == ["2", "4"], "between: {ids:?}");
    })
}

#[test]
fn the_results_of_a_request_are_those_before_or_after_a_change() {
    let clock = clock();
    let _clock = clock.enter();
    check(1000, || {
        let served = Arc::new(Served::new());
        let change = {
            let served = Arc::clone(&served);
            Box::new(move || assert_eq!(served.ask("DELETE", "/api/v1/items/1").0, StatusCode::NO_CONTENT))
        };
        together(vec![search(&served), change]);
    });
}

#[test]
fn a_change_beside_a_reload_is_kept_or_refused_and_searches_see_one_state() {
    let clock = clock();
    let _clock = clock.enter();
    check(300, || {
        let served = Arc::new(Served::new());
        let status = Arc::new(std::sync::Mutex::new(None));
        let change = {
            let (served, status) = (Arc::clone(&served), Arc::clone(&status));
            Box::new(move || {
                let found = served.ask("DELETE", "/api/v1/items/1").0;
                *status.lock().unwrap() = Some(found);
            }) as Box<dyn FnOnce() + Send>
        };
        let reload = {
            let served = Arc::clone(&served);
            Box::new(move || {
                let outcome = served.reloader.reload(true, None).remove(0).outcome;
                assert!(matches!(outcome, Outcome::Reloaded { items: 3 | 4 }), "{outcome:?}");
            }) as Box<dyn FnOnce() + Send>
        };
        together(vec![change, reload, search(&served)]);
        let status = status.lock().unwrap().unwrap();
        let is_gone = match status {
            StatusCode::NO_CONTENT => true,
            StatusCode::SERVICE_UNAVAILABLE => false,
            other => panic!("{other}"),
        };
        let now = served.ask("GET", "/api/v1/items/1").0;
        assert_eq!(now == StatusCode::NOT_FOUND, is_gone, "{status}, then {now}");
        let stored = Gallery::open(&served.file, false).unwrap();
        assert_eq!(stored.catalog().row(1).is_none(), is_gone, "{status}, and in the file");
    });
}
