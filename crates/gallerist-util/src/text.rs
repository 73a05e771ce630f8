//! Suggestions for misspelt names, and addresses.

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

/// The path from the root of the file system, so that it means the same in every folder. An address such as
/// `cells://plate-7` stays as it is.
pub fn absolute(path: &std::path::Path) -> std::path::PathBuf {
    match path.to_str().and_then(address) {
        Some(_) => path.to_path_buf(),
        None => std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf()),
    }
}
