//! The `gallerist` program: arguments in, one library call, one print.
#![recursion_limit = "256"]

mod args;
mod commands;
mod printer;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let cli = args::Cli::parse();
    match commands::run(cli.command) {
        Ok(code) => code,
        Err(failure) => {
            printer::error(&failure.message, failure.hint);
            ExitCode::from(2)
        }
    }
}
