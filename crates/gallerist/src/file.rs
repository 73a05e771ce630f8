//! Files that the program writes, with errors that name them.

use std::path::{Path, PathBuf};

use gallerist_util::files;
pub(crate) use gallerist_util::files::is_same_file;

use crate::{Error, Result};

/// Writes a text file atomically.
pub(crate) fn write_text(path: &Path, text: &str) -> Result<()> {
    files::write(path, |file| file.write_all(text.as_bytes())).map_err(|e| io("write", path, e))
}

/// An error of the system about a file or folder; `action` as in "cannot `action` `path`".
pub(crate) fn io(action: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::Train(gallerist_train::Error::Io { action, path: path.into(), source })
}

/// Refuses an output that is one of the files that are read: the result would replace it.
pub(crate) fn check_not_input<'a>(out: &Path, inputs: impl IntoIterator<Item = &'a PathBuf>) -> Result<()> {
    if !inputs.into_iter().any(|input| is_same_file(out, input)) {
        return Ok(());
    }
    Err(Error::new(
        format!("`{}` is an input of this command: the result would replace it", out.display()),
        Some("write the result to another file"),
    ))
}
