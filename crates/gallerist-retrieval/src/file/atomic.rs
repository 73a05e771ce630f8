//! Atomic writes: after a crash or a power failure, a file is either the old or the new one.

use std::io::{self, Write};
use std::path::Path;

use crate::{Error, Result};

/// Writes a file so that `path` holds either its earlier content or all of the new content: see
/// [`gallerist_util::files::write`].
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("note.txt");
/// gallerist_retrieval::write_atomically(&path, |file| file.write_all(b"done"))?;
/// # assert_eq!(std::fs::read(path).unwrap(), b"done");
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
///
/// # Errors
/// [`Error::Io`], also for what `write` returns, and for a path that is there and is not a regular
/// file: a device, a named pipe, a symbolic link.
pub fn write_atomically(
    path: impl AsRef<Path>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let path = path.as_ref();
    gallerist_util::files::write(path, write).map_err(|source| Error::io("write", path, source))
}

/// Checks, before long work begins, that [`write_atomically`] will not refuse `path`, and removes
/// what killed writers left in its folder.
///
/// # Errors
/// [`Error::Io`] for a path that is there and is not a regular file.
pub fn prepare_to_write(path: impl AsRef<Path>) -> Result<()> {
    let path = path.as_ref();
    gallerist_util::files::prepare(path).map_err(|source| Error::io("write", path, source))
}

/// Whether a file of this name is a temporary one of [`write_atomically`].
///
/// ```
/// use gallerist_retrieval::file::is_stray;
/// assert!(is_stray(".config.toml.17-0.gallerist-tmp") && !is_stray("config.toml"));
/// ```
pub fn is_stray(name: &str) -> bool {
    gallerist_util::files::is_stray(name)
}

/// Removes the temporary files that killed writers left in `dir`, and returns their number.
///
/// A file whose writer is still running is locked and stays.
///
/// # Errors
/// [`Error::Io`] when the folder cannot be listed or a stray file cannot be removed.
pub fn sweep_stray_files(dir: impl AsRef<Path>) -> Result<usize> {
    let dir = dir.as_ref();
    gallerist_util::files::sweep(dir).map_err(|source| Error::io("sweep", dir, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_and_a_missing_folder_have_a_hint() {
        let folder = tempfile::tempdir().unwrap();
        let full = |_: &mut dyn Write| Err(io::ErrorKind::StorageFull.into());
        let error = write_atomically(folder.path().join("file"), full).unwrap_err();
        assert!(error.hint().unwrap().contains("is untouched"));
        let error = write_atomically(folder.path().join("no/file"), |_| Ok(())).unwrap_err();
        assert!(error.to_string().starts_with("cannot write `"));
        assert_eq!(error.hint().unwrap(), "create the folder first");
    }

    #[test]
    fn a_folder_in_the_place_of_a_file_is_refused_before_the_work_and_by_the_write() {
        let folder = tempfile::tempdir().unwrap();
        for error in [
            prepare_to_write(folder.path()).unwrap_err(),
            write_atomically(folder.path(), |_| Ok(())).unwrap_err(),
        ] {
            let message = error.to_string();
            assert!(message.ends_with("it is a folder, and only a regular file is replaced"), "{message}");
            assert!(error.hint().unwrap().starts_with("name a file"));
        }
    }
}
