//! Opening regular files only.

use std::fs::{File, FileType, OpenOptions};
use std::io::{self, Read};
use std::path::Path;

use super::target::name_of;

/// Opens a regular file for reading and refuses everything else.
///
/// Opening a named pipe blocks until another program writes to it. So the file is opened in non-blocking mode, and the type
/// of the opened file is checked. There is no race: the check and later reads use the same open file. Symbolic links
/// are followed.
///
/// # Errors
///
/// As [`File::open`]; [`io::ErrorKind::InvalidInput`] with a text such as `it is a named pipe, not a file` for
/// a folder, a named pipe, a socket or a device.
///
/// ```
/// let error = gallerist_util::files::open_regular(std::env::temp_dir()).unwrap_err();
/// # #[cfg(unix)]
/// assert_eq!(error.to_string(), "it is a folder, not a file");
/// ```
pub fn open_regular(path: impl AsRef<Path>) -> io::Result<File> {
    let path = path.as_ref();
    let mut options = OpenOptions::new();
    options.read(true);
    // Miri knows no flags.
    #[cfg(all(unix, not(miri)))]
    {
        use std::os::unix::fs::OpenOptionsExt;
        // A terminal must not become the controlling terminal of the process.
        options.custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY);
    }
    match options.open(path) {
        Ok(file) => {
            let kind = file.metadata()?.file_type();
            if kind.is_file() { Ok(file) } else { Err(refuse(kind)) }
        }
        // A socket cannot be opened at all.
        Err(error) => match path.metadata().map(|found| found.file_type()) {
            Ok(kind) if !kind.is_file() && error.kind() != io::ErrorKind::PermissionDenied => {
                Err(refuse(kind))
            }
            _ => Err(error),
        },
    }
}

/// The bytes of a regular file.
///
/// # Errors
///
/// As [`open_regular`] and [`std::fs::read`].
pub fn read_regular(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let mut file = open_regular(path)?;
    let mut bytes = Vec::with_capacity(room(&file));
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The text of a regular file.
///
/// # Errors
///
/// As [`open_regular`] and [`std::fs::read_to_string`].
pub fn read_regular_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    let mut file = open_regular(path)?;
    let mut text = String::with_capacity(room(&file));
    file.read_to_string(&mut text)?;
    Ok(text)
}

/// The size that a file has now; 0 where it is unknown or more than can be allocated.
fn room(file: &File) -> usize {
    let size = file.metadata().map_or(0, |found| found.len());
    usize::try_from(size).ok().filter(|&size| size < isize::MAX as usize / 2).unwrap_or(0)
}

fn refuse(kind: FileType) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("it is {}, not a file", name_of(kind)))
}

#[cfg(all(test, unix, not(miri)))]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn only_regular_files_are_opened_and_others_are_named_without_waiting() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::write(at("file"), "text").unwrap();
        std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(at("pipe")).status().unwrap().success());
        let _listener = UnixListener::bind(at("socket")).unwrap();
        let problem = |path: &Path| open_regular(path).unwrap_err().to_string();
        assert_eq!(read_regular(at("link")).unwrap(), b"text");
        assert_eq!(read_regular_to_string(at("file")).unwrap(), "text");
        let found = [
            problem(&at("pipe")),
            problem(&at("socket")),
            problem(folder.path()),
            problem("/dev/null".as_ref()),
        ];
        let named = ["a named pipe", "a socket", "a folder", "a device"];
        assert_eq!(found, named.map(|name| format!("it is {name}, not a file")));
        assert_eq!(open_regular(at("absent")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
