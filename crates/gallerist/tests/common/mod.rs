//! The program as the tests of several of its commands start it.

use std::path::Path;
use std::process::{Command, Output};

/// The program, started in `dir`, with a terminal of 100 columns.
pub(crate) fn gallerist(dir: &Path, line: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_gallerist"))
        .args(line.split_whitespace())
        .current_dir(dir)
        .env("COLUMNS", "100")
        .env_remove("CLICOLOR_FORCE")
        .env_remove("MILVUS_TOKEN")
        .output()
        .unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}
