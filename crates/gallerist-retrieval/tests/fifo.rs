//! A named pipe in the place of a file is refused by every reader, and none waits for it.
#![cfg(unix)]

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use gallerist_retrieval::EmbeddingSet;
use gallerist_retrieval::file::{MappedCompact, MappedMatrix, load_labels, npy};
use gallerist_retrieval::index::{is_index, open_index};

/// The error of `read` for a named pipe of this name; a panic where it waits for good.
fn error_of<T>(
    name: &'static str,
    read: impl FnOnce(PathBuf) -> Result<T, gallerist_retrieval::Error> + Send + 'static,
) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let (done, wait) = mpsc::channel();
    std::thread::spawn(move || done.send(read(path).map(drop).map_err(|error| error.to_string())));
    let result = wait.recv_timeout(Duration::from_secs(60)).expect("the reader waits for a named pipe");
    result.expect_err("a named pipe is read")
}

#[test]
fn every_reader_refuses_a_named_pipe_without_waiting() {
    let errors = [
        error_of("x.npy", EmbeddingSet::load),
        error_of("x.safetensors", EmbeddingSet::load),
        error_of("x.npy", npy::read_matrix),
        error_of("x.npy", npy::read_labels),
        error_of("x.npy", load_labels),
        error_of("x.txt", load_labels),
        error_of("x.npy", MappedMatrix::open),
        error_of("x.safetensors", MappedMatrix::open),
        error_of("x.safetensors", MappedCompact::open),
        error_of("x.index", |path| open_index(path, false)),
        error_of("x.index", |path| open_index(path, true)),
        error_of("x.npy", |path| {
            assert!(!is_index(&path), "a named pipe is no index");
            EmbeddingSet::load(path)
        }),
    ];
    for (at, error) in errors.iter().enumerate() {
        assert!(error.ends_with("it is a named pipe, not a file"), "{at}: {error}");
    }
}
