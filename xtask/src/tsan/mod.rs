//! `cargo xtask check tsan`: the tests of crates with threads under ThreadSanitizer, which reports data races.
//!
//! Needs `rustup toolchain install nightly` and Linux on x86-64. The standard library has to be instrumented too: without
//! that, the sanitizer does not see its locks and reports correct programs. With the component `rust-src` cargo builds
//! it; without, the one of the toolchain is instrumented ([`sysroot`]). No report is suppressed.

mod sysroot;

use std::path::Path;
use std::process::Command;

use sysroot::{Std, TARGET};

/// The crates whose tests run. Those without the tensor engine come first: they are built in minutes.
const CRATES: [&str; 7] = [
    "gallerist-retrieval",
    "gallerist-data",
    "gallerist-collective",
    "gallerist-util",
    "gallerist-testkit",
    "gallerist-serve",
    "gallerist-kernels",
];

/// Crates with unsafe code whose tests do not run, with the reason.
const EXEMPT: [(&str, &str); 3] = [
    ("gallerist-fuzz", "its unsafe code counts what the allocator gives"),
    (
        "gallerist-loss",
        "its build with the sanitizer takes too long; its unsafe code runs in one thread of rayon a tile",
    ),
    ("gallerist-tensor", "it asks the system for the driver of a GPU"),
];

/// Tests that are left out, with the reason.
const LEFT_OUT: [(&str, &str, &str); 0] = [];

/// The vector instructions of the kernels: the sanitizer does not see an access of more than 16 bytes.
const INSTRUCTIONS: (&str, &str) = ("GALLERIST_INSTRUCTIONS", "portable");

/// Code that is optimised less has more of the accesses of its source, and is built sooner.
const OPTIMISATION: (&str, &str) = ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1");

/// More threads than a small machine has processors, so that they are interrupted at any place.
const THREADS: (&str, &str) = ("RAYON_NUM_THREADS", "4");

/// Exit code of a program with reports.
const REPORTED: i32 = 66;

/// Runs the tests of [`CRATES`], after the proof that races are reported and correct programs are not.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let target = match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root.join(folder),
        None => root.join("target"),
    };
    let std = sysroot::prepare(root, &target.join("tsan"))?;
    probe(root, &std)?;
    for name in CRATES {
        eprintln!("   {name}");
        let mut skipped = Vec::new();
        for (_, test, reason) in LEFT_OUT.iter().filter(|(of, _, _)| *of == name) {
            eprintln!("   {test}: left out, {reason}");
            skipped.extend(["--skip", test]);
        }
        let status = cargo(root, &std)
            .args(["test", "--release", "--no-fail-fast", "--target", TARGET, "--package", name])
            .args(["--lib", "--tests", "--"])
            .args(skipped)
            .env("PROPTEST_CASES", "4")
            .status()
            .map_err(|e| format!("`cargo +nightly test`: {e}"))?;
        if !status.success() {
            return Err(format!("the tests of {name} under ThreadSanitizer: {status}"));
        }
    }
    Ok(())
}

/// Runs each case of the example `races`: those named `race…` must be reported, others not.
fn probe(root: &Path, std: &Std) -> Result<(), String> {
    let run = |case: &[&str]| {
        cargo(root, std)
            .args(["run", "--release", "--quiet", "--target", TARGET])
            .args(["--package", "gallerist-testkit", "--example", "races", "--"])
            .args(case)
            .output()
            .map_err(|e| format!("`cargo +nightly run`: {e}"))
    };
    let list = run(&[])?;
    if !list.status.success() {
        return Err(format!("the example `races`: {}", String::from_utf8_lossy(&list.stderr)));
    }
    for case in String::from_utf8_lossy(&list.stdout).split_whitespace() {
        let output = run(&[case])?;
        let expected = if case.starts_with("race") { REPORTED } else { 0 };
        if output.status.code() != Some(expected) {
            let text = String::from_utf8_lossy(&output.stderr);
            return Err(format!("case `{case}`: {}, not exit code {expected}\n{text}", output.status));
        }
        eprintln!("   {case}: {}", if expected == 0 { "no report" } else { "reported" });
    }
    Ok(())
}

/// Cargo of the nightly toolchain with the sanitizer.
fn cargo(root: &Path, std: &Std) -> Command {
    let mut command = Command::new("cargo");
    command.arg("+nightly").args(std.cargo_args()).current_dir(root);
    command.env("RUSTFLAGS", std.rustflags()).env("CARGO_INCREMENTAL", "0");
    command.envs([OPTIMISATION, THREADS, INSTRUCTIONS]);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_with_unsafe_code_are_tested_or_exempt() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let crates = crate::miri::crates_with_unsafe(root).unwrap();
        for name in &crates {
            let exempt = EXEMPT.iter().any(|(of, _)| of == name);
            assert_ne!(CRATES.contains(&&**name), exempt, "{name}");
        }
        assert!(EXEMPT.iter().all(|(name, _)| crates.iter().any(|of| of == name)));
    }

    #[test]
    fn tests_that_are_left_out_exist() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("crates");
        for (name, test, _) in LEFT_OUT {
            let function = format!("fn {}()", test.rsplit("::").next().unwrap());
            let files =
                crate::miri::files_with(&crates.join(name), &|text| text.contains(&function)).unwrap();
            assert!(!files.is_empty(), "{name} has no test `{test}`");
        }
    }
}
