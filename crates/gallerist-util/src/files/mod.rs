//! Atomic file writes: after a crash or a power failure, a file has either its old or its new content.
//!
//! ```
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("note.txt");
//! gallerist_util::files::write(&path, |file| file.write_all(b"done"))?;
//! # assert_eq!(std::fs::read(path).unwrap(), b"done");
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A write fills a temporary file in the same folder, `.NAME.PID-N.gallerist-tmp`, and renames it. The writer holds a
//! lock on the temporary file. So a temporary file without a lock was left by a killed writer. The first write of a process
//! into a folder removes such files ([`sweep`]).
//!
//! [`open_regular`] opens a file for reading. It refuses everything but regular files, and never blocks.

mod regular;
mod target;

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

pub use regular::{open_regular, read_regular, read_regular_to_string};
pub use target::{NotAFile, check, is_same_file};

const STRAY_SUFFIX: &str = ".gallerist-tmp";

/// Writes a file atomically: `path` has either its old content or all of the new content.
///
/// `write` fills a temporary file in the same folder. The file is synced and renamed to `path`, then the folder is synced.
/// If anything fails, a full disk included, the temporary file is removed and `path` is unchanged.
///
/// # Errors
///
/// Errors of the system and of `write`; [`NotAFile`] as [`check`].
pub fn write(path: impl AsRef<Path>, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    let path = path.as_ref();
    check(path)?;
    let name = path
        .file_name()
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "the path names no file"))?;
    let folder = folder_of(path);
    sweep_once(folder);
    let temporary = Temporary::create(folder, name)?;

    let mut buffer = BufWriter::with_capacity(1 << 18, &temporary.file);
    write(&mut buffer)?;
    buffer.flush()?;
    drop(buffer);
    temporary.file.sync_all()?;

    // `path` may have become something else meanwhile.
    check(path)?;
    fs::rename(&temporary.path, path)?;
    temporary.keep();
    // The rename itself is only durable once the folder is.
    sync_folder(folder)
}

/// Prepares a [`write()`] to `path` that follows long work: fails early if `path` cannot be replaced or its folder does not
/// exist, and removes the temporary files of killed writers.
///
/// # Errors
///
/// As [`check`], and errors of the system for the folder.
pub fn prepare(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    check(path)?;
    fs::metadata(folder_of(path))?;
    sweep_once(folder_of(path));
    Ok(())
}

/// Makes a folder and those above it that are missing, so that they still exist after a power failure:
/// [`fs::create_dir_all`], then the folder above each new one is synced.
///
/// # Errors
///
/// As [`fs::create_dir_all`], and errors of the sync.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// let path = folder.path().join("runs/one");
/// gallerist_util::files::create_dir_all(&path)?;
/// assert!(path.is_dir());
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn create_dir_all(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    let new: Vec<&Path> = path.ancestors().take_while(|folder| !folder.is_dir()).collect();
    fs::create_dir_all(path)?;
    for folder in new {
        sync_folder(folder_of(folder))?;
    }
    Ok(())
}

/// Syncs a folder: the files that were created in it, renamed or removed stay so after a power failure.
///
/// # Errors
///
/// When the folder cannot be opened or synced. On Windows, which cannot open folders, nothing is done.
pub fn sync_folder(folder: impl AsRef<Path>) -> io::Result<()> {
    #[cfg(unix)]
    File::open(folder)?.sync_all()?;
    #[cfg(not(unix))]
    let _ = folder;
    Ok(())
}

fn folder_of(path: &Path) -> &Path {
    match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    }
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
            let file = match OpenOptions::new().write(true).create_new(true).open(&path) {
                Ok(file) => file,
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => continue,
                Err(error) => return Err(error),
            };
            // The lock tells `sweep` that the writer is alive. On file systems without locks nothing is swept.
            let lock = file.try_lock();
            // A sweep between the creation and the lock removes the file.
            if matches!(lock, Err(TryLockError::WouldBlock)) || !path.exists() {
                continue;
            }
            return Ok(Self { file, path, kept: false });
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

/// Sweeps a folder the first time that this process writes there. A folder that cannot be listed is not swept.
fn sweep_once(folder: &Path) {
    static SWEPT: Mutex<Option<HashSet<PathBuf>>> = Mutex::new(None);
    let Ok(folder) = folder.canonicalize() else { return };
    let first = match SWEPT.lock() {
        Ok(mut swept) => swept.get_or_insert_default().insert(folder.clone()),
        Err(_) => false,
    };
    if first {
        let _ = sweep(folder);
    }
}

/// Whether a file of this name is a temporary one of [`write()`].
///
/// ```
/// assert!(gallerist_util::files::is_stray(".config.toml.17-0.gallerist-tmp"));
/// assert!(!gallerist_util::files::is_stray("config.toml"));
/// ```
pub fn is_stray(name: &str) -> bool {
    name.starts_with('.') && name.ends_with(STRAY_SUFFIX)
}

/// Removes the temporary files that killed writers left in `folder`, and returns their number. The file of a live writer
/// is locked and stays.
///
/// # Errors
///
/// If the folder cannot be listed or a temporary file cannot be removed.
pub fn sweep(folder: impl AsRef<Path>) -> io::Result<usize> {
    let mut removed = 0;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let stray = path.file_name().and_then(OsStr::to_str).is_some_and(is_stray);
        // Only regular files are opened.
        if !stray || !fs::symlink_metadata(&path).is_ok_and(|file| file.is_file()) {
            continue;
        }
        let file = match open_regular(&path) {
            Ok(file) => file,
            // Its writer finished between the listing and now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        match file.try_lock() {
            Ok(()) => match fs::remove_file(&path) {
                Ok(()) => removed += 1,
                // Another sweep was first.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            },
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
        write(&path, |file| file.write_all(b"old")).unwrap();
        write(&path, |file| {
            file.write_all(b"ne")?;
            Err(io::ErrorKind::StorageFull.into())
        })
        .unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names(folder.path()), ["kept"]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_full_disk_is_reported_and_leaves_nothing_behind() {
        // The device refuses every byte at the flush, as a full disk does.
        let mut full = BufWriter::new(OpenOptions::new().write(true).open("/dev/full").unwrap());
        let folder = tempfile::tempdir().unwrap();
        let error = write(folder.path().join("never"), |_| {
            full.write_all(b"x")?;
            full.flush()
        })
        .unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
        assert!(names(folder.path()).is_empty());
    }

    #[test]
    fn stray_files_are_swept_but_not_those_being_written() {
        let folder = tempfile::tempdir().unwrap();
        let stray = folder.path().join(".a.npy.1-0.gallerist-tmp");
        fs::write(folder.path().join("b.npy"), b"whole").unwrap();
        write(folder.path().join("c"), |file| {
            file.write_all(b"c")?;
            fs::write(&stray, b"half")?;
            assert_eq!(sweep(folder.path())?, 1);
            Ok(())
        })
        .unwrap();
        assert_eq!(names(folder.path()), ["b.npy", "c"]);
    }

    #[test]
    fn the_first_write_into_a_folder_sweeps_it() {
        let folder = tempfile::tempdir().unwrap();
        for name in [".a.npy.1-0.gallerist-tmp", ".report.html.77-3.gallerist-tmp"] {
            fs::write(folder.path().join(name), b"half").unwrap();
        }
        fs::write(folder.path().join(".hidden"), b"of the user").unwrap();
        write(folder.path().join("c"), |file| file.write_all(b"c")).unwrap();
        assert_eq!(names(folder.path()), [".hidden", "c"]);
    }

    #[test]
    fn a_folder_that_is_not_there_is_noticed_before_the_work() {
        let folder = tempfile::tempdir().unwrap();
        assert!(prepare(folder.path().join("file")).is_ok() && names(folder.path()).is_empty());
        let error = prepare(folder.path().join("no/file")).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        assert!(prepare("file-beside-the-crate").is_ok());
    }

    #[test]
    fn sweeps_and_writers_at_the_same_time_lose_no_file() {
        let folder = tempfile::tempdir().unwrap();
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let path = folder.path().join(format!("{writer}"));
                scope.spawn(move || {
                    for _ in 0..200 {
                        write(&path, |file| file.write_all(b"whole")).unwrap();
                    }
                });
            }
            for _ in 0..2 {
                scope.spawn(|| (0..400).for_each(|_| drop(sweep(folder.path()))));
            }
        });
        assert_eq!(names(folder.path()), ["0", "1", "2", "3"]);
    }
}
