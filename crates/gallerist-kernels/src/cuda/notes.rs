//! Notes for those who want to know why something is slow.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

/// Prints once why the engine's kernels are used, if `GALLERIST_CUDA_NOTES` is set.
pub(super) fn note(reason: &str) {
    static NOTED: Mutex<Option<HashSet<String>>> = Mutex::new(None);
    if std::env::var_os("GALLERIST_CUDA_NOTES").is_none() {
        return;
    }
    let mut noted = NOTED.lock().unwrap_or_else(PoisonError::into_inner);
    if noted.get_or_insert_default().insert(reason.to_string()) {
        eprintln!("the engine's kernel is used: {reason}");
    }
}
