//! Mapped files that another program cuts short, writes into or replaces while a command reads them.

use std::fs::{self, OpenOptions};
use std::process::Stdio;

use gallerist::retrieval::{EmbeddingSet, Matrix};

use super::common::served::Served;
use super::common::text;
use super::{Harness, Tree, tree};

/// What the other program does, right after the mapping.
const CHANGES: [&str; 3] = ["map cut", "map write", "map replace"];

/// A megabyte: reading beyond the end of a page that was cut off raises SIGBUS.
fn rows(seed: usize) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("x.safetensors");
    let values = (0..4000 * 64).map(|at| ((at * 7 + seed) * (at + 3) % 1009) as f32 / 512.0 - 1.0).collect();
    let set = EmbeddingSet {
        labels: Some((0..4000).map(|row| format!("class {}", row % 40)).collect()),
        paths: Some((0..4000).map(|row| format!("{seed}/{row}.jpg")).collect()),
        ..Matrix::new(4000, 64, values).unwrap().into()
    };
    set.save(&path).unwrap();
    fs::read(path).unwrap()
}

/// Large embeddings, few queries, and an index of each kind.
fn start(harness: &Harness) -> Tree {
    let mut start =
        Tree::from([("a.safetensors".into(), rows(1)), ("q.safetensors".into(), super::embeddings(1))]);
    start.insert("q.safetensors".into(), {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("q.safetensors");
        EmbeddingSet::from(Matrix::new(3, 64, vec![0.25; 3 * 64]).unwrap()).save(&path).unwrap();
        fs::read(path).unwrap()
    });
    harness.begin(&start);
    for line in [
        "convert a.safetensors --out compact.safetensors --precision int8",
        "index build a.safetensors --out exact.index --kind exact",
        "index build a.safetensors --out hnsw.index --kind hnsw",
    ] {
        harness.succeeds(line, "the start");
    }
    tree(&harness.dir)
}

#[test]
fn a_file_that_changes_while_a_command_reads_it_is_an_error_and_no_crash() {
    let harness = Harness::new();
    let mut start = start(&harness);
    // What takes the place of a mapped file: it is whole, and another one.
    start.insert("other".into(), start["q.safetensors"].clone());
    let (mut refused, mut unharmed) = (0, 0);
    for line in [
        "index search exact.index --queries q.safetensors -k 3",
        "index search hnsw.index --queries q.safetensors -k 3",
        "index info hnsw.index",
        "convert compact.safetensors --out out.safetensors",
        "evaluate --query-embeddings q.safetensors --gallery-embeddings compact.safetensors",
        "info hnsw.index",
        "info compact.safetensors",
        "index remove hnsw.index --path 1/3.jpg",
    ] {
        harness.begin(&start);
        let undisturbed = harness.run(line, None);
        for change in CHANGES {
            for at in 1.. {
                let when = format!("`{line}`, mapping {at}, {change}");
                harness.begin(&start);
                let mut command = harness.command(line, Some((change, at)));
                let out = command.env("FAULT_OTHER", harness.dir.join("other")).output().unwrap();
                let message = text(&out.stderr);
                // No file was mapped so often.
                if harness.operations() >> 32 == 0 {
                    break;
                }
                match out.status.code() {
                    Some(0) => {
                        assert_eq!(text(&out.stdout), text(&undisturbed.stdout), "{when}: another answer");
                        unharmed += 1;
                    }
                    Some(2) => {
                        assert!(message.contains("error: "), "{when}: {message}");
                        refused += 1;
                    }
                    code => panic!("{when}: exit code {code:?}: {message}"),
                }
            }
        }
    }
    println!("files changed while mapped: {refused} errors, {unharmed} with the right answer");
    assert!(refused > 0 && unharmed > 0);
}

#[test]
fn a_server_whose_gallery_is_cut_short_answers_with_errors_until_it_is_replaced() {
    let harness = Harness::new();
    let start = start(&harness);
    for gallery in ["hnsw.index", "exact.index", "compact.safetensors"] {
        harness.begin(&start);
        let line = format!("serve --gallery {gallery} --writable --token secret --port 0 --analysis-limit 0");
        let mut command = harness.command(&line, None);
        let mut server = Served::of({
            command.stderr(Stdio::null());
            command
        })
        .unwrap();
        let id = server.json("/api/v1/items?limit=1")["items"][0]["id"].as_str().unwrap().to_owned();
        let search = format!("/api/v1/items/{id}/similar?k=3");
        let results =
            |body: &[u8]| serde_json::from_slice::<serde_json::Value>(body).unwrap()["results"].clone();
        let answer = results(&server.get(&search));

        let path = harness.dir.join(gallery);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_len(fs::metadata(&path).unwrap().len() / 2).unwrap();
        let (status, body) = server.ask("GET", &search, "", b"");
        // What was read into memory before is not affected.
        match status {
            200 => {
                assert_eq!(results(&body), answer, "{gallery}")
            }
            status => {
                assert_eq!(status, 500, "{gallery}");
                assert!(text(&body).contains("changed while it was in use"), "{gallery}: {}", text(&body));
            }
        }
        assert_eq!(server.ask("GET", "/health", "", b"").0, 200, "{gallery}");

        fs::write(harness.dir.join("new"), &start[gallery]).unwrap();
        fs::rename(harness.dir.join("new"), &path).unwrap();
        let headers = "Authorization: Bearer secret\r\nContent-Type: application/json\r\n";
        let (status, body) = server.ask("POST", "/api/v1/reload", headers, b"");
        assert_eq!(status, 200, "{gallery}: {}", text(&body));
        assert_eq!(results(&server.get(&search)), answer, "{gallery}");
        server.stop();
    }
}
