//! Ctrl-C.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::printer;

/// The exit code of a command that was stopped by Ctrl-C.
pub(crate) const INTERRUPTED: u8 = 130;

/// Ctrl-C (or a termination signal) sets the flag and prints a message, if it is not empty; a second one ends the program immediately.
pub(crate) fn watch(stop: Arc<AtomicBool>, message: impl Fn() -> &'static str + Send + 'static) {
    let handler = move || {
        if stop.swap(true, Ordering::Relaxed) {
            std::process::exit(INTERRUPTED.into());
        }
        let message = message();
        if !message.is_empty() {
            printer::note(&message);
        }
    };
    // Without the handler, an interrupt only loses the steps since the last checkpoint.
    if let Err(e) = ctrlc::set_handler(handler) {
        printer::warning(&format!("Ctrl-C will stop without a checkpoint: {e}"));
    }
}
