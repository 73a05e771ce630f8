//! The checks that a path may be replaced by a file.

use std::fmt;
use std::fs::{self, FileType};
use std::io;
use std::path::{Path, PathBuf};

/// The path exists and is not a regular file. This is the inner error of an [`io::Error`].
///
/// A rename would replace the device, the pipe or the link itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAFile {
    what: &'static str,
    points_to: Option<PathBuf>,
}

impl NotAFile {
    /// Advice for the user.
    pub fn hint(&self) -> String {
        match &self.points_to {
            Some(file) => format!("name the file itself: {}", file.display()),
            None => "name a file; one that does not exist is made".to_owned(),
        }
    }

    /// The inner error of `error`, if it is of this type.
    pub fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for NotAFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "it is {}, and only a regular file is replaced", self.what)
    }
}

impl std::error::Error for NotAFile {}

/// Checks that `path` is a regular file or does not exist.
///
/// # Errors
///
/// [`NotAFile`] for a device, a named pipe, a socket, a folder or a symbolic link.
pub fn check(path: impl AsRef<Path>) -> io::Result<()> {
    let path = path.as_ref();
    // If the path cannot be inspected, the write fails and reports why.
    let Ok(there) = fs::symlink_metadata(path) else { return Ok(()) };
    let kind = there.file_type();
    if kind.is_file() {
        return Ok(());
    }
    let points_to = kind.is_symlink().then(|| fs::canonicalize(path).or_else(|_| fs::read_link(path)).ok());
    let refused = NotAFile { what: name_of(kind), points_to: points_to.flatten() };
    Err(io::Error::new(io::ErrorKind::InvalidInput, refused))
}

/// Whether two paths lead to one file that exists.
pub fn is_same_file(one: impl AsRef<Path>, other: impl AsRef<Path>) -> bool {
    match (one.as_ref().canonicalize(), other.as_ref().canonicalize()) {
        (Ok(one), Ok(other)) => one == other,
        _ => false,
    }
}

pub(crate) fn name_of(kind: FileType) -> &'static str {
    #[cfg(unix)]
    {
        use std::os::unix::fs::FileTypeExt as _;
        if kind.is_fifo() {
            return "a named pipe";
        }
        if kind.is_socket() {
            return "a socket";
        }
        if kind.is_char_device() || kind.is_block_device() {
            return "a device";
        }
    }
    match kind {
        _ if kind.is_symlink() => "a symbolic link",
        _ if kind.is_dir() => "a folder",
        _ => "something else than a file",
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;
    use std::os::unix::fs::{FileTypeExt as _, symlink};
    use std::os::unix::net::UnixListener;
    use std::process::Command;

    /// The error of a write to such a target.
    fn refused(path: &Path) -> (String, String) {
        let error = crate::files::write(path, |_| panic!("nothing is written before the check")).unwrap_err();
        (error.to_string(), NotAFile::of(&error).unwrap().hint())
    }

    #[test]
    fn what_is_no_regular_file_is_refused_and_stays_what_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        assert!(Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        let _socket = UnixListener::bind(at("socket")).unwrap();
        fs::create_dir(at("folder")).unwrap();
        for (path, what) in [
            (at("pipe"), "a named pipe"),
            (at("socket"), "a socket"),
            (at("folder"), "a folder"),
            ("/dev/null".into(), "a device"),
        ] {
            assert_eq!(refused(&path).0, format!("it is {what}, and only a regular file is replaced"));
        }
        let kind = |path: &str| fs::symlink_metadata(path).unwrap().file_type();
        assert!(kind(at("pipe").to_str().unwrap()).is_fifo() && kind("/dev/null").is_char_device());
    }

    #[test]
    fn a_symbolic_link_is_refused_with_the_file_it_points_to() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let (file, link, dangling) = (folder.join("file"), folder.join("link"), folder.join("dangling"));
        fs::write(&file, b"old").unwrap();
        symlink("file", &link).unwrap();
        symlink("nothing", &dangling).unwrap();
        let (message, hint) = refused(&link);
        assert!(message.starts_with("it is a symbolic link"), "{message}");
        assert_eq!(hint, format!("name the file itself: {}", file.display()));
        assert_eq!(refused(&dangling).1, "name the file itself: nothing");
        assert!(link.is_symlink() && fs::read(&file).unwrap() == b"old");
    }

    #[test]
    fn what_becomes_a_link_during_the_write_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let error = crate::files::write(&path, |_| symlink("elsewhere", &path)).unwrap_err();
        assert!(NotAFile::of(&error).is_some(), "{error}");
        assert!(path.is_symlink());
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "no temporary file stays");
    }
}
