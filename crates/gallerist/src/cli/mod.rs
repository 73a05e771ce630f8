//! The command line: arguments in, one library call, one print.

mod args;
mod commands;
mod failure;
mod interrupts;
mod jobs;
mod metrics_table;
mod next;
mod output;
mod printer;
mod progress;
mod terminal;

use std::process::ExitCode;

use crate::Registry;

/// Installs the parts of a program, parses the arguments of the process and runs the command.
///
/// Exit codes: 0 success, 1 success with findings, 2 error, 130 interrupted.
///
/// # Example
///
/// The `main` of a program that has a network of its own and otherwise all commands of `gallerist`:
///
/// ```no_run
/// use gallerist::Registry;
/// # use gallerist::network::ConvBlocksConfig as MyNetwork;
///
/// fn main() -> std::process::ExitCode {
///     gallerist::cli::run(&Registry::default().network::<MyNetwork>())
/// }
/// ```
pub fn run(registry: &Registry) -> ExitCode {
    if let Err(error) = registry.install() {
        printer::error(&error, error.hint());
        return ExitCode::from(2);
    }
    let cli = args::Cli::of_process();
    if let Err(unknown) = gallerist_util::simd::check_permitted() {
        let variable = gallerist_util::simd::INSTRUCTIONS;
        printer::error(
            &format!("{variable} is `portable`, `avx2` or `avx512`, not `{unknown}`"),
            None::<String>,
        );
        return ExitCode::from(2);
    }
    match commands::run(cli.command) {
        Ok(code) => code,
        Err(failure) => {
            printer::error(&failure.message, failure.hint);
            ExitCode::from(2)
        }
    }
}
