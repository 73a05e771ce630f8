//! Changes through the server: what it acknowledged is there after a fault, everything else as a whole or not at all.

use std::fs;

use gallerist::retrieval::file::is_stray;

use super::common::served::Served;
use super::{FAULTS, Harness, Tree, embeddings, places, tree};

const SERVE: &str = "serve --gallery a.index --writable --token secret --port 0 --analysis-limit 0";
const HEADERS: &str = "Authorization: Bearer secret\r\nContent-Type: application/json\r\n";

/// A change of a gallery, and how to see whether it was made.
enum Change {
    /// Items are added to a tag.
    Tag(&'static str, Vec<String>),
    /// An item is removed.
    Remove(String),
}

impl Change {
    /// The status of the answer, if there is one.
    fn send(&self, server: &Served) -> Option<u16> {
        let answer = match self {
            Self::Tag(name, ids) => {
                let body = serde_json::json!({ "add": ids }).to_string();
                server.try_ask("POST", &format!("/api/v1/saved/tags/{name}"), HEADERS, body.as_bytes())
            }
            Self::Remove(id) => server.try_ask("DELETE", &format!("/api/v1/items/{id}"), HEADERS, b""),
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
                let found: serde_json::Value = serde_json::from_slice(&body).unwrap();
                let found = found["items"].as_array().map_or(0, Vec::len);
                assert!(found == ids.len(), "{name}: {found} of {} items", ids.len());
                true
            }
            Self::Remove(id) => server.ask("GET", &format!("/api/v1/items/{id}"), "", b"").0 == 404,
        }
    }
}

/// The changes, each of other items.
fn changes(ids: &[String]) -> Vec<Change> {
    let id = |at: usize| ids[at].clone();
    vec![
        Change::Remove(id(0)),
        Change::Tag("blurred", (1..4).map(id).collect()),
        Change::Remove(id(4)),
        Change::Tag("poster", (5..12).map(id).collect()),
        Change::Remove(id(12)),
    ]
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

        harness.begin(&start);
        let mut server = Served::of(harness.command(SERVE, None)).unwrap();
        let items = server.json("/api/v1/items?limit=20");
        let ids = items["items"].as_array().unwrap().iter();
        let ids: Vec<String> = ids.map(|item| item["id"].as_str().unwrap().to_owned()).collect();
        for change in changes(&ids) {
            let status = change.send(&server);
            assert!(matches!(status, Some(200..300)), "{status:?}");
        }
        server.stop();
        let operations = harness.operations();
        let (mut acknowledged, mut refused, mut lost) = (0, 0, 0);
        for fault in FAULTS {
            for at in places(operations) {
                let when = format!("{kind}, operation {at} of {operations}, {fault}");
                harness.begin(&start);
                let mut sent = Vec::new();
                // A server that is killed at its start has changed nothing.
                let mut command = harness.command(SERVE, Some((fault, at)));
                command.stderr(std::process::Stdio::null());
                if let Some(mut server) = Served::of(command) {
                    for change in changes(&ids) {
                        let status = change.send(&server);
                        match status {
                            Some(200..300) => acknowledged += 1,
                            Some(500..600) => refused += 1,
                            None => lost += 1,
                            Some(status) => panic!("{when}: {status}"),
                        }
                        sent.push((change, matches!(status, Some(200..300))));
                        if status.is_none() {
                            break;
                        }
                    }
                    if !fault.contains("killed") {
                        server.json("/api/v1/items?limit=1");
                        server.stop();
                    }
                }
                let mut server =
                    Served::of(harness.command(SERVE, None)).expect("a server that starts again");
                for (at, (change, is_acknowledged)) in sent.iter().enumerate() {
                    let is_made = change.is_made(&server);
                    assert!(is_made || !is_acknowledged, "{when}: change {at} was acknowledged and is lost");
                }
                for (change, _) in &sent {
                    let status = change.send(&server);
                    assert!(matches!(status, Some(200..300 | 404)), "{when}: {status:?}");
                    assert!(change.is_made(&server), "{when}");
                }
                server.stop();
                // The server may have been told to end while it wrote its map; the next command that writes tidies up.
                harness.succeeds("index add a.index more.safetensors", &when);
                let strays: Vec<String> =
                    tree(&harness.dir).into_keys().filter(|name| is_stray(name)).collect();
                assert!(strays.is_empty(), "{when}: {strays:?}");
            }
        }
        println!(
            "serve, {kind}: {operations} operations, {acknowledged} changes acknowledged, {refused} refused, {lost} \
             without an answer"
        );
        assert!(acknowledged > 0 && refused > 0 && lost > 0);
    }
}
