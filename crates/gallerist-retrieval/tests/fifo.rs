//! A named pipe in the place of a file is refused by every reader, and none waits for it.
#![cfg(unix)]

use gallerist_retrieval::EmbeddingSet;
use gallerist_retrieval::file::{MappedCompact, MappedMatrix, load_labels, npy};
use gallerist_retrieval::index::{is_index, open_index};
use gallerist_testkit::pipe::error_of;

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
