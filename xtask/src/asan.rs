//! `cargo xtask check asan`: the tests of every crate with unsafe code under AddressSanitizer, which reports accesses outside of
//! an allocation and after it was freed.
//!
//! Needs `rustup toolchain install nightly` and Linux on x86-64. It runs the code for the vector instructions of this CPU, which
//! Miri does not; what Miri sees besides, such as values that were never written, it does not see.

use std::path::Path;

use crate::cargo::cargo;
use crate::miri::crates_with_unsafe;
use crate::tsan::{EXEMPT, LEFT_OUT, TARGET};

/// Crates with code for more than one set of vector instructions. Their tests run with each of them.
const VECTORS: [&str; 3] = ["gallerist-kernels", "gallerist-loss", "gallerist-retrieval"];

/// The sets, as `GALLERIST_INSTRUCTIONS` names them: none limits the kernels to what the CPU has.
const INSTRUCTIONS: [Option<&str>; 2] = [None, Some("avx2")];

/// Threads of rayon keep memory to the end of the program. Reports have line numbers.
const ENVIRONMENT: [(&str, &str); 5] = [
    ("RUSTFLAGS", "-Zsanitizer=address"),
    ("ASAN_OPTIONS", "detect_leaks=0"),
    ("CARGO_PROFILE_RELEASE_DEBUG", "line-tables-only"),
    ("CARGO_INCREMENTAL", "0"),
    ("PROPTEST_CASES", "16"),
];

/// Runs the tests of all crates under `root` that have unsafe code.
pub(crate) fn check(root: &Path) -> Result<(), String> {
    for name in crates_with_unsafe(root)? {
        if let Some((_, reason)) = EXEMPT.iter().find(|(exempt, _)| *exempt == name) {
            eprintln!("   {name}: left out, {reason}");
            continue;
        }
        for instructions in INSTRUCTIONS {
            if instructions.is_some() && !VECTORS.contains(&&*name) {
                continue;
            }
            eprintln!("   {name} {}", instructions.unwrap_or_default());
            let mut args = vec!["+nightly", "test", "--release", "--target", TARGET, "--package", &name];
            args.extend(["--lib", "--tests", "--"]);
            for (_, test, reason) in LEFT_OUT.iter().filter(|(of, _, _)| *of == name) {
                eprintln!("   {test}: left out, {reason}");
                args.extend(["--skip", test]);
            }
            let limit = instructions.map(|limit| ("GALLERIST_INSTRUCTIONS", limit));
            cargo(root, &args, &ENVIRONMENT.into_iter().chain(limit).collect::<Vec<_>>())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_crates_with_code_for_vectors_have_unsafe_code() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let crates = crates_with_unsafe(root).unwrap();
        for name in VECTORS {
            assert!(crates.iter().any(|of| of == name), "{name}");
        }
    }
}
