//! The readers of outside bytes, as functions that a fuzzer calls.
//!
//! A [`Target`] is one reader: it gives the reader any bytes, by the same calls and limits as the program, and panics
//! where a promise is broken:
//!
//! * the reader does not panic;
//! * what it accepts agrees with an oracle: another decoder, the mapped form of the same file, or itself after it was
//!   written again;
//! * CPU time and memory are linear in the bytes, and for pictures in the pixels that a header declares ([`cost`]).
//!
//! Checksums are no obstacle: where a format has one, the target recomputes it first. The corpus of a target must reach its goals
//! ([`Target::goals`]), such as a decoded image.
//!
//! `fuzz/` has the programs for cargo-fuzz. `tests/replay.rs` runs all targets on the committed corpus and on the inputs of
//! faults that were found.

pub mod cost;
mod goals;
pub mod growth;
mod repair;
mod scratch;
mod targets;

use std::path::{Path, PathBuf};

pub use goals::take_reached;
pub use targets::{Target, target, targets};

/// The committed inputs of a target, by path: `kind` is `corpus` or `regressions`. Empty where there is no such folder.
///
/// # Panics
/// Where an input cannot be read.
pub fn inputs(kind: &str, target: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz").join(kind).join(target);
    let entries = std::fs::read_dir(folder).into_iter().flatten();
    let mut paths: Vec<PathBuf> =
        entries.map(|entry| entry.expect("an entry of the folder").path()).collect();
    paths.sort();
    let read = |path: PathBuf| {
        let bytes = std::fs::read(&path).expect("an input is read");
        (path, bytes)
    };
    paths.into_iter().map(read).collect()
}

/// Removes the temporary files of this process.
pub fn remove_temporary_files() {
    scratch::remove();
}
