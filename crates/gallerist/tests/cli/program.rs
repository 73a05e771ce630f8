//! The program in the repository's root.

use std::process::Output;

use crate::common::{program, root, text};

/// The program, started in the repository's root, with a terminal of 100 columns.
pub(crate) fn gallerist(args: &[&str]) -> Output {
    program(&root(), args)
}

/// Standard error of a call that must fail.
pub(crate) fn error(args: &[&str]) -> String {
    let out = gallerist(args);
    assert_eq!(out.status.code(), Some(2), "{}", text(&out.stderr));
    assert!(out.stdout.is_empty(), "data on stdout next to an error: {}", text(&out.stdout));
    text(&out.stderr)
}
