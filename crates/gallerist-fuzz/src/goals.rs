//! Which goals the inputs of a target reach. A goal is a place behind the first check, such as a decoded image. A target whose inputs
//! are all refused at the first check proves nothing, so `tests/replay.rs` fails if the corpus misses a goal.

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
