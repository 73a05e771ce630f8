//! Relevance that is more than one class per row.

use crate::labels::LabelSets;

/// Which gallery items are relevant to a query, and how much.
///
/// ```
/// use gallerist_retrieval::eval::Relevance;
///
/// /// Judgements from a file: a row of grades per query.
/// struct Judged(Vec<Vec<u32>>);
/// impl Relevance for Judged {
///     fn relevant(&self, query: usize, into: &mut Vec<(u32, u32)>) {
///         let grades = (0..).zip(&self.0[query]);
///         into.extend(grades.filter(|(_, grade)| **grade > 0).map(|(item, grade)| (item, *grade)));
///     }
/// }
/// ```
pub trait Relevance: Sync {
    /// Appends `(gallery item, grade)` for every item relevant to `query`, each item once, in any
    /// order; a grade is at least 1. For queries that are the gallery the query itself may be
    /// among them: it is left out.
    fn relevant(&self, query: usize, into: &mut Vec<(u32, u32)>);
}

/// An item is relevant when it shares a label with the query; its grade is the number of shared
/// labels.
pub struct SharedLabels<'a> {
    queries: &'a LabelSets,
    /// Label l is carried by the gallery items `starts[l]..starts[l + 1]` of `items`.
    starts: Vec<usize>,
    items: Vec<u32>,
}

impl<'a> SharedLabels<'a> {
    /// Sets numbered alike, as by [`labels::encode_sets`](crate::labels::encode_sets).
    pub fn new(queries: &'a LabelSets, gallery: &LabelSets) -> Self {
        let rows = |of: &'_ LabelSets| (0..of.len()).flat_map(|row| of.of(row).to_vec()).max();
        let labels = rows(queries).max(rows(gallery)).map_or(0, |last| last as usize + 1);
        let mut starts = vec![0; labels + 1];
        for item in 0..gallery.len() {
            gallery.of(item).iter().for_each(|&label| starts[label as usize + 1] += 1);
        }
        for label in 0..labels {
            starts[label + 1] += starts[label];
        }
        let mut next = starts.clone();
        let mut items = vec![0; starts[labels]];
        for item in 0..gallery.len() {
            for &label in gallery.of(item) {
                items[next[label as usize]] = item as u32;
                next[label as usize] += 1;
            }
        }
        Self { queries, starts, items }
    }
}

impl Relevance for SharedLabels<'_> {
    fn relevant(&self, query: usize, into: &mut Vec<(u32, u32)>) {
        let carriers = |label: &u32| {
            let label = *label as usize;
            self.items[self.starts[label]..self.starts[label + 1]].iter().copied()
        };
        let mut items: Vec<u32> = self.queries.of(query).iter().flat_map(carriers).collect();
        items.sort_unstable();
        into.extend(items.chunk_by(|a, b| a == b).map(|same| (same[0], same.len() as u32)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grade_is_the_number_of_shared_labels() {
        let queries = LabelSets::new([vec![0, 1, 2], vec![5], vec![]]);
        let gallery = LabelSets::new([vec![1], vec![2, 0], vec![3], vec![2, 1, 0, 3]]);
        let shared = SharedLabels::new(&queries, &gallery);
        let relevant = |query| {
            let mut found = Vec::new();
            shared.relevant(query, &mut found);
            found
        };
        assert_eq!(relevant(0), [(0, 1), (1, 2), (3, 3)]);
        assert_eq!(relevant(1), []);
        assert_eq!(relevant(2), []);
    }
}
