//! A value that a thread computes while requests are answered.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;

use gallerist_util::interrupt::Interrupted;

use crate::Result;

/// A value that is ready, still to be computed, or not available.
pub(crate) struct Slot<T> {
    pub(super) wanted: bool,
    value: OnceLock<Option<T>>,
}

impl<T> Slot<T> {
    pub(super) fn new(wanted: bool) -> Self {
        Self { wanted, value: OnceLock::new() }
    }

    pub(crate) fn get(&self) -> Option<&T> {
        self.value.get().and_then(Option::as_ref)
    }

    /// `ready`, `computing` or `none`.
    pub(crate) fn state(&self) -> &'static str {
        match self.value.get() {
            Some(Some(_)) => "ready",
            None if self.wanted => "computing",
            _ => "none",
        }
    }

    /// No value will come.
    pub(super) fn give_up(&self) {
        let _ = self.value.set(None);
    }

    /// Computes the value if it is wanted. A failure is noted; the slot then stays without a value.
    pub(super) fn fill(&self, what: &str, note: fn(&str), compute: impl FnOnce() -> Result<T>) {
        if !self.wanted {
            return;
        }
        let value = match catch_unwind(AssertUnwindSafe(compute)) {
            Ok(Ok(value)) => Some(value),
            Ok(Err(error)) => {
                note(&format!("no {what}: {error}"));
                None
            }
            // Nobody waits for it.
            Err(panic) if Interrupted::is_in(&*panic) => None,
            Err(_) => {
                note(&format!("no {what}: the computation broke off"));
                None
            }
        };
        let _ = self.value.set(value);
    }
}
