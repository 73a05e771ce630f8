//! The trait of network configurations.

use gallerist_tensor::Result;
use gallerist_util::registry::Part;

use crate::embedder::AnyEmbedder;
use crate::heads::Head;
use crate::setting::Setting;

/// The configuration of a network, which builds it and describes it before it is built.
///
/// To add a network, implement this and [`Named`](gallerist_util::registry::Named) for its configuration. A network
/// of another crate is used as a value (`NetworkConfig::from`) or, after
/// [`Architecture::register`](crate::Architecture::register), by its name in run files. Its configuration should refuse unknown keys
/// (`#[serde(deny_unknown_fields, default)]`).
pub trait NetworkSpec: Part {
    /// The network's embeddings, in the order in which [`Embedder::forward`](crate::Embedder::forward) returns them.
    fn heads(&self) -> Vec<Head>;

    /// The network with fresh weights, which depend on `setting.seed` alone: not on the device, nor on the number of
    /// threads.
    ///
    /// The trainer of `gallerist-train` seeds the engine's random generator with `setting.seed` before this,
    /// and draws parameters that wait for their first use, as those of Burn's layers do, right after it.
    /// That generator is one for the process: weights drawn from it also depend on what other threads draw meanwhile, such
    /// as a second run.
    ///
    /// # Errors
    ///
    /// [`Error::Value`](crate::Error::Value) where the configuration is out of its range or does not fit the input.
    fn build(&self, setting: Setting<'_>) -> Result<AnyEmbedder>;
}
