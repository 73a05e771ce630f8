//! What the servers of tests have in common: they may be missing, and tests share them.

use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use crate::missing;

/// The server that the tests of a program share: the one in `place`, which the first of them starts and the last one ends.
pub(crate) fn shared<S>(place: &Mutex<Weak<S>>, start: impl FnOnce() -> Option<S>) -> Option<Arc<S>> {
    let mut shared = place.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = shared.upgrade() {
        return Some(server);
    }
    let server = Arc::new(start()?);
    *shared = Arc::downgrade(&server);
    Some(server)
}

/// Whether `probe` runs. If not, `message` makes a sentence of the reason, and the tests are skipped.
///
/// # Panics
/// If it does not run, and the environment variable `required` is 1.
pub(crate) fn is_there(probe: &mut Command, required: &str, message: impl FnOnce(&str) -> String) -> bool {
    let problem = match probe.output() {
        Ok(output) if output.status.success() => return true,
        Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
        Err(error) => error.to_string(),
    };
    missing(required, &message(problem.trim().lines().last().unwrap_or("no output")));
    false
}
