//! Labels in a separate file.

use std::path::Path;

use super::npy;
use crate::{Error, Result};

/// Reads one label per row: a `.npy` file of any integer type, or a text file (any other
/// extension) with one label per line.
///
/// In a text file spaces around a label do not belong to it, and the last line may end with a
/// newline or not.
///
/// # Errors
/// [`Error::Io`], and [`Error::Format`] for a blank line (which is named), text that is not
/// UTF-8, or an array that does not hold integers in one dimension.
pub fn load_labels(path: impl AsRef<Path>) -> Result<Vec<String>> {
    let path = path.as_ref();
    if path.extension().is_some_and(|extension| extension == "npy") {
        return npy::read_labels(path);
    }
    let refuse = |problem: String, hint: Option<&str>| Error::Format {
        path: path.to_owned(),
        format: "a list of labels",
        problem,
        hint: hint.map(str::to_owned),
    };
    let bytes =
        gallerist_util::files::read_regular(path).map_err(|source| Error::io("read", path, source))?;
    let text = String::from_utf8(bytes).map_err(|error| {
        let line = 1 + error.as_bytes()[..error.utf8_error().valid_up_to()]
            .iter()
            .filter(|&&byte| byte == b'\n')
            .count();
        refuse(format!("line {line} is not UTF-8 text"), Some("write one label per line"))
    })?;
    text.strip_prefix('\u{feff}')
        .unwrap_or(&text)
        .lines()
        .enumerate()
        .map(|(number, line)| match line.trim() {
            "" => Err(refuse(
                format!("line {} is blank; every line must hold a label", number + 1),
                Some("remove the line, or give the row a label"),
            )),
            label => Ok(label.to_owned()),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn load(bytes: &[u8]) -> Result<Vec<String>> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("labels.txt");
        fs::write(&path, bytes).unwrap();
        load_labels(path)
    }

    #[test]
    fn a_trailing_newline_is_no_label() {
        assert_eq!(load(b"heron\nwren\n").unwrap(), ["heron", "wren"]);
        assert_eq!(load(b"heron\r\nwren").unwrap(), ["heron", "wren"]);
        assert_eq!(load(b"").unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_blank_line_and_a_line_that_is_no_text_are_named() {
        let message = load(b"heron\n\nwren\n").unwrap_err().to_string();
        assert!(message.ends_with("line 2 is blank; every line must hold a label"), "{message}");
        let message = load(b"heron\nwr\xffen\n").unwrap_err().to_string();
        assert!(message.ends_with("line 2 is not UTF-8 text"), "{message}");
    }
}
