//! Running cargo.

use std::path::Path;
use std::process::Command;

/// Runs cargo in the folder `root`; an error names the command.
pub(crate) fn cargo(root: &Path, args: &[&str], env: &[(&str, &str)]) -> Result<(), String> {
    let status = Command::new("cargo").args(args).envs(env.iter().copied()).current_dir(root).status();
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`cargo {}`: {status}", args.join(" "))),
        Err(e) => Err(format!("`cargo {}`: {e}", args.join(" "))),
    }
}

/// Refuses a missing subcommand of cargo; `hint` is the command that installs it.
pub(crate) fn require(subcommand: &[&str], name: &str, hint: &str) -> Result<(), String> {
    let output = Command::new("cargo").args(subcommand).arg("--version").output();
    match output.is_ok_and(|output| output.status.success()) {
        true => Ok(()),
        false => Err(format!("{name} is not installed; run `{hint}`")),
    }
}
