//! Fingerprints of the models that made embeddings, and the mark of rows that are not scaled.
//!
//! Rows that are compared by the cosine have length 1, unless they were embedded with `--normalize no`. Such rows have the
//! fingerprint of their model with the mark `#unscaled`: under the Euclidean distance and the inner product they cannot be
//! compared with rows of length 1, and a query must be embedded as they were. Files that were written before the mark existed
//! have none.

use gallerist_util::hex;

use crate::search::Metric;

const MARK: &str = "#unscaled";

/// The fingerprint of rows that are not scaled, although they are to be compared by the cosine.
///
/// ```
/// use gallerist_retrieval::fingerprint;
///
/// let marked = fingerprint::unscaled("0abc");
/// assert_eq!(fingerprint::split(&marked), ("0abc", true));
/// ```
pub fn unscaled(fingerprint: &str) -> String {
    format!("{fingerprint}{MARK}")
}

/// The fingerprint without the mark, and whether it has the mark.
pub fn split(fingerprint: &str) -> (&str, bool) {
    match fingerprint.strip_suffix(MARK) {
        Some(model) => (model, true),
        None => (fingerprint, false),
    }
}

/// Whether rows with these fingerprints can be compared by `metric`. The cosine compares rows of any length.
pub fn comparable(one: &str, other: &str, metric: Metric) -> bool {
    one == other || (metric == Metric::Cosine && split(one).0 == split(other).0)
}

/// Whether two fingerprints are of one model, and only one of them is of unscaled rows.
pub fn differ_in_length(one: &str, other: &str) -> bool {
    one != other && split(one).0 == split(other).0
}

/// The fingerprint in a message: its first digits, and `(rows not scaled to length 1)` where it has the mark.
pub fn shown(fingerprint: &str) -> String {
    let (model, is_unscaled) = split(fingerprint);
    let note = if is_unscaled { " (rows not scaled to length 1)" } else { "" };
    format!("{}{note}", hex::short(model))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unscaled_rows_are_comparable_with_scaled_ones_by_the_cosine_only() {
        let (model, other) = ("a1".repeat(32), "b2".repeat(32));
        let marked = unscaled(&model);
        assert!(comparable(&model, &marked, Metric::Cosine) && differ_in_length(&marked, &model));
        for metric in Metric::ALL {
            assert!(comparable(&marked, &marked, metric));
            assert!(!comparable(&marked, &unscaled(&other), metric));
            assert_eq!(comparable(&model, &marked, metric), metric == Metric::Cosine);
        }
        assert!(!differ_in_length(&model, &other) && !differ_in_length(&marked, &marked));
        assert_eq!(shown(&marked), "a1a1a1a1a1a1a1a1 (rows not scaled to length 1)");
    }
}
