//! How Python follows a long call.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use gallerist::retrieval::eval::Evaluation;
use gallerist::train::{self, Phase, RunEnd, Trainer, log::Step};
use gallerist_util::interrupt;
use pyo3::prelude::*;
use serde_json::json;

/// Passes events to a Python function `(kind, JSON)`, and looks for Ctrl-C at each of them.
///
/// When the function raises an exception or returns `False`, or after Ctrl-C, the flag of [`stopped`](Self::stopped) is
/// raised: a call that has such a flag returns at its next step. Embedding and maps have none: an exception ends them.
pub(crate) struct Watcher {
    function: Py<PyAny>,
    stop: AtomicBool,
    error: Mutex<Option<PyErr>>,
}

impl Watcher {
    pub(crate) fn new(function: Py<PyAny>) -> Self {
        Watcher { function, stop: AtomicBool::new(false), error: Mutex::new(None) }
    }

    /// Raised when the call should end.
    pub(crate) fn stopped(&self) -> &AtomicBool {
        &self.stop
    }

    /// The exception that ended the call.
    pub(crate) fn error(&self) -> Option<PyErr> {
        self.kept().take()
    }

    pub(crate) fn event(&self, kind: &str, data: &serde_json::Value) {
        let result = Python::attach(|py| {
            py.check_signals()?;
            let answer = self.function.bind(py).call1((kind, data.to_string()))?;
            // Of Python or of NumPy; other values, such as those of a function's last expression, mean nothing.
            Ok(!matches!(answer.extract::<bool>(), Ok(false)))
        });
        match result {
            Ok(true) => return,
            Ok(false) => {}
            Err(error) => {
                self.kept().get_or_insert(error);
            }
        }
        self.stop.store(true, Ordering::Relaxed);
    }

    /// [`event`](Self::event) of a call without a flag: an exception ends it.
    pub(crate) fn event_or_end(&self, kind: &str, data: &serde_json::Value) {
        self.event(kind, data);
        if self.kept().is_some() {
            interrupt::throw();
        }
    }

    fn kept(&self) -> MutexGuard<'_, Option<PyErr>> {
        self.error.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A reference to a [`Watcher`] as the library's observer.
pub(crate) struct Watch<'a>(pub(crate) &'a Watcher);

impl train::Observer for Watch<'_> {
    fn step(&mut self, record: &Step) {
        self.0.event("step", &serde_json::to_value(record).expect("plain data"));
    }

    fn validation(&mut self, step: usize, evaluation: &Evaluation, best: bool) {
        self.0.event("validation", &json!({ "step": step, "metrics": evaluation.metrics, "best": best }));
    }

    fn warning(&mut self, message: &str) {
        self.0.event("warning", &json!({ "message": message }));
    }

    fn phase(&mut self, phase: &Phase) {
        self.0.event("phase", &json!({ "what": phase.what, "done": phase.done, "total": phase.total }));
    }
}

impl gallerist::Observer for Watch<'_> {
    fn note(&mut self, message: &str) {
        self.0.event("note", &json!({ "message": message }));
    }

    fn embedding(&mut self, what: &str, done: usize, total: usize) {
        self.0.event_or_end("embedding", &json!({ "what": what, "done": done, "total": total }));
    }

    fn phase_done(&mut self) {
        self.0.event("phase_done", &json!({}));
    }

    fn started(&mut self, trainer: &Trainer, resumed: bool) {
        let steps = trainer.config().train.steps;
        self.0.event("started", &json!({ "step": trainer.step(), "steps": steps, "resumed": resumed }));
    }

    fn trained(&mut self, trainer: &Trainer, outcome: RunEnd) {
        let finished = outcome != RunEnd::Interrupted;
        self.0.event("trained", &json!({ "step": trainer.step(), "finished": finished }));
    }
}
