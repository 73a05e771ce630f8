//! How a caller follows a long call.

use gallerist_train::{self as train, Phase, Trainer};

/// Receives the progress and the messages of [`train`](crate::train()), [`evaluate`](crate::evaluate()) and the
/// other calls. Every method does nothing by default; `()` ignores everything.
///
/// # Example
///
/// ```
/// use gallerist::Observer;
/// use gallerist::train::{self, log::Step};
///
/// /// Prints warnings, and the loss of every 100th step.
/// struct Lines;
///
/// impl train::Observer for Lines {
///     fn step(&mut self, record: &Step) {
///         if record.step % 100 == 0 {
///             println!("step {}: loss {:.4}", record.step, record.loss);
///         }
///     }
///
///     fn warning(&mut self, message: &str) {
///         eprintln!("warning: {message}");
///     }
/// }
///
/// impl Observer for Lines {}
/// ```
pub trait Observer: train::Observer {
    /// A message that needs no reaction.
    fn note(&mut self, _message: &str) {}

    /// `done` of `total` images are embedded.
    fn embedding(&mut self, _what: &str, _done: usize, _total: usize) {}

    /// The [phase](train::Observer::phase) or the embedding that was reported last is over.
    fn phase_done(&mut self) {}

    /// A run is about to take its first step; `resumed`: its first after a checkpoint.
    fn started(&mut self, _trainer: &Trainer, _resumed: bool) {}

    /// A run has taken its last step, or has been stopped.
    fn trained(&mut self, _trainer: &Trainer, _outcome: train::RunEnd) {}

    /// The function that receives warnings from other threads: of a server, of a connection to a database.
    fn warner(&self) -> fn(&str) {
        |_| ()
    }
}

impl Observer for () {}

/// Reports a phase of unknown length while `run` runs.
pub(crate) fn working<T>(observer: &mut dyn Observer, what: &'static str, run: impl FnOnce() -> T) -> T {
    observer.phase(&Phase { what, done: 0, total: 0 });
    let result = run();
    observer.phase_done();
    result
}
