//! The parameters from which a network is built.

use std::path::Path;

use burn::tensor::Device;
use gallerist_tensor::Error;
use serde::{Deserialize, Serialize};

/// The shape of the input of a network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputShape {
    /// 1 (grey) or 3 (colour).
    pub channels: usize,
    /// Pixels.
    pub height: usize,
    /// Pixels.
    pub width: usize,
}

/// The parameters from which a network is built ([`NetworkSpec::build`](crate::NetworkSpec::build)).
#[derive(Clone, Copy, Debug)]
pub struct Setting<'a> {
    /// Size of the images.
    pub input: InputShape,
    /// Seed of the weights.
    pub seed: u64,
    /// The device of the parameters; with autodiff for training.
    pub device: &'a Device,
    /// The frozen parts of batch norm.
    pub freeze: FreezeBatchNorm,
    /// The file of a model that another program made ([`NetworkConfig::file`](crate::NetworkConfig::file)).
    pub file: Option<&'a Path>,
}

/// The frozen parts of batch norm. Batch norms of layers that may be new ([`Network::may_be_new`](crate::Network::may_be_new)) are never
/// frozen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FreezeBatchNorm {
    /// Nothing: batches are normalised by their own statistics.
    #[default]
    None,
    /// The statistics: batches are normalised by the running statistics, which do not change. Scale and shift are trained.
    Statistics,
    /// The statistics, the scale and the shift.
    All,
}

impl FreezeBatchNorm {
    pub(crate) fn is_none(&self) -> bool {
        *self == FreezeBatchNorm::None
    }
}

/// The error for a value of `[network]`.
pub(crate) fn value(key: &str, wanted: &str, found: String) -> Error {
    Error::Value { key: format!("network.{key}"), wanted: wanted.into(), found }
}
