//! `cargo xtask check miri`: the tests of every crate with unsafe code under Miri, which finds undefined behaviour.
//!
//! Needs `rustup toolchain install nightly --component miri,rust-src`. Tests that are slow under Miri cut their sizes down
//! or are ignored under `cfg!(miri)`; code for the vector instructions of one CPU is replaced by its portable version.

use std::path::{Path, PathBuf};
use std::process::Command;

/// What to run of a crate: its name, then the arguments of `cargo miri test`.
///
/// The filters select the modules with unsafe code, because the other tests of a crate take hours under Miri. A crate
/// without an entry runs all its unit tests.
const FILTERS: [(&str, &[&str]); 3] = [
    ("gallerist-data", &["--lib", "--", "canvas"]),
    ("gallerist-loss", &["--lib", "--", "rows::product"]),
    ("gallerist-retrieval", &["--lib", "--", "product", "file::mapped", "index::values"]),
];

/// Crates whose unsafe code Miri cannot run, with the reason.
const EXEMPT: [(&str, &str); 1] = [("gallerist-tensor", "it asks the system for the driver of a GPU")];

/// Tree Borrows and ignored leaks: for the epochs and the threads of rayon. No isolation: tests read files.
const FLAGS: &str =
    "-Zmiri-tree-borrows -Zmiri-ignore-leaks -Zmiri-disable-isolation -Zmiri-permissive-provenance";

/// Runs Miri over every crate under `root` that has unsafe code.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let installed = Command::new("cargo").args(["+nightly", "miri", "--version"]).output();
    if !installed.is_ok_and(|output| output.status.success()) {
        let hint = "rustup toolchain install nightly --component miri,rust-src";
        return Err(format!("Miri is not installed; run `{hint}`"));
    }
    for name in crates_with_unsafe(root)? {
        if let Some((_, reason)) = EXEMPT.iter().find(|(exempt, _)| *exempt == name) {
            eprintln!("   {name}: left out, {reason}");
            continue;
        }
        let filter = FILTERS.iter().find(|(of, _)| *of == name).map_or(&["--lib"][..], |(_, filter)| filter);
        eprintln!("   {name} {}", filter.join(" "));
        let status = Command::new("cargo")
            .args(["+nightly", "miri", "test", "--package", &name])
            .args(filter)
            .env("MIRIFLAGS", FLAGS)
            .env("PROPTEST_CASES", "4")
            .current_dir(root)
            .status()
            .map_err(|e| format!("`cargo miri`: {e}"))?;
        if !status.success() {
            return Err(format!("`cargo +nightly miri test -p {name} {}`: {status}", filter.join(" ")));
        }
    }
    Ok(())
}

/// Names of the crates whose sources under `src` contain the keyword `unsafe`.
fn crates_with_unsafe(root: &Path) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root.join("crates")).map_err(|e| format!("crates: {e}"))? {
        let path = entry.map_err(|e| format!("crates: {e}"))?.path();
        if contains_unsafe(&path.join("src"))? {
            names.push(path.file_name().expect("an entry has a name").to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

fn contains_unsafe(folder: &Path) -> Result<bool, String> {
    let mut open: Vec<PathBuf> = vec![folder.to_path_buf()];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            open.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            if has_unsafe(&text) {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// Whether a line outside comments has the keyword, followed by what it can be followed by.
fn has_unsafe(text: &str) -> bool {
    let code = |line: &&str| !line.trim_start().starts_with("//");
    text.lines().filter(code).any(|line| {
        ["unsafe {", "unsafe fn", "unsafe impl", "unsafe trait", "unsafe extern"]
            .iter()
            .any(|form| line.contains(form))
    })
}

#[cfg(test)]
mod tests {
    use super::has_unsafe;

    #[test]
    fn the_keyword_counts_in_code_only() {
        assert!(has_unsafe("fn f() {\n    let x = unsafe { *p };\n}"));
        assert!(has_unsafe("unsafe impl Send for X {}"));
        assert!(!has_unsafe("// unsafe { *p }\n/// No unsafe code.\nlet name = \"unsafe\";"));
    }
}
