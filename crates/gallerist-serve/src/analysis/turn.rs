//! Galleries are analysed one after the other.

use gallerist_util::sync::atomic::{AtomicBool, Ordering};
use gallerist_util::sync::{Condvar, Mutex, PoisonError};

/// The right to compute, which one analysis has at a time.
#[derive(Default)]
pub(crate) struct Turn {
    taken: Mutex<bool>,
    changed: Condvar,
}

/// Gives the right back when it is dropped.
pub(crate) struct Held<'a>(&'a Turn);

impl Turn {
    /// Waits for the right; `None` if the analysis is stopped first.
    pub(crate) fn wait(&self, stopped: &AtomicBool) -> Option<Held<'_>> {
        let taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = |taken: &mut bool| *taken && !stopped.load(Ordering::Relaxed);
        let mut taken = self.changed.wait_while(taken, waits).unwrap_or_else(PoisonError::into_inner);
        if stopped.load(Ordering::Relaxed) {
            return None;
        }
        *taken = true;
        Some(Held(self))
    }

    /// Stops an analysis, whether it waits or computes.
    pub(crate) fn stop(&self, stopped: &AtomicBool) {
        let _taken = self.taken.lock().unwrap_or_else(PoisonError::into_inner);
        stopped.store(true, Ordering::Relaxed);
        self.changed.notify_all();
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *self.0.taken.lock().unwrap_or_else(PoisonError::into_inner) = false;
        self.0.changed.notify_all();
    }
}
