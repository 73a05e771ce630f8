//! Mapped files that may be changed by other programs.
//!
//! When a mapped file is cut short, pages of the map have no bytes any more: reading them raises
//! SIGBUS, which ends the process. Reading the file instead of mapping it would cost a system call for
//! each row that a walk through a graph visits, or the memory of the whole file. Therefore
//! [`guard`] handles the signal, and [`FileMap::check`] returns an error: call it after
//! reading from a map and before using the result.

#[cfg(unix)]
mod guard;
mod numbers;

use std::fs::{File, Metadata};
use std::ops::{Deref, Range};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use memmap2::Mmap;

use crate::{Error, Result};

pub(crate) use numbers::numbers;

/// A file whose pages are read as they are needed.
pub(crate) struct FileMap {
    /// Before the map, so that it is dropped first.
    #[cfg(unix)]
    guard: guard::Guard,
    map: Mmap,
    file: File,
    version: Version,
    path: PathBuf,
}

/// What changes when somebody writes to a file, or puts another in its place.
#[derive(Clone, PartialEq)]
pub(crate) struct Version {
    length: u64,
    modified: Option<SystemTime>,
    #[cfg(unix)]
    inode: u64,
}

impl Version {
    pub(crate) fn of(file: &Metadata) -> Self {
        Self {
            length: file.len(),
            modified: file.modified().ok(),
            #[cfg(unix)]
            inode: std::os::unix::fs::MetadataExt::ino(file),
        }
    }
}

impl FileMap {
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let failed = |source| Error::io("read", path, source);
        let file = gallerist_util::files::open_regular(path).map_err(failed)?;
        let version = Version::of(&file.metadata().map_err(failed)?);
        // SAFETY: the map is read-only, and it is read as bytes and numbers, for which every bit pattern is valid.
        // Nothing can prevent another program from changing the file. Where it is cut short, `guard` maps
        // zeros; readers call `check` before they use what they read.
        let map = unsafe { Mmap::map(&file) }.map_err(failed)?;
        Ok(Self {
            // SAFETY: these are the bytes of a private, read-only map, which starts at a page. `FileMap` drops the
            // guard before the map, because it is declared first.
            #[cfg(unix)]
            guard: unsafe { guard::Guard::new(map.as_ptr().addr(), map.len()) },
            map,
            file,
            version,
            path: path.to_owned(),
        })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// The version of the file that was opened.
    pub(crate) fn version(&self) -> Version {
        self.version.clone()
    }

    /// The file, to be read from its start.
    pub(crate) fn file(&self) -> Result<File> {
        self.file.try_clone().map_err(|source| Error::io("read", &self.path, source))
    }

    /// Returns an error if the file was changed since it was opened, so that the data read so far are invalid: truncated,
    /// or written to in place. Writing a new file and renaming it changes nothing here.
    ///
    /// A write is noticed by the file's time of change, which the system keeps in steps of some
    /// milliseconds.
    pub(crate) fn check(&self) -> Result<()> {
        #[cfg(unix)]
        let lost = self.guard.lost();
        #[cfg(not(unix))]
        let lost = false;
        let same = self.file.metadata().is_ok_and(|now| Version::of(&now) == self.version);
        if same && !lost { Ok(()) } else { Err(Error::Changed { path: self.path.clone() }) }
    }

    /// Where in the file `part`, a slice of it, is.
    pub(crate) fn span(&self, part: &[u8]) -> Range<usize> {
        let start = part.as_ptr().addr() - self.map.as_ptr().addr();
        start..start + part.len()
    }
}

impl Deref for FileMap {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;

    /// A mapped file of this many bytes of 7.
    fn mapped(folder: &Path, bytes: usize) -> (PathBuf, FileMap) {
        let path = folder.join("file");
        std::fs::write(&path, vec![7; bytes]).unwrap();
        let map = FileMap::open(&path).unwrap();
        map.check().unwrap();
        (path, map)
    }

    #[cfg(unix)]
    #[test]
    fn a_file_cut_short_reads_as_zeros_and_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        for kept in [0, 1, 5000, 100_000, 999_999] {
            let (path, map) = mapped(folder.path(), 1_000_000);
            OpenOptions::new().write(true).open(&path).unwrap().set_len(kept).unwrap();
            // Several threads meet the end of the file at once.
            std::thread::scope(|scope| {
                for _ in 0..4 {
                    scope.spawn(|| {
                        let sum: u64 = map.iter().map(|&byte| u64::from(byte)).sum();
                        // The page in which the file ends is whole in the page cache, its rest zeros.
                        assert!(sum <= 7 * kept, "{sum} of {kept} bytes");
                    });
                }
            });
            assert_eq!(&map[999_998..], if kept == 999_999 { [7, 0] } else { [0, 0] });
            let error = map.check().unwrap_err();
            assert!(error.to_string().ends_with("was changed while it was in use"), "{error}");
            assert!(error.hint().unwrap().contains("rename"));
        }
    }

    #[test]
    fn a_file_that_is_replaced_stays_what_it_was_and_one_written_to_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let (path, map) = mapped(folder.path(), 100_000);
        crate::write_atomically(&path, |file| file.write_all(b"another")).unwrap();
        map.check().unwrap();
        assert!(map.iter().all(|&byte| byte == 7));

        let (path, map) = mapped(folder.path(), 100_000);
        let hour = std::time::Duration::from_secs(3600);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.set_modified(SystemTime::now() + hour).unwrap();
        assert!(matches!(map.check(), Err(Error::Changed { .. })));
    }

    #[test]
    fn an_empty_file_is_mapped() {
        let folder = tempfile::tempdir().unwrap();
        let (_, map) = mapped(folder.path(), 0);
        assert!(map.is_empty());
        map.check().unwrap();
    }
}
