//! Errors of ONNX models.

use std::path::PathBuf;

/// The result of this crate's functions.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A model that cannot be used, or a text that it cannot embed, with the reason and what to do.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{}{reason}", path.as_ref().map(|path| format!("cannot use the model `{}`\n  ", path.display())).unwrap_or_default())]
pub struct Error {
    /// The file; `None` where the text is at fault.
    pub path: Option<PathBuf>,
    /// What is wrong with it.
    pub reason: String,
    /// What to do.
    pub hint: Option<String>,
}

impl Error {
    /// What the user can do about it, in one line.
    pub fn hint(&self) -> Option<String> {
        self.hint.clone()
    }
}
