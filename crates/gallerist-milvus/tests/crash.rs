//! A Milvus server that is killed in the middle of an upload.
#![cfg(unix)]

#[path = "../../gallerist-database/tests/crash/mod.rs"]
mod crash;

use gallerist_milvus::MilvusIndex as DatabaseIndex;
use gallerist_testkit::milvus::{self, Server};

fn start() -> Option<Server> {
    milvus::start()
}
