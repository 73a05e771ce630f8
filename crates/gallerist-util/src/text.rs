//! Suggestions for misspelt names; addresses and absolute paths; large numbers; words of a shell; values of CSV.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

/// The one of `known` that `word` was probably meant to be, if any is similar enough.
///
/// ```
/// use gallerist_util::text::nearest;
/// assert_eq!(nearest("contrastiv", &["circle", "contrastive"]), Some("contrastive"));
/// assert_eq!(nearest("zzz", &["circle", "contrastive"]), None);
/// ```
pub fn nearest<'a>(word: &str, known: &[&'a str]) -> Option<&'a str> {
    let score = |candidate: &str| strsim::jaro_winkler(word, candidate);
    known.iter().copied().filter(|k| score(k) > 0.75).max_by(|a, b| score(a).total_cmp(&score(b)))
}

/// A hint for a path that does not exist: the other entry of its folder that was probably meant, if any is similar enough.
///
/// ```
/// use gallerist_util::text::similar_path;
/// # let folder = tempfile::tempdir().unwrap();
/// # let folder = folder.path();
/// std::fs::write(folder.join("photos.safetensors"), "")?;
/// let meant = folder.join("photos.safetensors").display().to_string();
/// assert_eq!(similar_path(&folder.join("photo.safetensors")), Some(format!("did you mean `{meant}`?")));
/// assert_eq!(similar_path(&folder.join("b")), None);
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn similar_path(path: &Path) -> Option<String> {
    // A folder of millions of files would take long.
    const LOOKED_AT: usize = 10_000;
    let name = path.file_name()?.to_str()?;
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let entries = std::fs::read_dir(folder).ok()?.take(LOOKED_AT);
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    // The order of a folder differs between machines.
    names.sort_unstable();
    let names: Vec<&str> = names
        .iter()
        .map(String::as_str)
        // The folder has an entry of this name where it is a link that leads nowhere.
        .filter(|other| !other.starts_with('.') && *other != name)
        .collect();
    let meant = nearest(name, &names)?;
    Some(format!("did you mean `{}`?", path.with_file_name(meant).display()))
}

/// The first `most` characters of a text, with `…` if there are more.
///
/// ```
/// use gallerist_util::text::shortened;
/// assert_eq!([shortened("heron", 5), shortened("herons", 5)], ["heron", "heron…"]);
/// ```
pub fn shortened(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

/// A path as a word of a shell, quoted where the shell would take it apart. A name that begins with `-` becomes a path,
/// because it would be an option.
///
/// ```
/// use gallerist_util::text::shell_word;
/// assert_eq!([shell_word("runs/x"), shell_word("-x")], ["runs/x", "./-x"]);
/// # #[cfg(unix)]
/// assert_eq!(shell_word("my run"), "'my run'");
/// ```
pub fn shell_word(path: &str) -> String {
    let word = if path.starts_with('-') { format!("./{path}") } else { path.to_owned() };
    let plain = |c: char| c.is_alphanumeric() || "_-./:=@%+,".contains(c) || (cfg!(windows) && c == '\\');
    match word.chars().all(plain) && !word.is_empty() {
        true => word,
        false if cfg!(windows) => format!("\"{word}\""),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

/// A whole number with a comma between thousands.
///
/// ```
/// use gallerist_util::text::grouped;
/// assert_eq!([grouped(999_u32), grouped(13_180_u32)], ["999", "13,180"]);
/// ```
pub fn grouped(value: impl Into<u128>) -> String {
    let digits = value.into().to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The scheme and the rest of an address `scheme://rest`; `None` for other text, such as a path.
///
/// ```
/// use gallerist_util::text::address;
/// assert_eq!(address("cells://plate-7"), Some(("cells", "plate-7")));
/// assert_eq!(address("photos/2024"), None);
/// assert_eq!(address("a/b://c"), None);
/// ```
pub fn address(text: &str) -> Option<(&str, &str)> {
    let (scheme, rest) = text.split_once("://")?;
    let fits = |c: char| c.is_ascii_alphanumeric() || "+-._".contains(c);
    (!scheme.is_empty() && scheme.chars().all(fits)).then_some((scheme, rest))
}

/// The absolute form of a path, which means the same in every working directory. Symbolic links and `..` stay; so does a
/// path that has no absolute form, which is the empty one.
///
/// ```
/// use std::path::Path;
/// assert!(gallerist_util::text::absolute(Path::new("photos")).ends_with("photos"));
/// assert!(gallerist_util::text::absolute(Path::new("photos")).is_absolute());
/// ```
pub fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf())
}

/// [`absolute`] for a path; an address such as `cells://plate-7` stays as it is.
///
/// ```
/// use std::path::Path;
/// let address = Path::new("cells://plate-7");
/// assert_eq!(gallerist_util::text::absolute_or_address(address), address);
/// ```
pub fn absolute_or_address(path: &Path) -> PathBuf {
    match path.to_str().and_then(address) {
        Some(_) => path.to_path_buf(),
        None => absolute(path),
    }
}

/// A value of a line of CSV (RFC 4180), quoted where it has to be.
///
/// ```
/// use gallerist_util::text::csv_field;
/// assert_eq!([csv_field("a,\"b\"", ','), csv_field("a,b", '\t')], ["\"a,\"\"b\"\"\"", "a,b"]);
/// ```
pub fn csv_field(value: &str, delimiter: char) -> Cow<'_, str> {
    match value.contains([delimiter, '"', '\n', '\r']) {
        true => format!("\"{}\"", value.replace('"', "\"\"")).into(),
        false => value.into(),
    }
}
