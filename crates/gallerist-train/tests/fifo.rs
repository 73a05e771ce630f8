//! A named pipe in the place of a run's files or of weights is refused, and nothing waits for it.
#![cfg(unix)]

use std::path::PathBuf;
use std::sync::mpsc;
use std::time::Duration;

use gallerist_tensor::params;
use gallerist_train::checkpoint::Checkpoint;
use gallerist_train::{RunConfig, log};
use gallerist_weights as weights;

/// The error of `read` for a named pipe; a panic where it waits for good.
fn error_of<T, E: std::fmt::Display>(read: impl FnOnce(PathBuf) -> Result<T, E> + Send + 'static) -> String {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    let (done, wait) = mpsc::channel();
    std::thread::spawn(move || done.send(read(path).map(drop).map_err(|error| error.to_string())));
    let result = wait.recv_timeout(Duration::from_secs(60)).expect("the reader waits for a named pipe");
    result.expect_err("a named pipe is read")
}

#[test]
fn every_reader_refuses_a_named_pipe_without_waiting() {
    for error in [
        error_of(|path| weights::read(&path)),
        error_of(|path| Checkpoint::load(&path)),
        error_of(|path| params::read(&path)),
        error_of(|path| RunConfig::load(&path, &[])),
        error_of(|path| log::read(&path)),
    ] {
        assert!(error.contains("it is a named pipe, not a file"), "{error}");
    }
}
