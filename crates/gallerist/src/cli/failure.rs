//! Why a command could not run.

use std::process::ExitCode;

/// A message and a hint, as the terminal shows them.
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

/// How a command ends.
pub(crate) type CommandResult = Result<ExitCode, Failure>;

impl Failure {
    pub(crate) fn new(message: impl Into<String>, hint: Option<&str>) -> Self {
        Failure { message: message.into(), hint: hint.map(str::to_string) }
    }
}

macro_rules! failure_from {
    ($($error:ty),* $(,)?) => {$(
        impl From<$error> for Failure {
            fn from(e: $error) -> Self {
                Failure { hint: e.hint(), message: e.to_string() }
            }
        }
    )*};
}

failure_from!(
    crate::Error,
    crate::TensorError,
    crate::data::Error,
    crate::report::ReportError,
    crate::retrieval::Error,
    crate::serve::Error,
    crate::train::Error,
    crate::weights::Error,
);

#[cfg(feature = "database")]
failure_from!(crate::database::Error);

impl From<std::io::Error> for Failure {
    fn from(e: std::io::Error) -> Self {
        Failure { message: format!("cannot write to standard output: {e}"), hint: None }
    }
}
