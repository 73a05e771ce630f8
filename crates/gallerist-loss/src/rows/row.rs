//! What a loss has to say about a row.

/// What a row's values are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measure {
    /// Euclidean distances; right for near pairs, exactly 0 for coincident ones.
    Distance,
    /// Inner products.
    Similarity,
}

impl Measure {
    /// The value that stands where a row has no negative: farther than any.
    pub(crate) fn absent_negative(self) -> f32 {
        match self {
            Measure::Distance => f32::INFINITY,
            Measure::Similarity => f32::NEG_INFINITY,
        }
    }
}

/// Who gets a gradient from the pair of a query and a gallery sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sides {
    /// The query; the gallery is held constant.
    Query,
    /// The gallery; the query is held constant. Where the gallery's sample is of the memory, the query:
    /// the exchanged roles.
    Gallery,
    /// Both: the true derivative.
    Both,
}

/// How many of what the labels of a batch make.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Queries.
    pub queries: u64,
    /// Queries that have a positive and a negative.
    pub both: u64,
    /// Pairs of a query and a positive, over the queries that have both.
    pub positive_pairs_of_both: u64,
    /// Triplets.
    pub triplets: u64,
}

/// A query's row.
pub(crate) struct Row<'a> {
    /// The values of the positives, in the order of their indices.
    pub positives: &'a [f32],
    /// The values of the whole gallery, in a multiple of [`super::lanes::LANES`] places. Where the sample
    /// is no negative (the positives, the query itself, the padding) stands infinity for a
    /// distance, minus infinity for a similarity.
    pub negatives: &'a [f32],
    /// Number of negatives.
    pub negative_count: usize,
    /// Room for the derivatives by the positives; zeros at the start.
    pub by_positives: &'a mut [f32],
    /// Room for the derivatives by the negatives; zeros at the start. Must stay 0 where there is no
    /// negative.
    pub by_negatives: &'a mut [f32],
}

impl Row<'_> {
    /// Whether the query has a positive and a negative.
    pub(crate) fn has_both(&self) -> bool {
        !self.positives.is_empty() && self.negative_count > 0
    }
}

/// What a row gave.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    /// The query's loss.
    pub loss: f64,
    /// How often it counts in the batch's value, beside the factor. The derivatives that the row
    /// writes are those of the loss times this.
    pub weight: f64,
    /// Positives that got a derivative.
    pub mined_positives: u32,
    /// Negatives that got a derivative.
    pub mined_negatives: u32,
    /// Terms that might be dead.
    pub terms: u32,
    /// Terms that are.
    pub dead_terms: u32,
    /// Logarithm of the query's mass, for [`RowLoss::shares`].
    pub log_mass: f64,
}

impl Default for Seen {
    fn default() -> Self {
        Seen {
            loss: 0.0,
            weight: 1.0,
            mined_positives: 0,
            mined_negatives: 0,
            terms: 0,
            dead_terms: 0,
            log_mass: f64::NEG_INFINITY,
        }
    }
}

/// A loss that is a sum over queries of functions of their rows.
pub(crate) trait RowLoss: Sync {
    /// What the rows hold.
    const MEASURE: Measure;

    /// Whether the loss has terms that can be dead.
    const DEAD_TERMS: bool = false;

    /// Who gets a gradient.
    fn sides(&self) -> Sides;

    /// The weight of every query in the batch's value. It is multiplied into the gradients, too.
    fn factor(&self, counts: &Counts) -> f64;

    /// The loss of a query and its derivatives by the values of its row. Implementations are
    /// `#[inline(always)]`, see [`super::lanes`].
    fn row(&self, row: &mut Row<'_>) -> Seen;

    /// Weights of the queries that depend on what all rows gave; multiplied with the factor. Only for
    /// losses whose gradient goes to the query.
    fn shares(&self, _seen: &[Seen]) -> Option<Vec<f64>> {
        None
    }
}
