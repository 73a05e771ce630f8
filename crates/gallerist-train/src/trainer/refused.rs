//! The error of a sampler, kept until a step asks for its batch.

use std::sync::{Arc, Mutex};

/// Why the batches have ended before the last step: the loader's threads form them.
#[derive(Clone, Default)]
pub(super) struct Refused(Arc<Mutex<Option<gallerist_data::Error>>>);

impl Refused {
    pub(super) fn keep(&self, error: gallerist_data::Error) {
        *self.0.lock().expect("nothing panics with this lock") = Some(error);
    }

    /// The error, once.
    pub(super) fn take(&self) -> Option<gallerist_data::Error> {
        self.0.lock().expect("nothing panics with this lock").take()
    }
}
