//! Atomic writes.

use std::path::Path;

use crate::ReportError;

/// Replaces `path` by `content` atomically: neither a reader nor a crash sees half a file.
pub(crate) fn write_whole(path: &Path, content: &[u8]) -> Result<(), ReportError> {
    gallerist_util::files::write(path, |file| file.write_all(content))
        .map_err(|source| ReportError::Write { path: path.to_owned(), source })
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
    fn a_missing_folder_and_what_is_no_file_are_named_with_a_hint() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("absent").join("report.html");
        let error = write_whole(&path, b"").unwrap_err();
        assert!(error.to_string().contains("report.html"), "{error}");
        assert!(error.hint().unwrap().contains("create the folder"));
        let error = write_whole(folder.path(), b"").unwrap_err();
        assert!(error.to_string().contains("it is a folder"), "{error}");
        assert!(error.hint().unwrap().starts_with("name a file"));
    }
}
