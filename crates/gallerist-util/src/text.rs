//! Suggestions for misspelt names.

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
