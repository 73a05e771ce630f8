//! `gallerist completions SHELL`.

use std::process::ExitCode;

use crate::cli::args::{self, Completions};
use crate::cli::failure::CommandResult;
use crate::cli::printer;

pub(super) fn run(args: Completions) -> CommandResult {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut args::help::command(), "gallerist", &mut script);
    printer::out(&String::from_utf8_lossy(&script))?;
    Ok(ExitCode::SUCCESS)
}
