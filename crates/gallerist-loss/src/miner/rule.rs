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
