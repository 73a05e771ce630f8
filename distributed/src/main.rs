//! `gallerist-cluster`: search and evaluation over shards.

mod cli;

use std::process::ExitCode;

fn main() -> ExitCode {
    cli::run()
}
