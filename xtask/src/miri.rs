//! `cargo xtask check miri`: the tests of every crate with unsafe code under Miri, which finds undefined behaviour.
//!
//! Needs `rustup toolchain install nightly --component miri,rust-src`. Tests that are slow under Miri cut their sizes down
//! or are ignored under `cfg!(miri)`; code for the vector instructions of one CPU is replaced by its portable version.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::cargo::require;
use crate::tsan;

/// The modules of a crate whose tests run, because all its tests would take hours. Every file with unsafe code is in one
/// of them or in [`EXEMPT_FILES`]. A crate without an entry runs all its unit tests.
const MODULES: [(&str, &[&str]); 3] = [
    ("gallerist-data", &["canvas"]),
    ("gallerist-loss", &["engine::product"]),
    ("gallerist-retrieval", &["product", "file::map::guard", "index::values", "index::hnsw::space"]),
];

/// Files whose unsafe code Miri cannot run, with the reason.
const EXEMPT_FILES: [(&str, &str); 1] =
    [("gallerist-retrieval/src/file/map/mod.rs", "Miri cannot map files")];

/// Crates whose unsafe code no test under Miri can run, beside those of [`tsan::EXEMPT`], with the reason.
const EXEMPT: [(&str, &str); 2] = [
    ("gallerist-testkit", "its unsafe code counts what the allocator gives"),
    ("gallerist-util", "its unsafe code asks the system and the CPU for what Miri does not have"),
];

/// Tree Borrows and ignored leaks: for the epochs and the threads of rayon. No isolation: tests read files. References that
/// are gone are forgotten more often than by default: loops over elements of a buffer take 0.6 times as long.
const FLAGS: &str = "-Zmiri-tree-borrows -Zmiri-ignore-leaks -Zmiri-disable-isolation -Zmiri-permissive-provenance \
                     -Zmiri-provenance-gc=2000";

/// Runs Miri over every crate under `root` that has unsafe code.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    require(&["+nightly", "miri"], "Miri", "rustup toolchain install nightly --component miri,rust-src")?;
    for name in crates_with_unsafe(root)? {
        if let Some((_, reason)) = EXEMPT.iter().chain(&tsan::EXEMPT).find(|(exempt, _)| *exempt == name) {
            eprintln!("   {name}: left out, {reason}");
            continue;
        }
        let modules = MODULES.iter().find(|(of, _)| *of == name).map_or(&[][..], |(_, modules)| modules);
        eprintln!("   {name} {}", modules.join(" "));
        for (file, reason) in EXEMPT_FILES.iter().filter(|(file, _)| Path::new(file).starts_with(&name)) {
            eprintln!("   {file}: left out, {reason}");
        }
        let status = Command::new("cargo")
            .args(["+nightly", "miri", "test", "--package", &name, "--lib", "--"])
            .args(modules)
            .env("MIRIFLAGS", FLAGS)
            .env("PROPTEST_CASES", "4")
            .current_dir(root)
            .status()
            .map_err(|e| format!("`cargo miri`: {e}"))?;
        if !status.success() {
            let modules = modules.join(" ");
            return Err(format!("`cargo +nightly miri test -p {name} --lib -- {modules}`: {status}"));
        }
    }
    Ok(())
}

/// Names of the crates whose sources under `src` contain the keyword `unsafe`.
pub(crate) fn crates_with_unsafe(root: &Path) -> Result<Vec<String>, String> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(root.join("crates")).map_err(|e| format!("crates: {e}"))? {
        let path = entry.map_err(|e| format!("crates: {e}"))?.path();
        if !files_with_unsafe(&path.join("src"))?.is_empty() {
            names.push(path.file_name().expect("an entry has a name").to_string_lossy().into_owned());
        }
    }
    names.sort();
    Ok(names)
}

/// The Rust files under `folder` that contain the keyword `unsafe`.
fn files_with_unsafe(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let mut found = Vec::new();
    let mut open: Vec<PathBuf> = vec![folder.to_path_buf()];
    while let Some(path) = open.pop() {
        if path.is_dir() {
            let entries = std::fs::read_dir(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            open.extend(entries.filter_map(|entry| Some(entry.ok()?.path())));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
            if has_unsafe(&text) {
                found.push(path);
            }
        }
    }
    Ok(found)
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
    use super::*;

    #[test]
    fn the_modules_cover_all_unsafe_code_of_their_crates() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("crates");
        for (name, modules) in MODULES {
            let source = crates.join(name).join("src");
            let paths: Vec<PathBuf> =
                modules.iter().map(|module| source.join(module.replace("::", "/"))).collect();
            for path in &paths {
                let exists = path.is_dir() || path.with_extension("rs").is_file();
                assert!(exists, "{} is no module any more", path.display());
            }
            for file in files_with_unsafe(&source).unwrap() {
                let covered =
                    paths.iter().any(|path| file.starts_with(path) || file == path.with_extension("rs"));
                let exempt = EXEMPT_FILES.iter().any(|(exempt, _)| file == crates.join(exempt));
                assert!(covered || exempt, "Miri runs no test of {}", file.display());
            }
        }
    }

    #[test]
    fn the_keyword_counts_in_code_only() {
        assert!(has_unsafe("fn f() {\n    let x = unsafe { *p };\n}"));
        assert!(has_unsafe("unsafe impl Send for X {}"));
        assert!(!has_unsafe("// unsafe { *p }\n/// No unsafe code.\nlet name = \"unsafe\";"));
    }
}
