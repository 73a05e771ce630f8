//! Errors as Python exceptions.

use std::panic::{AssertUnwindSafe, catch_unwind};

use pyo3::PyErr;
use pyo3::exceptions::{PyRuntimeError, PyValueError};
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

macro_rules! or_value_error {
    ($($error:ty),* $(,)?) => {$(
        impl<T> OrValueError<T> for Result<T, $error> {
            fn or_value_error(self) -> PyResult<T> {
                self.map_err(|error| value_error(&error, error.hint()))
            }
        }
    )*};
}

or_value_error!(
    gallerist::Error,
    gallerist::TensorError,
    gallerist::retrieval::Error,
    gallerist::train::Error
);

/// Runs `work` without the interpreter's lock. A panic, which is a fault of this package, becomes a `RuntimeError`.
pub(crate) fn detached<T: Send>(py: Python<'_>, work: impl FnOnce() -> PyResult<T> + Send) -> PyResult<T> {
    py.detach(|| match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().map(String::as_str);
            let text = text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message");
            Err(PyRuntimeError::new_err(format!("this is a fault of gallerist, please report it: {text}")))
        }
    })
}
