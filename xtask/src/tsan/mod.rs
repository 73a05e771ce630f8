//! `cargo xtask check tsan`: the tests of crates with threads under ThreadSanitizer, which reports data races.
//!
//! Needs `rustup toolchain install nightly` and Linux on x86-64. The standard library has to be instrumented too: without
//! that, the sanitizer does not see its locks and reports correct programs. With the component `rust-src` cargo builds
//! it; without, the one of the toolchain is instrumented ([`sysroot`]). `xtask/tsan/suppressions.txt` lists what is no race.

mod sysroot;

use std::path::Path;
use std::process::Command;

use crate::cargo::target_folder;
use sysroot::Std;
pub(crate) use sysroot::TARGET;

/// The crates whose tests run. Those without the tensor engine come first: they are built sooner.
const CRATES: [&str; 8] = [
    "gallerist-collective",
    "gallerist-util",
    "gallerist-retrieval",
    "gallerist-testkit",
    "gallerist-data",
    "gallerist-serve",
    "gallerist-kernels",
    "gallerist-loss",
];

/// Crates with unsafe code whose tests do not run under a sanitizer, with the reason.
pub(crate) const EXEMPT: [(&str, &str); 2] = [
    ("gallerist-fuzz", "its unsafe code counts what the allocator gives"),
    ("gallerist-tensor", "it asks the system for the driver of a GPU"),
];

/// Tests that are left out under a sanitizer, with the reason.
pub(crate) const LEFT_OUT: [(&str, &str, &str); 1] = [(
    "gallerist-util",
    "freed_memory_is_given_back_and_threads_share_their_arenas",
    "the sanitizer has an allocator of its own",
)];

/// Tests of code that exists for vector instructions only: they run with all instructions of the CPU.
const WIDE: [(&str, &str); 1] = [("gallerist-kernels", "conv::winograd")];

/// The vector instructions of the kernels: the sanitizer does not see an access of more than 16 bytes.
const INSTRUCTIONS: (&str, &str) = ("GALLERIST_INSTRUCTIONS", "portable");

/// Reports have line numbers. Code that is optimised less has more of the accesses of its source, and is built sooner.
const BUILD: [(&str, &str); 3] = [
    ("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only"),
    ("CARGO_PROFILE_RELEASE_OPT_LEVEL", "1"),
    ("CARGO_INCREMENTAL", "0"),
];

/// More threads than a small machine has processors, so that they are interrupted at any place; fewer random cases.
const TESTS: [(&str, &str); 2] = [("RAYON_NUM_THREADS", "4"), ("PROPTEST_CASES", "4")];

/// Exit code of a program with reports.
const REPORTED: i32 = 66;

/// Runs the tests of [`CRATES`], after the proof that races are reported and correct programs are not.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    let std = sysroot::prepare(root, &target_folder(root).join("tsan"))?;
    probe(root, &std)?;
    for name in CRATES {
        eprintln!("   {name}");
        let wide: Vec<&str> = WIDE.iter().filter(|(of, _)| *of == name).map(|(_, tests)| *tests).collect();
        let mut skipped: Vec<&str> = wide.iter().flat_map(|tests| ["--skip", tests]).collect();
        for (_, test, reason) in LEFT_OUT.iter().filter(|(of, _, _)| *of == name) {
            eprintln!("   {test}: left out, {reason}");
            skipped.extend(["--skip", test]);
        }
        test(root, &std, name, &["--lib", "--tests"], &skipped, &[INSTRUCTIONS])?;
        for tests in wide {
            eprintln!("   {name} {tests}, with all instructions of the CPU");
            test(root, &std, name, &["--lib"], &[tests], &[])?;
        }
    }
    Ok(())
}

/// Runs tests of the crate `name`: those of `targets` that `filter` selects.
fn test(
    root: &Path,
    std: &Std,
    name: &str,
    targets: &[&str],
    filter: &[&str],
    env: &[(&str, &str)],
) -> Result<(), String> {
    let status = cargo(root, std)
        .args(["test", "--release", "--no-fail-fast", "--target", TARGET, "--package", name])
        .args(targets)
        .arg("--")
        .args(filter)
        .envs(env.iter().copied())
        .status()
        .map_err(|e| format!("`cargo +nightly test`: {e}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("the tests of {name} under ThreadSanitizer: {status}")),
    }
}

/// Runs each case of the example `races`: those named `race…` must be reported, others not.
fn probe(root: &Path, std: &Std) -> Result<(), String> {
    let run = |case: &[&str]| {
        cargo(root, std)
            .args(["run", "--release", "--quiet", "--target", TARGET])
            .args(["--package", "gallerist-collective", "--example", "races", "--"])
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
    command.env("RUSTFLAGS", std.rustflags()).envs(BUILD).envs(TESTS);
    let suppressions = root.join("xtask/tsan/suppressions.txt");
    command.env("TSAN_OPTIONS", format!("suppressions={}", suppressions.display()));
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
            let files = std::fs::read_dir(crates.join(name).join("tests")).unwrap();
            let mut texts =
                files.map(|file| std::fs::read_to_string(file.unwrap().path()).unwrap_or_default());
            assert!(texts.any(|text| text.contains(&format!("fn {test}()"))), "{name} has no test `{test}`");
        }
    }

    #[test]
    fn modules_of_the_wide_tests_exist() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().join("crates");
        for (name, module) in WIDE {
            let path = crates.join(name).join("src").join(module.replace("::", "/"));
            assert!(path.is_dir() || path.with_extension("rs").is_file(), "{}", path.display());
        }
    }
}
