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

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use gallerist_util::text::shell_word;

use crate::Registry;

/// Installs the parts of a program, parses the arguments of the process and runs the command.
///
/// Exit codes: 0 success, 1 success with findings, 2 error, 101 a defect of the program, 130 interrupted.
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
    match catch_unwind(AssertUnwindSafe(|| commands::run(cli.command))) {
        Ok(Ok(code)) => code,
        Ok(Err(failure)) => {
            printer::error(&failure.message, failure.hint);
            ExitCode::from(2)
        }
        Err(_) => {
            let (message, hint) = defect(std::env::args_os().skip(1));
            printer::error(&message, Some(hint));
            ExitCode::from(DEFECT)
        }
    }
}

/// The exit code of a program that panics.
const DEFECT: u8 = 101;

/// What follows the text of a panic: these arguments made the program panic.
fn defect(arguments: impl Iterator<Item = std::ffi::OsString>) -> (String, String) {
    let version = env!("CARGO_PKG_VERSION");
    let word = |word: std::ffi::OsString| {
        let word = word.to_string_lossy();
        if word.starts_with('-') { word.into_owned() } else { shell_word(&word) }
    };
    let words: Vec<String> = arguments.map(word).collect();
    (
        format!("gallerist {version} has ended because of a defect of its own"),
        format!(
            "please report it with the lines above, this command and, if possible, its files; RUST_BACKTRACE=1 shows more\n  \
             gallerist {}",
            words.join(" ")
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_defect_is_reported_with_version_and_command() {
        let (message, hint) = defect(["info", "--json", "my file.npy"].map(Into::into).into_iter());
        assert!(message.contains(env!("CARGO_PKG_VERSION")), "{message}");
        assert!(
            hint.contains("please report") && hint.ends_with("gallerist info --json 'my file.npy'"),
            "{hint}"
        );
    }
}
