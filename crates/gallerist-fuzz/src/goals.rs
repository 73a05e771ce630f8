//! What the inputs of a target reach. A target whose inputs are all refused at the first check would prove nothing, however long
//! it runs: its goals are the places behind the checks, and `tests/replay.rs` shows that the corpus reaches all of them.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

static REACHED: Mutex<BTreeSet<&'static str>> = Mutex::new(BTreeSet::new());

/// Notes that an input has reached a goal of its target.
pub(crate) fn reached(goal: &'static str) {
    REACHED.lock().unwrap_or_else(PoisonError::into_inner).insert(goal);
}

/// The goals that were reached since the last call.
pub fn take_reached() -> BTreeSet<&'static str> {
    std::mem::take(&mut *REACHED.lock().unwrap_or_else(PoisonError::into_inner))
}
