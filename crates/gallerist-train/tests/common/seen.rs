//! An observer that keeps what it is told.

use gallerist_train::Observer;
use gallerist_train::log::Step;

/// Keeps the steps and the warnings.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) steps: Vec<Step>,
    pub(crate) warnings: Vec<String>,
}

impl Observer for Seen {
    fn step(&mut self, record: &Step) {
        self.steps.push(record.clone());
    }

    fn warning(&mut self, message: &str) {
        self.warnings.push(message.into());
    }
}
