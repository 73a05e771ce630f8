//! How many irrelevant items come before each relevant item of a query.

use std::ops::Range;

use crate::search::rank_key;

/// For one query, its relevant items and how many irrelevant ones come before each.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// The rank keys of the relevant items, the best first.
    pub(super) relevant: Vec<u64>,
    /// Irrelevant items before relevant item i and after item i - 1.
    pub(super) between: Vec<u32>,
    /// At the first relevant item of each score, the irrelevant items of that score. Empty while there are none.
    ties: Vec<Tie>,
    /// Some item's place was not decided by counting.
    pub(super) undecided: bool,
}

/// Irrelevant items that have exactly the score of a relevant one.
#[derive(Clone, Copy, Debug, Default)]
struct Tie {
    items: u32,
    /// Those before the first relevant item of that score.
    ahead: u32,
}

/// Whether two keys are of one score.
fn same_score(a: u64, b: u64) -> bool {
    a >> 32 == b >> 32
}

impl Counts {
    /// No item counted yet; the keys of the relevant items fall.
    pub(super) fn new(relevant: Vec<u64>) -> Self {
        let between = vec![0; relevant.len()];
        Self { relevant, between, ..Self::default() }
    }

    /// Counts an irrelevant item.
    pub(super) fn add(&mut self, score: f32, item: u32) {
        let key = rank_key(score, item);
        let before = self.relevant.partition_point(|&relevant| relevant > key);
        if let Some(count) = self.between.get_mut(before) {
            *count += 1;
        }
        let ties = |at: usize| self.relevant.get(at).is_some_and(|&relevant| same_score(relevant, key));
        if ties(before) || before > 0 && ties(before - 1) {
            self.add_tie(key, before);
        }
    }

    /// Counts an irrelevant item once more: it has the score of a relevant one.
    #[cold]
    fn add_tie(&mut self, key: u64, before: usize) {
        let first = self.relevant.partition_point(|&relevant| relevant >> 32 > key >> 32);
        self.ties.resize(self.relevant.len(), Tie::default());
        self.ties[first].items += 1;
        self.ties[first].ahead += u32::from(before == first);
    }

    /// Whether an irrelevant item has exactly the score of a relevant one.
    pub(super) fn tied(&self) -> bool {
        !self.ties.is_empty()
    }

    /// The places of the relevant items of one score, one range after the other.
    pub(super) fn groups(&self) -> impl Iterator<Item = Range<usize>> {
        let mut start = 0;
        self.relevant.chunk_by(|&a, &b| same_score(a, b)).map(move |group| {
            start += group.len();
            start - group.len()..start
        })
    }

    /// The ranks where of items exactly as close the relevant ones come first, and where they come last.
    pub(super) fn extreme_ranks(&self) -> (Vec<u32>, Vec<u32>) {
        let (mut best, mut worst) = (Vec::new(), Vec::new());
        let mut before = 0;
        for group in self.groups() {
            let Tie { items, ahead } = self.ties.get(group.start).copied().unwrap_or_default();
            // Irrelevant items of a better score; those of a score that come after its last relevant item
            // are counted between it and the next.
            let better = before + self.between[group.start] - ahead;
            let first = better + group.start as u32 + 1;
            let size = group.len() as u32;
            best.extend(first..first + size);
            worst.extend(first + items..first + items + size);
            before += self.between[group].iter().sum::<u32>();
        }
        (best, worst)
    }

    /// The ranks of the relevant items.
    pub(super) fn ranks(&self) -> Vec<u32> {
        let mut rank = 0;
        let ranks = self.between.iter().map(|between| {
            rank += between + 1;
            rank
        });
        ranks.collect()
    }

    /// The irrelevant items at each place where there are some: the place among the relevant items, the items
    /// between it and the place before it, and the items of its score with those of them that come before it.
    pub(super) fn places(&self) -> impl Iterator<Item = (usize, [u32; 3])> {
        let at = |place: usize| {
            let Tie { items, ahead } = self.ties.get(place).copied().unwrap_or_default();
            (place, [self.between[place], items, ahead])
        };
        (0..self.relevant.len()).map(at).filter(|&(_, counts)| counts != [0; 3])
    }

    /// Adds what [`places`](Self::places) gave for other items.
    pub(super) fn add_place(&mut self, place: usize, [between, items, ahead]: [u32; 3]) {
        self.between[place] += between;
        if items > 0 {
            self.ties.resize(self.relevant.len(), Tie::default());
            self.ties[place].items += items;
            self.ties[place].ahead += ahead;
        }
    }
}
