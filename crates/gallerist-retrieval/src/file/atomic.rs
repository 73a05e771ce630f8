//! Files that are either the old one or the new one, whenever the power goes.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Error, Result};

const STRAY_SUFFIX: &str = ".gallerist-tmp";

/// Writes a file so that `path` holds either what it held before or all of the new content.
///
/// `write` fills a temporary file in the same folder, which is synced, renamed to `path`, and the
/// folder synced. When anything fails, a full disk included, the temporary file is removed and
/// what `path` held is untouched. A symbolic link stays one: the file it points to is replaced.
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
/// [`Error::Io`], also for what `write` returns.
pub fn write_atomically(
    path: impl AsRef<Path>,
    write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
) -> Result<()> {
    let path = path.as_ref();
    replace(path, write).map_err(|source| Error::io("write", path, source))
}

fn replace(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let name = target
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?;
    let folder = match target.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let temporary = Temporary::create(folder, name)?;

    let mut buffer = BufWriter::with_capacity(1 << 18, &temporary.file);
    write(&mut buffer)?;
    buffer.flush()?;
    drop(buffer);
    temporary.file.sync_all()?;

    fs::rename(&temporary.path, &target)?;
    temporary.keep();
    // The rename itself is only durable once the folder is. Windows cannot open folders.
    #[cfg(unix)]
    File::open(folder)?.sync_all()?;
    Ok(())
}

/// A file that is removed unless [`keep`](Self::keep) is called.
struct Temporary {
    file: File,
    path: PathBuf,
    kept: bool,
}

impl Temporary {
    fn create(folder: &Path, name: &OsStr) -> io::Result<Self> {
        static COUNTER: AtomicU64 = AtomicU64::new(0);
        loop {
            let number = COUNTER.fetch_add(1, Ordering::Relaxed);
            let mut file_name = OsStr::new(".").to_owned();
            file_name.push(name);
            file_name.push(format!(".{}-{number}{STRAY_SUFFIX}", std::process::id()));
            let path = folder.join(file_name);
            match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => {
                    // The lock tells `sweep_stray_files` that the writer lives. Where the file
                    // system has no locks, nothing is swept either.
                    let _ = file.try_lock();
                    return Ok(Self { file, path, kept: false });
                }
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            }
        }
    }

    fn keep(mut self) {
        self.kept = true;
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        if !self.kept {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Removes the temporary files that killed writers left in `dir`, and says how many.
///
/// A file whose writer still lives is locked and stays.
///
/// # Errors
/// [`Error::Io`] when the folder cannot be listed or a stray file cannot be removed.
pub fn sweep_stray_files(dir: impl AsRef<Path>) -> Result<usize> {
    let dir = dir.as_ref();
    let entries = fs::read_dir(dir).map_err(|source| Error::io("read", dir, source))?;
    let mut removed = 0;
    for entry in entries {
        let path = entry.map_err(|source| Error::io("read", dir, source))?.path();
        let stray = path
            .file_name()
            .and_then(OsStr::to_str)
            .is_some_and(|name| name.starts_with('.') && name.ends_with(STRAY_SUFFIX));
        if !stray || !path.is_file() {
            continue;
        }
        let file = match File::open(&path) {
            Ok(file) => file,
            // Its writer finished between the listing and now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(source) => return Err(Error::io("read", &path, source)),
        };
        match file.try_lock() {
            Ok(()) => {
                fs::remove_file(&path).map_err(|source| Error::io("remove", &path, source))?;
                removed += 1;
            }
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {}
        }
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(folder: &Path) -> Vec<String> {
        let mut names: Vec<_> = fs::read_dir(folder)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn a_failed_write_leaves_the_old_file_and_no_other() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("kept");
        write_atomically(&path, |file| file.write_all(b"old")).unwrap();
        let error = write_atomically(&path, |file| {
            file.write_all(b"ne")?;
            Err(io::ErrorKind::StorageFull.into())
        })
        .unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["kept"]);
        assert!(error.hint().unwrap().contains("is untouched"));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_reported_and_leaves_nothing_behind() {
        // The device refuses every byte at the flush, as a full disk does.
        let mut full = BufWriter::new(OpenOptions::new().write(true).open("/dev/full").unwrap());
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("never");
        let error = write_atomically(&path, |_| {
            full.write_all(b"x")?;
            full.flush()
        })
        .unwrap_err();
        assert!(matches!(&error, Error::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull));
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn a_missing_folder_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let error = write_atomically(folder.path().join("no/file"), |_| Ok(())).unwrap_err();
        assert!(error.to_string().starts_with("cannot write `"));
        assert_eq!(error.hint().unwrap(), "create the folder first");
    }

    #[cfg(unix)]
    #[test]
    fn a_symbolic_link_stays_one() {
        let folder = tempfile::tempdir().unwrap();
        let (file, link) = (folder.path().join("file"), folder.path().join("link"));
        fs::write(&file, b"old").unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        write_atomically(&link, |out| out.write_all(b"new")).unwrap();
        assert!(link.is_symlink());
        assert_eq!(fs::read(&file).unwrap(), b"new");
    }

    #[test]
    fn stray_files_are_swept_but_not_those_being_written() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(".a.npy.1-0.gallerist-tmp"), b"half").unwrap();
        fs::write(folder.path().join("b.npy"), b"whole").unwrap();
        write_atomically(folder.path().join("c"), |file| {
            file.write_all(b"c")?;
            assert_eq!(sweep_stray_files(folder.path()).unwrap(), 1);
            Ok(())
        })
        .unwrap();
        assert_eq!(names(folder.path()), ["b.npy", "c"]);
    }
}
