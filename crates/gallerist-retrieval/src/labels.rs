//! Class names, and sets of them, as small integers.

use std::collections::HashMap;

use gallerist_util::text::grouped;

/// Labels as integers, with the name of each.
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

/// The separator of the labels of a set: `heron|wading` has two.
pub const SEPARATOR: char = '|';

/// Whether these labels are sets: some row has several.
pub fn are_sets(labels: &[String]) -> bool {
    labels.iter().any(|label| label.contains(SEPARATOR))
}

/// Rows without a label: theirs is empty, or a set of none.
///
/// ```
/// use gallerist_retrieval::labels::without_label;
/// let rows = |labels: &[&str]| without_label(&labels.iter().map(|label| label.to_string()).collect::<Vec<_>>());
/// assert_eq!(rows(&["wren", "", "heron", " "]), 2);
/// assert_eq!(rows(&["|", "", "heron|wading"]), 2);
/// ```
pub fn without_label(labels: &[String]) -> usize {
    labels.iter().filter(|label| split(label).next().is_none()).count()
}

/// The problem of `rows` rows of `side` that have an empty label, if there are any: they would be one class, or queries of which
/// nothing can be right.
///
/// ```
/// use gallerist_retrieval::labels::empty_labels;
/// assert_eq!(empty_labels(0, "the gallery"), None);
/// assert_eq!(empty_labels(1, "the gallery").unwrap(), "1 row of the gallery has an empty label");
/// assert_eq!(empty_labels(1200, "`x.npy`").unwrap(), "1,200 rows of `x.npy` have an empty label");
/// ```
pub fn empty_labels(rows: usize, side: &str) -> Option<String> {
    match rows {
        0 => None,
        1 => Some(format!("1 row of {side} has an empty label")),
        rows => Some(format!("{} rows of {side} have an empty label", grouped(rows as u64))),
    }
}

/// Sets of labels as integers: one set per row, each rising and without repetition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabelSets {
    /// Row i has `starts[i]..starts[i + 1]` of `ids`.
    starts: Vec<usize>,
    ids: Vec<u32>,
}

impl LabelSets {
    /// Takes one set per row; repetitions are dropped.
    ///
    /// ```
    /// let sets = gallerist_retrieval::labels::LabelSets::new([vec![3, 1, 3], vec![]]);
    /// assert_eq!(sets.of(0), [1, 3]);
    /// assert!(sets.of(1).is_empty());
    /// ```
    pub fn new(sets: impl IntoIterator<Item = Vec<u32>>) -> Self {
        let mut all = Self { starts: vec![0], ids: Vec::new() };
        for mut set in sets {
            set.sort_unstable();
            set.dedup();
            all.ids.extend(set);
            all.starts.push(all.ids.len());
        }
        all
    }

    /// Number of rows.
    pub fn len(&self) -> usize {
        self.starts.len() - 1
    }

    /// True when there are no rows.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The labels of row `i`, rising.
    ///
    /// # Panics
    /// When there is no row `i`.
    pub fn of(&self, i: usize) -> &[u32] {
        &self.ids[self.starts[i]..self.starts[i + 1]]
    }
}

/// Reads `a|b` as the set of `a` and `b`, for queries and gallery alike: equal labels have equal
/// numbers in both. Spaces around a label are removed, and empty labels are ignored.
///
/// A hierarchy is written as the set of its levels, `bird|bird/heron`: the number of shared
/// labels is then the number of shared levels.
///
/// ```
/// let queries = ["heron|wading".to_owned()];
/// let gallery = ["wading".to_owned(), "wren | heron".to_owned()];
/// let (queries, gallery) = gallerist_retrieval::labels::encode_sets(&queries, &gallery);
/// assert_eq!(queries.of(0), [0, 1]);
/// assert_eq!((gallery.of(0), gallery.of(1)), (&[1][..], &[0, 2][..]));
/// ```
///
/// # Panics
/// When there are more than 2^32 distinct labels.
pub fn encode_sets(queries: &[String], gallery: &[String]) -> (LabelSets, LabelSets) {
    let mut known: HashMap<&str, u32> = HashMap::new();
    let mut number = |label| {
        let next = u32::try_from(known.len()).expect("fewer than 2^32 distinct labels");
        *known.entry(label).or_insert(next)
    };
    let queries: Vec<_> = queries.iter().map(|row| split(row).map(&mut number).collect()).collect();
    let gallery: Vec<_> = gallery.iter().map(|row| split(row).map(&mut number).collect()).collect();
    (LabelSets::new(queries), LabelSets::new(gallery))
}

/// The parts of a set: without the spaces around them, and without empty ones.
///
/// ```
/// let parts = gallerist_retrieval::labels::split("heron | wading|");
/// assert_eq!(parts.collect::<Vec<_>>(), ["heron", "wading"]);
/// ```
pub fn split(set: &str) -> impl Iterator<Item = &str> {
    set.split(SEPARATOR).map(str::trim).filter(|part| !part.is_empty())
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
