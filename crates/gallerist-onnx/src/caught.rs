//! Panics of the engine as errors.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// The result of `f`, or the message of its panic: the engine asserts what it expects of a model.
pub(crate) fn caught<T>(f: impl FnOnce() -> T) -> std::result::Result<T, String> {
    catch_unwind(AssertUnwindSafe(f)).map_err(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
            .unwrap_or_else(|| "the engine gave up".to_owned())
    })
}
