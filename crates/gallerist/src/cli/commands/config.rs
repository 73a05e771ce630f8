//! `gallerist config`.

use std::process::ExitCode;

use crate::train::{DEFAULTS, RunConfig};

use crate::cli::args::Config;
use crate::cli::failure::CommandResult;
use crate::cli::next::Done;
use crate::cli::printer;

pub(super) fn run(args: Config) -> CommandResult {
    let config = match &args.check {
        Some(path) => RunConfig::load(path, &args.set)?,
        None => RunConfig::default(),
    };
    match (args.json, &args.check) {
        (true, _) => printer::json(&config)?,
        (false, Some(path)) => {
            printer::out(&config.to_toml())?;
            Done::RunFile(path).show();
        }
        (false, None) => printer::out(DEFAULTS)?,
    }
    Ok(ExitCode::SUCCESS)
}
