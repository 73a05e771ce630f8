//! Galleries that are opened again while the server runs.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::common::{Fixture, Running, TOKEN, ids, options, with_token};
use gallerist_retrieval::{Code, EmbeddingSet};
use gallerist_serve::{Contents, Embedder, Gallery, Options, Outcome, Server};
use serde_json::json;

/// A server of one file without images and network, which it opens again.
fn served(file: &Path, options: Options) -> (Running, gallerist_serve::Reload) {
    let (own, writable) = (file.to_owned(), !options.tokens.is_empty());
    let server = Server::bind(Gallery::open(file, writable).unwrap().into(), options).unwrap();
    let server = server.with_reopen(move |_| Ok(Gallery::open(&own, writable)?.into()));
    let reload = server.reload().unwrap();
    (Running::of(server), reload)
}

fn replace(file: &Path, set: &EmbeddingSet) {
    let new = file.with_extension("new.safetensors");
    set.save(&new).unwrap();
    std::fs::rename(new, file).unwrap();
}

fn part(fixture: &Fixture, rows: usize) -> EmbeddingSet {
    fixture.set.select(&(0..rows).collect::<Vec<_>>())
}

#[test]
fn a_replaced_file_is_served_and_one_that_cannot_be_opened_is_not() {
    let fixture = Fixture::new();
    let file = fixture.file();
    let (server, _) = served(&file, with_token());
    let reload = |path: &str| server.send("POST", path, &[TOKEN], b"");
    let name = server.json("/api/v1/gallery")["gallery"].as_str().unwrap().to_owned();
    let unchanged = json!({
        "galleries": [{"gallery": name, "outcome": "unchanged", "items": null}],
        "error": null, "hint": null
    });
    assert_eq!(reload("/api/v1/reload").json(), unchanged);
    let first = server.items()[0].0.clone();
    let add = json!({"add": [first, server.items()[11].0]}).to_string();
    let headers = [TOKEN, ("Content-Type", "application/json")];
    assert_eq!(server.send("POST", "/api/v1/saved/tags/a", &headers, add.as_bytes()).status, 200);

    replace(&file, &part(&fixture, 8));
    assert_eq!(server.json("/api/v1/gallery")["count"], 12);
    let answer = reload("/api/v1/reload").json();
    assert_eq!(answer["galleries"], json!([{"gallery": name, "outcome": "reloaded", "items": 8}]));
    assert_eq!(server.json("/api/v1/gallery")["count"], 8);
    assert_eq!(ids(&server.json(&format!("/api/v1/items/{first}/similar?k=12"))).len(), 7);
    // Tags stay with their items, and wait for those that are gone.
    let tag = &server.json("/api/v1/saved")["tags"][0];
    assert_eq!((&tag["count"], &tag["unknown"]), (&json!(2), &json!(1)));

    std::fs::write(&file, b"no embeddings").unwrap();
    let answer = reload("/api/v1/reload");
    assert_eq!(answer.status, 500);
    let stays = format!("the gallery `{name}` stays as it was: ");
    assert!(answer.error().starts_with(&stays), "{}", answer.error());
    assert_eq!(answer.json()["galleries"][0]["outcome"], "failed");
    assert_eq!(server.json("/api/v1/gallery")["count"], 8);

    replace(&file, &fixture.set);
    assert_eq!(reload("/api/v1/reload").json()["galleries"][0]["items"], 12);
    assert_eq!(reload("/api/v1/reload?all=true").json()["galleries"][0]["outcome"], "reloaded");
    assert_eq!(reload("/api/v1/reload").json(), unchanged);

    assert_eq!(server.send("POST", "/api/v1/reload", &[], b"").status, 401);
    assert_eq!(
        server.send("POST", "/api/v1/reload", &[TOKEN, ("Origin", "http://evil.example")], b"").status,
        403
    );
    let fixed = Running::start(Gallery::open(&file, true).unwrap().into(), with_token());
    assert_eq!(fixed.send("POST", "/api/v1/reload", &[TOKEN], b"").status, 501);
}

#[test]
fn a_gallery_stays_as_it_was_while_its_tags_cannot_be_read() {
    let fixture = Fixture::new();
    let file = fixture.file();
    let (server, reload) = served(&file, options());
    let tags = fixture.path("gallery.safetensors.tags.json");
    std::fs::write(&tags, "{").unwrap();
    let fails = || match reload.now(false).remove(0).outcome {
        Outcome::Failed { problem, .. } => assert!(problem.contains("no JSON of tags"), "{problem}"),
        outcome => panic!("{outcome:?}"),
    };
    fails();
    replace(&file, &part(&fixture, 8));
    fails();
    assert_eq!(server.json("/api/v1/gallery")["count"], 12);
    std::fs::remove_file(&tags).unwrap();
    assert_eq!(reload.now(false).remove(0).outcome, Outcome::Reloaded { items: 8 });
}

#[test]
fn requests_during_fifty_reloads_are_all_answered() {
    let fixture = Fixture::new();
    let file = fixture.file();
    let (server, reload) = served(&file, options());
    let first = server.items()[0].0.clone();
    let done = AtomicBool::new(false);
    let answered = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                while !done.load(Ordering::Relaxed) {
                    let found = server.get(&format!("/api/v1/items/{first}/similar?k=12"));
                    assert_eq!(found.status, 200);
                    assert!([7, 11].contains(&ids(&found.json()).len()));
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        for round in 0..50 {
            replace(&file, &part(&fixture, if round % 2 == 0 { 8 } else { 12 }));
            let outcome = reload.now(false).remove(0).outcome;
            assert_eq!(outcome, Outcome::Reloaded { items: if round % 2 == 0 { 8 } else { 12 } });
        }
        done.store(true, Ordering::Relaxed);
    });
    assert!(answered.into_inner() > 0);
}

#[test]
fn one_of_several_galleries_is_opened_again() {
    let fixture = Fixture::new();
    let (one, two) = (fixture.file(), fixture.path("two.safetensors"));
    part(&fixture, 4).save(&two).unwrap();
    let files = [("one", one), ("two", two.clone())];
    let open = |file: &Path| Ok(Gallery::open(file, false)?.into());
    let galleries = files.iter().map(|(name, file)| Ok(((*name).to_owned(), open(file)?)));
    let galleries = galleries.collect::<gallerist_serve::Result<_>>().unwrap();
    let server = Server::bind_all(galleries, with_token()).unwrap();
    let server = server.with_reopen(move |name| open(&files.iter().find(|(own, _)| *own == name).unwrap().1));
    let reload = server.reload().unwrap();
    let server = Running::of(server);
    replace(&two, &part(&fixture, 6));
    let outcomes: Vec<Outcome> = reload.now(false).into_iter().map(|one| one.outcome).collect();
    assert_eq!(outcomes, [Outcome::Unchanged, Outcome::Reloaded { items: 6 }]);
    assert_eq!(server.json("/api/v1/gallery?gallery=two")["count"], 6);
    assert_eq!(server.json("/api/v1/gallery")["count"], 12);
    let metrics = String::from_utf8(server.get("/metrics").body).unwrap();
    assert!(metrics.contains("gallerist_items{gallery=\"two\"} 6\n"), "{metrics}");
    let answer = server.send("POST", "/api/v1/reload?all=true&gallery=two", &[TOKEN], b"").json();
    assert_eq!(answer["galleries"], json!([{"gallery": "two", "outcome": "reloaded", "items": 6}]));
    drop(server);
    assert_eq!(reload.now(true), []);
}

#[test]
fn a_change_during_a_reload_is_refused_and_one_before_it_is_kept() {
    let fixture = Fixture::new();
    let file = fixture.index_file();
    let (own, waits) = (file.clone(), Arc::new((AtomicBool::new(false), AtomicBool::new(false))));
    let server = Server::bind(Gallery::open(&file, true).unwrap().into(), with_token()).unwrap();
    let during = Arc::clone(&waits);
    let server = server.with_reopen(move |_| {
        let contents = Gallery::open(&own, true)?.into();
        during.0.store(true, Ordering::Release);
        while !during.1.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        Ok(contents)
    });
    let reload = server.reload().unwrap();
    let server = Running::of(server);
    let items = server.items();
    let delete = |at: usize| {
        let path = format!("/api/v1/items/{}", items[at].0);
        server.send("DELETE", &path, &[TOKEN], b"").status
    };
    assert_eq!(delete(0), 204);
    // The server's own change is none that has to be read.
    assert_eq!(reload.now(false)[0].outcome, Outcome::Unchanged);
    std::thread::scope(|scope| {
        let reloading = scope.spawn(|| reload.now(true));
        while !waits.0.load(Ordering::Acquire) {
            std::thread::yield_now();
        }
        assert_eq!(delete(1), 503);
        assert_eq!(server.json("/api/v1/gallery")["count"], 11);
        waits.1.store(true, Ordering::Release);
        assert_eq!(reloading.join().unwrap()[0].outcome, Outcome::Reloaded { items: 11 });
    });
    assert_eq!(delete(1), 204);
    assert_eq!(server.json("/api/v1/gallery")["count"], 10);
}

#[test]
fn a_reload_that_takes_longer_than_other_answers_may_is_answered() {
    let fixture = Fixture::new();
    let file = fixture.file();
    let short = Duration::from_millis(200);
    let options = Options { time: short, upload_time: short, ..with_token() };
    let server = Server::bind(Gallery::open(&file, false).unwrap().into(), options).unwrap();
    let server = Running::of(server.with_reopen(move |_| {
        std::thread::sleep(Duration::from_secs(1));
        Ok(Gallery::open(&file, false)?.into())
    }));
    let answer = server.send("POST", "/api/v1/reload?all=true", &[TOKEN], b"");
    assert_eq!(answer.status, 200);
    assert_eq!(answer.json()["galleries"][0]["outcome"], "reloaded");
}

/// The number of times that a file is mapped into this process.
#[cfg(target_os = "linux")]
fn mapped(file: &Path) -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains(&*file.to_string_lossy())).count()
}

/// A network that counts how many of its kind exist.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(alive: &Arc<AtomicUsize>) -> Arc<Self> {
        alive.fetch_add(1, Ordering::SeqCst);
        Arc::new(Self(Arc::clone(alive)))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

impl Embedder for Counted {
    fn dimensions(&self) -> usize {
        4
    }

    fn fingerprint(&self) -> &str {
        "colours"
    }

    fn embed(&self, _: &gallerist_data::Image) -> Result<Vec<f32>, String> {
        Ok(vec![1.0; 4])
    }
}

#[test]
fn after_fifty_reloads_one_gallery_and_one_network_are_in_memory() {
    let fixture = Fixture::new();
    let int8 = fixture.path("compact.safetensors");
    fixture.set.save_compact(&int8, Code::Int8).unwrap();
    for file in [int8, fixture.index_file()] {
        let alive = Arc::new(AtomicUsize::new(0));
        let (own, counter) = (file.clone(), Arc::clone(&alive));
        let open = move || {
            let contents = Contents::from(Gallery::open(&own, false)?);
            Ok(Contents { embedder: Some(Counted::new(&counter)), ..contents })
        };
        let server = Server::bind(open().unwrap(), options()).unwrap();
        let server = server.with_reopen(move |_| open());
        let reload = server.reload().unwrap();
        let server = Running::of(server);
        let first = server.items()[0].0.clone();
        #[cfg(target_os = "linux")]
        let before = mapped(&file);
        for _ in 0..50 {
            assert_eq!(reload.now(true)[0].outcome, Outcome::Reloaded { items: 12 });
            assert_eq!(server.get(&format!("/api/v1/items/{first}/similar")).status, 200);
        }
        server.ready("/api/v1/map");
        // The last requests and the analysis of an old gallery end a moment later.
        let until = Instant::now() + Duration::from_secs(20);
        let is_released = || {
            #[cfg(target_os = "linux")]
            return alive.load(Ordering::SeqCst) == 1 && mapped(&file) <= before;
            #[cfg(not(target_os = "linux"))]
            return alive.load(Ordering::SeqCst) == 1;
        };
        while !is_released() && Instant::now() < until {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(is_released(), "{}: {} networks", file.display(), alive.load(Ordering::SeqCst));
        drop(server);
        assert_eq!(alive.load(Ordering::SeqCst), 0);
    }
}
