//! `cargo xtask check deny`.

use std::path::Path;

use crate::cargo::{cargo, require};

/// A clone of the advisory database, for machines that cannot reach it.
const DATABASE: &str = "GALLERIST_ADVISORY_DB";

/// Where cargo-deny gets the database; as it writes it.
const ORIGIN: &str = "https://github.com/RustSec/advisory-db";

/// Licences, bans and sources are checked offline. Advisories need their database; where it cannot be fetched,
/// that is said and the rest still counts.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    require(&["deny"], "cargo-deny", "cargo install --locked cargo-deny")?;
    cargo(root, &["deny", "--workspace", "check", "licenses", "bans", "sources"], &[])?;
    let local = std::env::var(DATABASE).ok();
    let git = local.as_deref().map(instead_of);
    let git: Vec<(&str, &str)> = git.iter().flatten().map(|(name, value)| (*name, value.as_str())).collect();
    if let Err(reason) = cargo(root, &["deny", "--workspace", "fetch", "db"], &git) {
        if local.is_some() {
            return Err(format!("{reason}\nhint: {DATABASE} has to name a clone of {ORIGIN}"));
        }
        eprintln!(
            "warning: the advisory database cannot be fetched; advisories were not checked (with {DATABASE}=DIR, a clone of \
             {ORIGIN}, they are)"
        );
        return Ok(());
    }
    cargo(root, &["deny", "--workspace", "--offline", "check", "advisories"], &[])
}

/// Lets git fetch the clone `folder` in place of the database.
fn instead_of(folder: &str) -> [(&'static str, String); 3] {
    [
        ("GIT_CONFIG_COUNT", "1".into()),
        ("GIT_CONFIG_KEY_0", format!("url.file://{folder}.insteadOf")),
        ("GIT_CONFIG_VALUE_0", ORIGIN.into()),
    ]
}
