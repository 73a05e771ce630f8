//! A server with the engine of Qdrant that is killed in the middle of an upload.
#![cfg(unix)]

#[path = "../../gallerist-database/tests/crash/mod.rs"]
mod crash;

use gallerist_qdrant::QdrantIndex as DatabaseIndex;
use gallerist_testkit::qdrant::{self, Server};

fn start() -> Option<Server> {
    qdrant::start(None)
}
