//! `gallerist index`.

mod bench;
mod build;
mod filter;
mod info;
mod labels;
mod open;
mod push;
mod remove;
mod search;
mod summary;

use crate::cli::args::index::Command;
use crate::cli::failure::CommandResult;

pub(super) fn run(command: Command) -> CommandResult {
    match command {
        Command::Build(args) => build::build(args),
        Command::Info(args) => info::run(args),
        Command::Search(args) => search::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Add(args) => build::add(args),
        Command::Remove(args) => remove::run(args),
        Command::Push(args) => push::run(&args),
    }
}
