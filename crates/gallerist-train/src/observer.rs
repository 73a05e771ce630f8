//! What a run tells whoever watches it.

use std::sync::atomic::{AtomicBool, Ordering};

use gallerist_retrieval::eval::Evaluation;

use crate::log::Step;
use crate::{Error, Result};

/// Watches a run; every method has an empty default.
pub trait Observer {
    /// A step was taken.
    fn step(&mut self, _record: &Step) {}
    /// A validation was done; `best` says whether it is the best so far.
    fn validation(&mut self, _step: usize, _evaluation: &Evaluation, _best: bool) {}
    /// Something the user should look at.
    fn warning(&mut self, _message: &str) {}
    /// Something other than steps has begun or has come further. It is over with the next step or validation, or
    /// when the call returns.
    fn phase(&mut self, _phase: &Phase) {}
}

impl Observer for () {}

/// A part of a run that can take more than a second and is not a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Phase {
    /// What is done, e.g. `reading the training images`.
    pub what: &'static str,
    /// How much of it is done.
    pub done: usize,
    /// How much there is to do; 0: unknown.
    pub total: usize,
}

/// The observer of a run, and the flag that stops it.
pub(super) struct Watch<'a> {
    observer: &'a mut dyn Observer,
    stop: &'a AtomicBool,
}

impl<'a> Watch<'a> {
    pub(super) fn new(observer: &'a mut dyn Observer, stop: &'a AtomicBool) -> Self {
        Watch { observer, stop }
    }

    /// Reports how far `what` is.
    ///
    /// # Errors
    ///
    /// [`Error::Interrupted`] when the run is to stop.
    pub(super) fn phase(&mut self, what: &'static str, done: usize, total: usize) -> Result<()> {
        self.observer.phase(&Phase { what, done, total });
        match self.stop.load(Ordering::Relaxed) {
            true => Err(Error::Interrupted { what }),
            false => Ok(()),
        }
    }
}
