//! Panics of other libraries, which the readers make errors of.

use std::panic::{set_hook, take_hook};

use gallerist_util::panics::caught;

/// Keeps the hook of the fuzzer, which ends the process, from panics that are caught. A panic that nothing catches reaches it.
pub(super) fn quiet<T>(read: impl FnOnce() -> T) -> T {
    let hook = take_hook();
    set_hook(Box::new(|_| ()));
    let result = caught(read);
    set_hook(hook);
    result.unwrap_or_else(|panic| panic!("{panic}"))
}
