//! Files that are whole or absent.

use std::fs::{File, Permissions};
use std::io::{self, Write as _};
use std::path::Path;

use crate::ReportError;

/// Writes `content` to a temporary name beside `path`, syncs it, renames it and
/// syncs the folder, so that no reader and no crash ever sees half a file.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> Result<(), ReportError> {
    let attempt = || -> io::Result<()> {
        let folder = match path.parent() {
            Some(folder) if !folder.as_os_str().is_empty() => folder,
            _ => Path::new("."),
        };
        let mut builder = tempfile::Builder::new();
        builder.prefix(".report-");
        if let Some(permissions) = permissions() {
            builder.permissions(permissions);
        }
        let mut file = builder.tempfile_in(folder)?;
        file.write_all(content)?;
        file.as_file().sync_all()?;
        file.persist(path)?;
        if cfg!(unix) {
            File::open(folder)?.sync_all()?;
        }
        Ok(())
    };
    attempt().map_err(|source| ReportError::Write { path: path.to_owned(), source })
}

/// What an ordinary new file gets; the user's mask is applied by the system.
#[cfg(unix)]
fn permissions() -> Option<Permissions> {
    use std::os::unix::fs::PermissionsExt as _;
    Some(Permissions::from_mode(0o666))
}

#[cfg(not(unix))]
fn permissions() -> Option<Permissions> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_replaces_the_one_before_and_leaves_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("report.html");
        write_whole(&path, b"one").unwrap();
        write_whole(&path, b"two").unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "two");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_missing_folder_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("absent").join("report.html");
        let error = write_whole(&path, b"").unwrap_err();
        assert!(error.to_string().contains("report.html"), "{error}");
        assert!(error.hint().unwrap().contains("create the folder"));
    }
}
