//! Panics of other libraries, which the readers make errors of.

use std::panic::{set_hook, take_hook};

/// Keeps the hook of the fuzzer, which ends the process, from panics that are caught.
pub(super) fn quiet<T>(read: impl FnOnce() -> T) -> T {
    let hook = take_hook();
    set_hook(Box::new(|_| ()));
    let result = read();
    set_hook(hook);
    result
}
