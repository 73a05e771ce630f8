//! `cargo xtask check deny`.

use std::path::Path;
use std::process::Command;

use crate::cargo::cargo;

/// Licences, bans and sources are checked offline. Advisories need their database; where it cannot be fetched,
/// that is said and the rest still counts.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let installed =
        Command::new("cargo").args(["deny", "--version"]).output().is_ok_and(|out| out.status.success());
    if !installed {
        return Err("cargo-deny is not installed; run `cargo install --locked cargo-deny`".into());
    }
    cargo(root, &["deny", "--workspace", "check", "licenses", "bans", "sources"], &[])?;
    if cargo(root, &["deny", "--workspace", "fetch", "db"], &[]).is_err() {
        eprintln!("warning: the advisory database cannot be fetched; advisories were not checked");
        return Ok(());
    }
    cargo(root, &["deny", "--workspace", "check", "advisories"], &[])
}
