//! The configuration of a loss: what builds it, and what is known of it before it is built.

use burn::tensor::Device;
use gallerist_retrieval::search::Metric;
use gallerist_util::registry::Part;

use crate::ranking::AnyLoss;
use crate::{Error, Result};

/// What the losses with learnt parameters need to know; the others ignore it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossShape {
    /// Number of training classes; their labels are `0..classes`.
    pub classes: usize,
    /// Number of dimensions of an embedding.
    pub dimensions: usize,
}

/// A size in a configuration that a run refuses when it is too large.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Limit {
    /// A count of at most `most`.
    Count {
        /// Dotted key of the run file.
        key: &'static str,
        /// The value in the configuration.
        found: usize,
        /// The largest value allowed.
        most: usize,
    },
    /// A tensor that must have a reasonable number of values.
    Tensor {
        /// Its content, in the plural: "the centres".
        what: &'static str,
        /// Dotted key of the run file.
        key: &'static str,
        /// Its shape.
        sides: Vec<usize>,
    },
}

/// The configuration of a loss.
///
/// To add a loss, implement this and [`Named`](gallerist_util::registry::Named) for its configuration. A loss of
/// another crate is used as a value (`LossConfig::from`) or, after
/// [`LossConfig::register`](crate::LossConfig::register), by its name in run files. Its configuration should refuse
/// unknown keys (`#[serde(deny_unknown_fields, default)]`).
pub trait LossSpec: Part {
    /// The loss, with its learnt parameters (if it has any) for `shape`, drawn from `seed`, on `device`.
    ///
    /// A parameter with rows for the classes has them in the order of the classes, the same number for each, along its first
    /// side. So a class keeps its rows where a run continues with other classes.
    fn build(&self, shape: LossShape, seed: u64, device: &Device) -> AnyLoss;

    /// Whether the paper normalises the embeddings before this loss.
    fn normalized(&self) -> bool {
        true
    }

    /// The metric for embeddings that were trained without normalisation: the Euclidean distance where the loss is
    /// made of distances, the cosine where it is made of inner products or where its paper normalises at test time.
    fn raw_metric(&self) -> Metric {
        Metric::Cosine
    }

    /// Whether the loss compares pairs, and so takes a cross-batch memory.
    fn takes_memory(&self) -> bool {
        false
    }

    /// Whether the configuration has the key `miner` ([`crate::miner`]).
    fn takes_miner(&self) -> bool {
        false
    }

    /// What to do about samples of several labels, for a loss that needs one class per sample. `None`: the loss takes
    /// sets of labels.
    fn needs_one_class(&self) -> Option<&'static str> {
        None
    }

    /// Whether the value of a step depends on the number of all steps ([`Progress::steps`](crate::Progress::steps)).
    fn depends_on_steps(&self) -> bool {
        false
    }

    /// Whether the value of a step depends on its number ([`Progress::step`](crate::Progress::step)), apart from random draws.
    fn has_schedule(&self) -> bool {
        self.depends_on_steps()
    }

    /// The parameters whose default follows from others or is "none": key and what it is then.
    fn derived_parameters(&self) -> Vec<(&'static str, &'static str)> {
        Vec::new()
    }

    /// The mean distance between two rows at which training begins well, for a loss that sees rows as the network
    /// gives them. A head that begins as LDA is scaled to it.
    ///
    /// `None`: no distance is preferred. The head then begins with rows of a mean squared length of 1.
    fn initial_distance(&self) -> Option<f64> {
        None
    }

    /// The parameter that sets which differences of distances or similarities the loss resolves: a temperature, a
    /// scale or a margin. `None` where the loss has none.
    fn scale_parameter(&self) -> Option<&'static str> {
        None
    }

    /// Sizes that a run refuses when they are too large, for embeddings of `dimensions` values.
    fn limits(&self, _dimensions: usize) -> Vec<Limit> {
        Vec::new()
    }

    /// Checks the ranges of the parameters.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] where a parameter is not finite or out of its range.
    fn validate(&self) -> Result<()> {
        Ok(())
    }
}

/// Refuses a parameter of `[loss]` that is not finite or does not fit.
///
/// # Errors
///
/// [`Error::Value`] that names `loss.key`, what is `wanted` and the value.
pub fn in_range(key: &str, value: f64, fits: bool, wanted: &str) -> Result<()> {
    Error::require(format!("loss.{key}"), value, fits, wanted)
}
