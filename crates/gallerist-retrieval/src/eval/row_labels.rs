//! What each row of queries or gallery shows.

use crate::labels::LabelSets;

/// What is known of each row.
#[derive(Clone, Copy, Debug)]
pub enum RowLabels<'a> {
    /// One class per row; rows of the same class are relevant to each other.
    Classes(&'a [u32]),
    /// A set of labels per row; rows that share a label are relevant to each other, with the
    /// number of shared labels as grade.
    Sets(&'a LabelSets),
}

impl RowLabels<'_> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Classes(classes) => classes.len(),
            Self::Sets(sets) => sets.len(),
        }
    }

    /// The labels of row `i`.
    pub(super) fn of(&self, i: usize) -> &[u32] {
        match self {
            Self::Classes(classes) => std::slice::from_ref(&classes[i]),
            Self::Sets(sets) => sets.of(i),
        }
    }

    /// The same as sets.
    pub(super) fn to_sets(self) -> LabelSets {
        match self {
            Self::Classes(classes) => LabelSets::new(classes.iter().map(|&class| vec![class])),
            Self::Sets(sets) => sets.clone(),
        }
    }
}
