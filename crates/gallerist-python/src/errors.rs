//! Errors as Python exceptions.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use gallerist_util::interrupt::{self, Interrupted};
use gallerist_util::panics::message;
use pyo3::PyErr;
use pyo3::exceptions::{PyKeyboardInterrupt, PyRuntimeError, PyValueError};
use pyo3::prelude::*;

/// A message, with what to do about it on the next line.
pub(crate) fn value_error(message: impl ToString, hint: Option<String>) -> PyErr {
    let hint = hint.map_or(String::new(), |hint| format!("\nhint: {hint}"));
    PyValueError::new_err(format!("{}{hint}", message.to_string()))
}

/// An error of the library as a `ValueError`.
pub(crate) trait OrValueError<T> {
    fn or_value_error(self) -> PyResult<T>;
}

impl<T, E: Into<gallerist::Error>> OrValueError<T> for Result<T, E> {
    fn or_value_error(self) -> PyResult<T> {
        self.map_err(Into::into).map_err(|error| value_error(&error, error.hint()))
    }
}

/// The value of this name; `what` is what is named.
pub(crate) fn named<'a, T>(
    what: &str,
    name: &str,
    choices: impl IntoIterator<Item = (&'a str, T)>,
) -> PyResult<T> {
    let mut names = Vec::new();
    for (known, value) in choices {
        if known == name {
            return Ok(value);
        }
        names.push(known);
    }
    Err(value_error(format!("there is no {what} `{name}`"), Some(format!("one of {}", names.join(", ")))))
}

/// Runs `work` without the interpreter's lock. A panic, which is a fault of this package, becomes a `RuntimeError`.
pub(crate) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> PyResult<T> + Send) -> PyResult<T> {
    py.detach(|| {
        check_process()?;
        caught(work)
    })
}

/// The process whose threads compute; 0 before they are started.
static PROCESS: AtomicU32 = AtomicU32::new(0);

/// Refuses to compute in a fork of a process that has started its compute threads: they exist only in the parent, and work
/// would wait for them for ever.
pub(crate) fn check_process() -> PyResult<()> {
    static CHANGE: Mutex<()> = Mutex::new(());
    let own = std::process::id();
    if PROCESS.load(Ordering::Relaxed) == own {
        return Ok(());
    }
    let _change = CHANGE.lock().unwrap_or_else(PoisonError::into_inner);
    match PROCESS.load(Ordering::Relaxed) {
        of if of == own => {}
        0 => PROCESS.store(own, Ordering::Relaxed),
        // Whether the threads were started cannot be asked, but they can be started only once.
        _ if rayon::ThreadPoolBuilder::new().build_global().is_ok() => PROCESS.store(own, Ordering::Relaxed),
        _ => {
            return Err(PyRuntimeError::new_err(
                "this process is a fork of one in which gallerist has computed or set the number of threads: the compute threads \
                 exist only in the parent\nhint: start processes with multiprocessing.get_context(\"spawn\"), or call \
                 set_threads and compute in the parent only after the fork",
            ));
        }
    }
    Ok(())
}

/// How often a long computation looks for Ctrl-C.
const SIGNALS: Duration = Duration::from_millis(50);

/// [`detached`] for work that may take seconds: Ctrl-C ends it, with a `KeyboardInterrupt`.
///
/// The work runs on another thread, because only the calling thread can handle signals.
pub(crate) fn interruptible<T: Send>(
    py: Python<'_>,
    work: impl FnOnce() -> PyResult<T> + Send,
) -> PyResult<T> {
    py.detach(|| {
        check_process()?;
        std::thread::scope(|scope| {
            let (done, is_done) = channel();
            scope.spawn(move || {
                // The receiver waits for it.
                let _ = done.send(caught(work));
            });
            let mut pressed = None;
            let result = loop {
                match is_done.recv_timeout(SIGNALS) {
                    Ok(result) => break result,
                    Err(RecvTimeoutError::Disconnected) => unreachable!("the thread sends before it ends"),
                    Err(RecvTimeoutError::Timeout) if pressed.is_some() => {}
                    Err(RecvTimeoutError::Timeout) => {
                        pressed = Python::attach(|py| py.check_signals()).err();
                        if pressed.is_some() {
                            interrupt::raise();
                        }
                    }
                }
            };
            match pressed {
                None => result,
                Some(pressed) => {
                    interrupt::clear();
                    Err(pressed)
                }
            }
        })
    })
}

/// Whether a computation of so many multiplications may take longer than a tenth of a second.
pub(crate) fn is_long(factors: [usize; 3]) -> bool {
    const SHORT: usize = 1 << 31;
    factors.into_iter().try_fold(1usize, usize::checked_mul).is_none_or(|products| products > SHORT)
}

fn caught<T>(work: impl FnOnce() -> PyResult<T>) -> PyResult<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(of_panic(&*panic)))
}

fn of_panic(panic: &(dyn Any + Send)) -> PyErr {
    if Interrupted::is_in(panic) {
        return PyKeyboardInterrupt::new_err(());
    }
    PyRuntimeError::new_err(format!("this is a fault of gallerist, please report it: {}", message(panic)))
}
