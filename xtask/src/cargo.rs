//! Running cargo.

use std::path::{Path, PathBuf};
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

/// The folder of what cargo builds.
pub(crate) fn target_folder(root: &Path) -> PathBuf {
    root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

/// Refuses a missing subcommand of cargo; `hint` is the command that installs it.
pub(crate) fn require(subcommand: &[&str], name: &str, hint: &str) -> Result<(), String> {
    let output = Command::new("cargo").args(subcommand).arg("--version").output();
    match output.is_ok_and(|output| output.status.success()) {
        true => Ok(()),
        false => Err(format!("{name} is not installed; run `{hint}`")),
    }
}
