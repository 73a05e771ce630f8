//! `weights fetch` from a server that ends early, sends other bytes, or stops sending.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::common::text;
use super::{Harness, Tree, Work, tree};

/// How a server answers.
#[derive(Clone, Copy, PartialEq)]
enum Manner {
    Whole,
    /// It closes the connection after half of what it was asked for.
    Early,
    /// It closes the connection before it answers.
    Silent,
    /// As many other bytes.
    Wrong,
    /// It sends half of what it was asked for, and then nothing.
    Hangs,
}

struct Server {
    address: String,
    manner: Arc<Mutex<Manner>>,
    /// Bytes that were sent.
    sent: Arc<AtomicUsize>,
}

impl Server {
    fn start(bytes: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = format!("http://{}/models/w.pth", listener.local_addr().unwrap());
        let (manner, sent) = (Arc::new(Mutex::new(Manner::Whole)), Arc::new(AtomicUsize::new(0)));
        let (of_thread, sent_by_thread) = (Arc::clone(&manner), Arc::clone(&sent));
        std::thread::spawn(move || {
            // Those that hang stay open.
            let mut open = Vec::new();
            for stream in listener.incoming() {
                let manner = *of_thread.lock().unwrap_or_else(PoisonError::into_inner);
                // A client that was killed does not read the answer.
                if let Ok(stream) = answer(stream.unwrap(), &bytes, manner, &sent_by_thread)
                    && manner == Manner::Hangs
                {
                    open.push(stream);
                }
            }
        });
        Server { address, manner, sent }
    }

    fn set(&self, manner: Manner) {
        *self.manner.lock().unwrap() = manner;
        self.sent.store(0, Ordering::SeqCst);
    }

    fn sent(&self) -> usize {
        self.sent.load(Ordering::SeqCst)
    }
}

fn answer(
    mut stream: TcpStream,
    bytes: &[u8],
    manner: Manner,
    sent: &AtomicUsize,
) -> std::io::Result<TcpStream> {
    let mut from = 0;
    for line in BufReader::new(&stream).lines() {
        let line = line?.to_ascii_lowercase();
        if let Some(range) = line.strip_prefix("range: bytes=") {
            from = range.trim_end_matches('-').parse().unwrap();
        }
        if line.is_empty() {
            break;
        }
    }
    if manner == Manner::Silent {
        return Ok(stream);
    }
    let (part, total) = (&bytes[from.min(bytes.len())..], bytes.len());
    let head = match from {
        0 => format!("HTTP/1.1 200 OK\r\nContent-Length: {total}\r\nConnection: close\r\n\r\n"),
        _ if part.is_empty() => {
            "HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".into()
        }
        _ => format!(
            "HTTP/1.1 206 Partial Content\r\nContent-Length: {}\r\nContent-Range: bytes {from}-{}/{total}\r\nConnection: close\r\n\r\n",
            part.len(),
            total - 1
        ),
    };
    stream.write_all(head.as_bytes())?;
    let part = match manner {
        Manner::Early | Manner::Hangs => part[..part.len().div_ceil(2)].to_vec(),
        Manner::Wrong => part.iter().map(|byte| !byte).collect(),
        _ => part.to_vec(),
    };
    stream.write_all(&part)?;
    sent.fetch_add(part.len(), Ordering::SeqCst);
    Ok(stream)
}

fn weights() -> (Vec<u8>, String) {
    let bytes: Vec<u8> = (0..200_000u32).map(|at| (at.wrapping_mul(at) >> 7) as u8).collect();
    let sha256 = gallerist_util::hex::sha256(&bytes);
    (bytes, sha256)
}

fn line(server: &Server, sha256: &str) -> String {
    format!("weights fetch {} --sha256 {sha256} --out w.pth", server.address)
}

#[test]
fn fetched_weights() {
    let harness = Harness::new();
    let (bytes, sha256) = weights();
    let server = Server::start(bytes);
    let line = line(&server, &sha256);
    let start = Tree::from([("notes.txt".into(), b"of the user".to_vec())]);
    // What came so far has a name of its own.
    let is_part = |path: &Path| path.ends_with("w.pth.part");
    harness.check(&Work { is_whole: &is_part, varies: true, ..Work::new(&start, &line, &|_| line.clone()) });
}

#[test]
fn a_server_that_ends_early_or_hangs_delays_and_one_that_sends_other_bytes_is_refused() {
    let harness = Harness::new();
    let (bytes, sha256) = weights();
    let server = Server::start(bytes.clone());
    let line = line(&server, &sha256);
    let (whole, none) = (Tree::from([("w.pth".into(), bytes.clone())]), Tree::new());
    let fails = |reason: &str| {
        let out = harness.run(&line, None);
        assert_eq!(out.status.code(), Some(2));
        assert!(text(&out.stderr).contains(reason), "{}", text(&out.stderr));
    };

    // Each request brings half of the rest: the command ends with the last byte.
    harness.begin(&none);
    server.set(Manner::Early);
    harness.succeeds(&line, "early");
    assert_eq!(tree(&harness.dir), whole);
    assert_eq!(server.sent(), bytes.len(), "no byte is sent twice");

    harness.begin(&none);
    server.set(Manner::Silent);
    fails("error: ");
    assert_eq!(tree(&harness.dir), none);

    server.set(Manner::Wrong);
    fails("SHA-256");
    assert_eq!(tree(&harness.dir), none, "other bytes are thrown away");

    // The client is killed while it waits; the next one continues.
    server.set(Manner::Hangs);
    let mut child = harness.command(&line, None).stderr(Stdio::null()).spawn().unwrap();
    let part = harness.dir.join("w.pth.part");
    while part.metadata().map_or(0, |part| part.len()) < bytes.len() as u64 / 2 {
        assert!(child.try_wait().unwrap().is_none());
        std::thread::sleep(Duration::from_millis(5));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    server.set(Manner::Whole);
    harness.succeeds(&line, "after the hanging server");
    assert_eq!(tree(&harness.dir), whole);
    assert_eq!(server.sent(), bytes.len() - bytes.len() / 2, "only the rest is sent");

    // A part of another file: its bytes are of no use, and the file is fetched from the beginning.
    harness.begin(&Tree::from([("w.pth.part".into(), vec![7; 1000])]));
    server.set(Manner::Whole);
    harness.succeeds(&line, "with a part of another file");
    assert_eq!(tree(&harness.dir), whole);

    // A loss of power during the renaming left both names.
    harness.begin(&Tree::from([("w.pth".into(), bytes.clone()), ("w.pth.part".into(), bytes)]));
    harness.succeeds(&line, "with both names");
    assert_eq!(tree(&harness.dir), whole);
}
