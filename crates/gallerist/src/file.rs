//! Files that the program writes, with errors that name them.

use std::path::Path;

use gallerist_util::files;

use crate::{Error, Result};

/// Writes a text file atomically.
pub(crate) fn write_text(path: &Path, text: &str) -> Result<()> {
    files::write(path, |file| file.write_all(text.as_bytes())).map_err(|e| io("write", path, e))
}

/// An error of the system about a file or folder; `action` as in "cannot `action` `path`".
pub(crate) fn io(action: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::Train(gallerist_train::Error::Io { action, path: path.into(), source })
}

/// Whether two paths lead to one file that exists.
pub(crate) fn is_same_file(one: &Path, other: &Path) -> bool {
    match (one.canonicalize(), other.canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}
