//! Panics as errors.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The result of `work`, or the [`message`] of its panic. For libraries that panic where a file is damaged or unusual: what `work` changed is
/// not to be used after a panic.
///
/// # Errors
///
/// The message.
///
/// ```
/// let read = |bytes: &[u8]| gallerist_util::panics::caught(|| bytes[2]);
/// assert_eq!(read(&[1, 2, 3]), Ok(3));
/// assert!(read(&[1]).is_err_and(|message| message.contains("out of bounds")));
/// ```
pub fn caught<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| message(&*panic).to_owned())
}

/// What a panic says, or `without a message`.
#[must_use]
pub fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("without a message")
}
