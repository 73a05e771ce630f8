//! Class names as small integers.

use std::collections::HashMap;

/// Labels as integers, with the name behind each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Encoded {
    /// One id per row; equal labels have equal ids.
    pub ids: Vec<u32>,
    /// The label of each id, in the order of first appearance.
    pub names: Vec<String>,
}

/// Numbers the distinct labels from 0 in the order in which they first appear.
///
/// ```
/// let labels = ["wren", "heron", "wren"].map(String::from);
/// let encoded = gallerist_retrieval::labels::encode(&labels);
/// assert_eq!(encoded.ids, [0, 1, 0]);
/// assert_eq!(encoded.names, ["wren", "heron"]);
/// ```
///
/// # Panics
/// When there are more than 2^32 distinct labels.
pub fn encode(labels: &[String]) -> Encoded {
    encode_both(labels, &[]).0
}

/// Numbers the labels of queries and gallery together: the same label has the same id in both.
///
/// The names of both results are the same list.
///
/// # Panics
/// When there are more than 2^32 distinct labels.
pub fn encode_both(queries: &[String], gallery: &[String]) -> (Encoded, Encoded) {
    let mut known: HashMap<&str, u32> = HashMap::new();
    let mut names = Vec::new();
    let mut number = |label| {
        *known.entry(label).or_insert_with(|| {
            names.push(String::from(label));
            u32::try_from(names.len() - 1).expect("fewer than 2^32 distinct labels")
        })
    };
    let queries = queries.iter().map(|label| number(label.as_str())).collect();
    let gallery = gallery.iter().map(|label| number(label.as_str())).collect();
    (Encoded { ids: queries, names: names.clone() }, Encoded { ids: gallery, names })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_and_gallery_share_their_ids() {
        let (queries, gallery) =
            encode_both(&["b".into(), "a".into()], &["c".into(), "a".into(), "b".into()]);
        assert_eq!(queries.ids, [0, 1]);
        assert_eq!(gallery.ids, [2, 1, 0]);
        assert_eq!(gallery.names, ["b", "a", "c"]);
    }
}
