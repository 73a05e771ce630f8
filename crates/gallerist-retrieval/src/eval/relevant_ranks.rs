//! The ranks of a query's relevant items: what every metric is computed from.

/// The ranks, from 1, of all items relevant to one query, rising; where relevance has grades,
/// the grade of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RelevantRanks<'a> {
    ranks: &'a [u32],
    grades: Option<&'a [u32]>,
}

impl<'a> RelevantRanks<'a> {
    /// Items of equal relevance: grade 1.
    ///
    /// # Panics
    /// When the ranks do not rise, or start below 1.
    pub fn new(ranks: &'a [u32]) -> Self {
        assert!(
            ranks.first() != Some(&0) && ranks.is_sorted_by(|a, b| a < b),
            "ranks rise and start at 1: {ranks:?}"
        );
        Self { ranks, grades: None }
    }

    /// Items of which each has a grade of at least 1.
    ///
    /// # Panics
    /// As [`new`](Self::new), and when there is not one grade per rank.
    pub fn graded(ranks: &'a [u32], grades: &'a [u32]) -> Self {
        assert!(
            ranks.len() == grades.len() && !grades.contains(&0),
            "one grade of at least 1 for each of {} ranks: {grades:?}",
            ranks.len()
        );
        Self { grades: Some(grades), ..Self::new(ranks) }
    }

    /// R: the number of relevant items.
    pub fn relevant(&self) -> usize {
        self.ranks.len()
    }

    /// The rank of the first relevant item.
    pub fn first(&self) -> Option<u32> {
        self.ranks.first().copied()
    }

    /// The relevant items among the first `k`.
    pub fn hits_within(&self, k: usize) -> usize {
        self.ranks.partition_point(|&rank| rank as usize <= k)
    }

    /// The ranks, rising.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = u32> + 'a {
        self.ranks.iter().copied()
    }

    /// The precision at each relevant item: the share of relevant items among those up to its rank.
    pub fn precisions(&self) -> impl ExactSizeIterator<Item = f64> + 'a {
        (1..self.ranks.len() as u32 + 1).zip(self.iter()).map(|(hit, rank)| f64::from(hit) / f64::from(rank))
    }

    /// The grades in the order of the ranks; all 1 where relevance has no grades.
    pub fn grades(&self) -> impl ExactSizeIterator<Item = u32> + 'a {
        let grades = self.grades;
        (0..self.ranks.len()).map(move |at| grades.map_or(1, |grades| grades[at]))
    }
}
