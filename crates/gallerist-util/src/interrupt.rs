//! Ends long computations from outside, such as when a person presses Ctrl-C.
//!
//! Loops over blocks of work call [`point`], which costs one read of a flag. When [`raise`] has set the flag, it unwinds
//! the thread up to [`catch`], without the message of a panic. Whatever is between the two must be discarded: results
//! are incomplete. State that outlives the computation is only changed outside of such loops.
//!
//! The flag holds for all computations of the process.
//!
//! # Example
//!
//! ```
//! use gallerist_util::interrupt::{self, Interrupted};
//!
//! let count_forever = || -> u64 {
//!     (0..).map(|_| interrupt::point()).count() as u64
//! };
//! interrupt::raise();
//! assert_eq!(interrupt::catch(count_forever), Err(Interrupted));
//! interrupt::clear();
//! assert_eq!(interrupt::catch(|| 1), Ok(1));
//! ```

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

static RAISED: AtomicBool = AtomicBool::new(false);

/// A computation has ended before its result was complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interrupted;

impl Interrupted {
    /// Whether the payload of a panic is an interruption.
    pub fn is_in(panic: &(dyn Any + Send)) -> bool {
        panic.is::<Interrupted>()
    }
}

/// Asks every computation to end at its next [`point`].
pub fn raise() {
    RAISED.store(true, Ordering::Relaxed);
}

/// Computations run again.
pub fn clear() {
    RAISED.store(false, Ordering::Relaxed);
}

/// Whether every computation has been asked to end, for one that first completes what it changes.
pub fn is_raised() -> bool {
    RAISED.load(Ordering::Relaxed)
}

/// A place where a computation can end.
#[inline]
pub fn point() {
    if RAISED.load(Ordering::Relaxed) {
        throw();
    }
}

/// Ends the computation of this thread.
#[cold]
pub fn throw() -> ! {
    resume_unwind(Box::new(Interrupted))
}

/// Runs a computation that may be interrupted. Other panics pass through.
///
/// # Errors
///
/// [`Interrupted`], when the computation ended at a [`point`].
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Interrupted> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| match Interrupted::is_in(&*panic) {
        true => Interrupted,
        false => resume_unwind(panic),
    })
}
