//! What the inputs of a target reach. If all inputs were refused at the first check, the target would prove nothing. Its goals are
//! places behind that check. `tests/replay.rs` fails for a goal that no input of the corpus reaches.

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
