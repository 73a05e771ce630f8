//! What one gallery item is to one query: the rules that ranked lists and metrics share.

use super::row_labels::RowLabels;

/// What a gallery item is to a query.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It takes up no rank: the query's own row, junk, or an image of the query's class from the query's own
    /// camera. It never appears in a ranked list.
    Skipped,
    /// It takes up a rank and is not relevant: another class, a distractor among them.
    Wrong,
    /// It is relevant. The grade is 1 for classes, the number of shared labels for label sets.
    Right {
        /// At least 1.
        grade: u32,
    },
}

impl Verdict {
    /// Whether the item takes up a rank.
    pub fn counts(self) -> bool {
        self != Self::Skipped
    }

    /// Whether the item is relevant.
    pub fn is_right(self) -> bool {
        matches!(self, Self::Right { .. })
    }
}

/// RowLabels and cameras of one side.
#[derive(Clone, Copy)]
pub(super) struct Judged<'a> {
    pub(super) labels: RowLabels<'a>,
    pub(super) cameras: Option<&'a [u32]>,
}

/// Decides about pairs of a query and a gallery item.
#[derive(Clone, Copy)]
pub(super) struct Judge<'a> {
    pub(super) queries: Judged<'a>,
    pub(super) gallery: Judged<'a>,
    /// Queries are the gallery: row i is skipped for query i.
    pub(super) same: bool,
    /// Gallery items of this class are skipped for every query.
    pub(super) junk: Option<u32>,
}

impl Judge<'_> {
    pub(super) fn is_junk(&self, item: usize) -> bool {
        match self.gallery.labels {
            RowLabels::Classes(classes) => Some(classes[item]) == self.junk,
            RowLabels::Sets(_) => false,
        }
    }

    /// Whether an item takes up no rank for a query.
    pub(super) fn skips(&self, query: usize, item: usize) -> bool {
        let same_camera = || match (self.queries.cameras, self.gallery.cameras) {
            (Some(queries), Some(gallery)) => queries[query] == gallery[item],
            _ => false,
        };
        self.same && query == item || self.is_junk(item) || same_camera() && self.grade(query, item) > 0
    }

    pub(super) fn verdict(&self, query: usize, item: usize) -> Verdict {
        match self.grade(query, item) {
            _ if self.skips(query, item) => Verdict::Skipped,
            0 => Verdict::Wrong,
            grade => Verdict::Right { grade },
        }
    }

    /// The number of labels that both carry.
    fn grade(&self, query: usize, item: usize) -> u32 {
        let (wanted, carried) = (self.queries.labels.of(query), self.gallery.labels.of(item));
        wanted.iter().filter(|label| carried.contains(label)).count() as u32
    }
}
