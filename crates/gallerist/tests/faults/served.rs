//! Changes through the server: what it acknowledged is there after a fault, everything else as a whole or not at all.

use std::fs;
use std::process::Stdio;

use gallerist::retrieval::file::is_stray;
use serde_json::Value;

use super::common::bitmap;
use super::common::served::Served;
use super::power::numbers;
use super::{FAULTS, Harness, KILLS, Part, STATES, TRIED, Tree, embeddings, few, photos, places, tree};

const AUTHORIZED: &str = "Authorization: Bearer secret\r\n";
const OPTIONS: &str = "--writable --token secret --port 0 --analysis-limit 0 --audit audit.jsonl";

/// A change of a gallery, and how to see whether it was made.
enum Change {
    /// Items are added to a tag.
    Tag(&'static str, Vec<String>),
    /// An item is removed.
    Remove(String),
    /// An image of this brightness is added under this path.
    Add(&'static str, u8),
}

impl Change {
    /// The status of the answer, if there is one.
    fn send(&self, server: &Served) -> Option<u16> {
        let json = format!("{AUTHORIZED}Content-Type: application/json\r\n");
        let answer = match self {
            Self::Tag(name, ids) => {
                let body = serde_json::json!({ "add": ids }).to_string();
                server.try_ask("POST", &format!("/api/v1/saved/tags/{name}"), &json, body.as_bytes())
            }
            Self::Remove(id) => server.try_ask("DELETE", &format!("/api/v1/items/{id}"), &json, b""),
            Self::Add(path, brightness) => {
                let part = "--limit\r\nContent-Disposition: form-data; name=";
                let head =
                    format!("{part}\"path\"\r\n\r\n{path}\r\n{part}\"image\"; filename=\"a.bmp\"\r\n\r\n");
                let form = [head.as_bytes(), &bitmap(*brightness), b"\r\n--limit--\r\n"].concat();
                let headers = format!("{AUTHORIZED}Content-Type: multipart/form-data; boundary=limit\r\n");
                server.try_ask("POST", "/api/v1/items", &headers, &form)
            }
        };
        Some(answer?.0)
    }

    /// Whether it was made; a part of it is a failure of the test.
    fn is_made(&self, server: &Served) -> bool {
        match self {
            Self::Tag(name, ids) => {
                let (status, body) =
                    server.ask("GET", &format!("/api/v1/items?tag={name}&limit=100"), "", b"");
                if status == 404 {
                    return false;
                }
                let found: Value = serde_json::from_slice(&body).unwrap();
                let found = found["items"].as_array().map_or(0, Vec::len);
                assert!(found == ids.len(), "{name}: {found} of {} items", ids.len());
                true
            }
            Self::Remove(id) => server.ask("GET", &format!("/api/v1/items/{id}"), "", b"").0 == 404,
            Self::Add(path, _) => {
                let items = server.json("/api/v1/items?limit=200");
                items["items"].as_array().unwrap().iter().any(|item| item["path"] == *path)
            }
        }
    }

    /// What an entry of the audit log has of it.
    fn mark(&self) -> String {
        match self {
            Self::Tag(name, _) => format!("\"name\":\"{name}\""),
            Self::Remove(id) => format!("\"change\":\"remove\",\"item\":\"{id}\""),
            Self::Add(path, _) => format!("\"path\":\"{path}\""),
        }
    }
}

/// Changes of other items each.
fn changes(ids: &[String]) -> Vec<Change> {
    let id = |at: usize| ids[at].clone();
    vec![
        Change::Remove(id(0)),
        Change::Tag("blurred", (1..4).map(id).collect()),
        Change::Remove(id(4)),
        Change::Tag("poster", (5..8).map(id).collect()),
        Change::Remove(id(8)),
    ]
}

/// Uploads among the changes.
fn uploads(ids: &[String]) -> Vec<Change> {
    let id = |at: usize| ids[at].clone();
    vec![
        Change::Add("new/1.bmp", 11),
        Change::Remove(id(0)),
        Change::Add("new/2.bmp", 222),
        Change::Tag("blurred", (1..4).map(id).collect()),
        Change::Add("new/3.bmp", 133),
    ]
}

/// A server, and the changes that a client sends to it.
struct Session<'a> {
    harness: &'a Harness,
    name: &'a str,
    start: Tree,
    line: String,
    changes: Vec<Change>,
}

impl<'a> Session<'a> {
    fn new(
        harness: &'a Harness,
        name: &'a str,
        start: Tree,
        further: &str,
        changes: fn(&[String]) -> Vec<Change>,
    ) -> Self {
        let line = format!("serve --gallery a.index {OPTIONS} {further}");
        harness.begin(&start);
        let mut server = Served::of(harness.command(&line, None)).unwrap();
        let items = server.json("/api/v1/items?limit=20");
        let ids = items["items"].as_array().unwrap().iter();
        let ids: Vec<String> = ids.map(|item| item["id"].as_str().unwrap().to_owned()).collect();
        server.stop();
        Session { harness, name, start, line, changes: changes(&ids) }
    }

    fn serve(&self, fault: Option<(&str, usize)>) -> Option<Served> {
        // A server that is killed at its start has changed nothing.
        let mut command = self.harness.command(&self.line, fault);
        command.stderr(Stdio::null());
        Served::of(command)
    }

    /// After a fault, the server starts, has the changes that were acknowledged, and makes the others.
    fn ends(&self, acknowledged: &[bool], when: &str) {
        let mut server = self.serve(None).expect("a server that starts again");
        let audit = fs::read_to_string(self.harness.dir.join("audit.jsonl")).unwrap_or_default();
        for (at, (change, is_acknowledged)) in self.changes.iter().zip(acknowledged).enumerate() {
            let is_made = change.is_made(&server);
            assert!(is_made || !is_acknowledged, "{when}: change {at} was acknowledged and is lost");
            assert!(
                !is_made || audit.contains(&change.mark()),
                "{when}: change {at} was not logged: {audit}"
            );
        }
        for change in &self.changes {
            let status = change.send(&server);
            assert!(matches!(status, Some(200..300 | 404)), "{when}: {status:?}");
            assert!(change.is_made(&server), "{when}");
        }
        server.stop();
        // The server may have been told to end while it wrote its map; the next command that writes tidies up.
        self.harness.succeeds("index add a.index more.safetensors", when);
        let strays: Vec<String> = tree(&self.harness.dir).into_keys().filter(|name| is_stray(name)).collect();
        assert!(strays.is_empty(), "{when}: {strays:?}");
    }

    fn operations_fail(&self) {
        self.harness.begin(&self.start);
        let mut server = self.serve(None).unwrap();
        for change in &self.changes {
            let status = change.send(&server);
            assert!(matches!(status, Some(200..300)), "{status:?}");
        }
        server.stop();
        let operations = self.harness.operations();
        let (mut acknowledged, mut refused, mut lost) = (0, 0, 0);
        for fault in FAULTS {
            for at in places(operations, TRIED) {
                let when = format!("{}, operation {at} of {operations}, {fault}", self.name);
                self.harness.begin(&self.start);
                let mut made = vec![false; self.changes.len()];
                if let Some(mut server) = self.serve(Some((fault, at))) {
                    for (change, is_acknowledged) in self.changes.iter().zip(&mut made) {
                        match change.send(&server) {
                            Some(200..300) => {
                                acknowledged += 1;
                                *is_acknowledged = true;
                            }
                            // A write that replaced the file and failed afterwards makes the gallery outdated.
                            Some(409 | 500..600) => refused += 1,
                            None => {
                                lost += 1;
                                break;
                            }
                            Some(status) => panic!("{when}: {status}"),
                        }
                    }
                    if !fault.contains("killed") {
                        server.json("/api/v1/items?limit=1");
                        server.stop();
                    }
                }
                self.ends(&made, &when);
            }
        }
        println!(
            "serve, {}: {operations} operations, {acknowledged} changes acknowledged, {refused} refused, {lost} without an \
             answer",
            self.name
        );
        assert!(acknowledged > 0 && refused > 0 && lost > 0);
    }

    /// The server is killed while clients send changes.
    fn killed_by_chance(&self) {
        let kills = if Part::Moments.is_whole() { KILLS.0 } else { KILLS.1 };
        for random in numbers(23).take(kills) {
            let after = std::time::Duration::from_micros(random % 40_000);
            let when = format!("{}, killed {after:?} after the start", self.name);
            self.harness.begin(&self.start);
            let mut server = self.serve(None).unwrap();
            let pid = server.child.id().to_string();
            let killer = std::thread::spawn(move || {
                std::thread::sleep(after);
                std::process::Command::new("kill").args(["-9", &pid]).status().unwrap()
            });
            let made: Vec<bool> =
                self.changes.iter().map(|change| matches!(change.send(&server), Some(200..300))).collect();
            killer.join().unwrap();
            server.child.wait().unwrap();
            self.ends(&made, &when);
        }
        println!("serve, {}: killed at {kills} moments", self.name);
    }

    fn power_is_lost(&self) {
        let mut acknowledged = Vec::new();
        let record = self.harness.record(&self.start, |harness| {
            let mut server = self.serve(None).unwrap();
            for change in &self.changes {
                assert!(matches!(change.send(&server), Some(200..300)));
                acknowledged.push(fs::read(&harness.record).unwrap().len());
            }
            server.stop();
        });
        let mut found = record.whole();
        found.retain(|name, _| !name.ends_with('/'));
        assert!(found == tree(&self.harness.dir), "{}: an operation was not recorded", self.name);
        let states = record.states();
        let tried = few(Part::Power, states.len(), STATES);
        for state in tried.iter().map(|&at| &states[at]) {
            let when = format!("{}, {}", self.name, state.what);
            let made: Vec<bool> =
                acknowledged.iter().map(|&bytes| record.operations_at(bytes) <= state.done).collect();
            self.harness.begin(&state.tree);
            self.ends(&made, &when);
        }
        println!(
            "serve, {}: {} operations recorded, {} folders after a loss of power, {} tried",
            self.name,
            record.len(),
            states.len(),
            tried.len()
        );
    }

    fn check(&self) {
        self.operations_fail();
        self.killed_by_chance();
        self.power_is_lost();
    }
}

#[test]
fn changes_through_the_server() {
    let harness = Harness::new();
    for kind in ["exact", "hnsw"] {
        let start = Tree::from([("a.safetensors".into(), embeddings(1))]);
        harness.begin(&start);
        harness.succeeds(&format!("index build a.safetensors --out a.index --kind {kind}"), "the start");
        let index = fs::read(harness.dir.join("a.index")).unwrap();
        let start = Tree::from([("a.index".into(), index), ("more.safetensors".into(), embeddings(2))]);
        Session::new(&harness, kind, start, "", changes).check();
    }
}

#[test]
fn uploads_to_the_server() {
    let harness = Harness::new();
    let mut start = photos();
    harness.begin(&start);
    for line in [
        "embed --run run --checkpoint last --images photos --out more.safetensors",
        "index build more.safetensors --out a.index --kind exact",
    ] {
        harness.succeeds(line, "the start");
    }
    for name in ["a.index", "more.safetensors"] {
        start.insert(name.into(), fs::read(harness.dir.join(name)).unwrap());
    }
    Session::new(&harness, "uploads", start, "--run run --checkpoint last", uploads).check();
}
