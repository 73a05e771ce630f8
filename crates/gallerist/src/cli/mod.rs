//! The command line: arguments in, one library call, one print.

mod args;
mod commands;
mod failure;
mod metrics_table;
mod output;
mod printer;
mod progress;
mod terminal;

use std::process::ExitCode;

use clap::Parser;

/// Parses the arguments of the process and runs the command.
///
/// Exit codes: 0 success, 1 success with findings, 2 error.
pub fn run() -> ExitCode {
    let cli = args::Cli::parse();
    match commands::run(cli.command) {
        Ok(code) => code,
        Err(failure) => {
            printer::error(&failure.message, failure.hint);
            ExitCode::from(2)
        }
    }
}
