//! A named pipe in the place of a run's files or of weights is refused, and nothing waits for it.
#![cfg(unix)]

use gallerist_tensor::params;
use gallerist_testkit::pipe::error_of;
use gallerist_train::checkpoint::Checkpoint;
use gallerist_train::{RunConfig, log};
use gallerist_weights as weights;

#[test]
fn every_reader_refuses_a_named_pipe_without_waiting() {
    for error in [
        error_of("pipe", |path| weights::read(&path)),
        error_of("pipe", |path| Checkpoint::load(&path)),
        error_of("pipe", |path| params::read(&path)),
        error_of("pipe", |path| RunConfig::load(&path, &[])),
        error_of("pipe", |path| log::read(&path)),
    ] {
        assert!(error.contains("it is a named pipe, not a file"), "{error}");
    }
}
