//! The trait of a miner: which pairs of one query's list take part.

use gallerist_util::registry::Part;

use crate::{Error, Result};

/// One query's list as a miner gets it.
#[derive(Clone, Copy, Debug)]
pub struct Candidates<'a> {
    /// Row of the query in the batch.
    pub query: usize,
    /// Distances (or similarities, see [`Miner::reads_similarities`]) to the whole gallery.
    pub values: &'a [f64],
    /// Its positives as places in `values`, ascending.
    pub positives: &'a [usize],
    /// Its negatives as places in `values`, ascending.
    pub negatives: &'a [usize],
    /// Number of dimensions of an embedding.
    pub dimensions: usize,
    /// Steps done.
    pub step: usize,
}

impl Candidates<'_> {
    /// Whether the query has a positive and a negative.
    pub fn has_both(&self) -> bool {
        !self.positives.is_empty() && !self.negatives.is_empty()
    }
}

/// The choice of a miner, checked. A choice that is not among the candidates leaves the query without pairs; the result then
/// has what is wrong with it.
pub(crate) fn checked(miner: &dyn Miner, candidates: &Candidates<'_>) -> (Choice, Option<String>) {
    let choice = miner.choose(candidates);
    match problem(miner, candidates, &choice) {
        None => (choice, None),
        Some(problem) => {
            let problem =
                format!("the miner `{}` chose for query {} {problem}", miner.name(), candidates.query);
            (Choice::nothing(), Some(problem))
        }
    }
}

/// What is wrong with a choice.
fn problem(miner: &dyn Miner, candidates: &Candidates<'_>, choice: &Choice) -> Option<String> {
    let stranger = |what: &str, place: usize, among: &[usize]| {
        let count = candidates.values.len();
        among.binary_search(&place).is_err().then(|| {
            if place >= count {
                format!("the {what} {place}, but its list has {count} places")
            } else {
                format!("the {what} {place}, which is not among its {what}s")
            }
        })
    };
    let twice = |mut positives: Vec<usize>| {
        positives.sort_unstable();
        let [place, _] = positives.array_windows().find(|[a, b]| a == b)?;
        Some(format!("the positive {place} twice"))
    };
    let positives_and_negatives = |positives: &[usize], negatives: &[usize]| {
        let of_positives = positives.iter().find_map(|&p| stranger("positive", p, candidates.positives));
        of_positives
            .or_else(|| negatives.iter().find_map(|&n| stranger("negative", n, candidates.negatives)))
            .or_else(|| twice(positives.to_vec()))
    };
    match choice {
        Choice::Product { positives, negatives } if !miner.gives_triplets() => {
            positives_and_negatives(positives, negatives)
        }
        Choice::Product { .. } => Some("a product of pairs, but `gives_triplets` is true".into()),
        Choice::Triplets(triplets) if miner.gives_triplets() || triplets.is_empty() => {
            let (positives, negatives): (Vec<usize>, Vec<usize>) = triplets.iter().copied().unzip();
            positives_and_negatives(&positives, &negatives)
        }
        Choice::Triplets(_) => Some("triplets, but `gives_triplets` is false".into()),
    }
}

/// The pairs that a miner keeps of a query's list, as places in [`Candidates::values`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice {
    /// Each of the positives with each of the negatives.
    Product {
        /// The positives kept.
        positives: Vec<usize>,
        /// The negatives kept.
        negatives: Vec<usize>,
    },
    /// Positives, each with a negative of its own.
    Triplets(Vec<(usize, usize)>),
}

impl Choice {
    /// No pair at all.
    pub fn nothing() -> Self {
        Choice::Triplets(Vec::new())
    }
}

/// A rule that chooses the pairs of a query that take part in its loss; implemented by the configuration of the miner.
///
/// To add a miner, implement this and [`Named`](gallerist_util::registry::Named). A miner of another crate is used as
/// a value (`MinerConfig::from`) or, after [`MinerConfig::register`](crate::miner::MinerConfig::register), by its name
/// in run files.
pub trait Miner: Part {
    /// Whether the rule reads inner products instead of Euclidean distances.
    fn reads_similarities(&self) -> bool {
        false
    }

    /// Whether [`Miner::choose`] gives each positive a negative of its own ([`Choice::Triplets`]).
    fn gives_triplets(&self) -> bool {
        false
    }

    /// Whether every pair of every batch is kept; the choice is then not computed.
    fn keeps_all(&self) -> bool {
        false
    }

    /// The pairs kept of one query's list. It must depend on the candidates alone.
    ///
    /// Positives are places in [`Candidates::positives`], each once, negatives places in [`Candidates::negatives`]. The choice
    /// is a [`Choice::Triplets`] where [`gives_triplets`](Self::gives_triplets) is true, else a [`Choice::Product`]; either may
    /// be [`Choice::nothing`]. Any other choice makes the value of the loss NaN
    /// ([`Queries::problem`](crate::Queries::problem)), and ends a run with an error.
    fn choose(&self, candidates: &Candidates<'_>) -> Choice;

    /// Checks the ranges of the parameters.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] where a parameter is not finite or out of its range.
    fn validate(&self) -> Result<()> {
        Ok(())
    }
}

/// Refuses a parameter of `[loss.miner]` that is not finite or does not fit.
pub(super) fn in_range(key: &str, value: f64, fits: bool, wanted: &str) -> Result<()> {
    Error::require(format!("loss.miner.{key}"), value, fits, wanted)
}

/// The entry of `among` whose value is the largest; the first among equals.
pub(super) fn largest(among: &[usize], values: impl Fn(usize) -> f64) -> Option<usize> {
    among.iter().copied().reduce(|best, j| if values(j) > values(best) { j } else { best })
}
