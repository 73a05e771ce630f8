//! Named pipes in the place of files: a reader must refuse them and must not wait.

use std::fmt::Display;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::mpsc;
use std::time::Duration;

/// How long a reader may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Makes a named pipe.
///
/// # Panics
///
/// If `mkfifo` fails.
pub fn make(path: &Path) {
    assert!(Command::new("mkfifo").arg(path).status().expect("mkfifo exists").success());
}

/// The result of `work`, which runs on a thread of its own.
///
/// # Panics
///
/// If it takes longer than a minute: it waits for a named pipe.
pub fn in_time<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, wait) = mpsc::channel();
    std::thread::spawn(move || done.send(work()));
    wait.recv_timeout(PATIENCE).expect("the reader waits for a named pipe")
}

/// The error of `read` for a named pipe of this name.
///
/// # Panics
///
/// If the pipe is read, or waited for.
pub fn error_of<T, E: Display>(
    name: &str,
    read: impl FnOnce(PathBuf) -> Result<T, E> + Send + 'static,
) -> String {
    let folder = tempfile::tempdir().expect("a temporary directory");
    let path = folder.path().join(name);
    make(&path);
    let result = in_time(move || read(path).map(drop).map_err(|error| error.to_string()));
    result.expect_err("a named pipe is read")
}
