//! Whether a file was replaced or changed.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

/// A file as it was at one moment. Files are replaced by renaming, which gives another number of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    path: PathBuf,
    seen: Option<(u64, Option<SystemTime>, u64)>,
}

impl Stamp {
    /// The file now. A file is stamped before it is read, so that a later change is never missed.
    pub(crate) fn of(path: &Path) -> Self {
        let seen = std::fs::metadata(path).ok();
        let seen = seen.map(|about| (about.len(), about.modified().ok(), number(&about)));
        Self { path: path.to_owned(), seen }
    }

    /// Whether the file is not the same any more.
    pub(crate) fn is_outdated(&self) -> bool {
        Self::of(&self.path) != *self
    }
}

#[cfg(unix)]
fn number(about: &std::fs::Metadata) -> u64 {
    std::os::unix::fs::MetadataExt::ino(about)
}

#[cfg(not(unix))]
fn number(_: &std::fs::Metadata) -> u64 {
    0
}
