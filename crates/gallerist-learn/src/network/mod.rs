//! Networks: one file each, chosen by `kind` in the run file's `[network]`.
//!
//! A network maps images `[n, channels, height, width]` to embeddings `[n, d]` that are not normalised; whether
//! they are is the loss's and the run file's decision.
//!
//! To add a network: one file with its configuration and its module, one variant in
//! [`NetworkConfig`] and in [`Network`], its tests and its documentation.

mod conv_blocks;
pub mod layers;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

pub use conv_blocks::{ConvBlocks, ConvBlocksConfig};

use crate::Result;

/// `[network]` of a run file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum NetworkConfig {
    /// A stack of convolution blocks for small images.
    ConvBlocks(ConvBlocksConfig),
}

impl Default for NetworkConfig {
    fn default() -> Self {
        NetworkConfig::ConvBlocks(ConvBlocksConfig::default())
    }
}

/// What a network is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputShape {
    /// 1 (grey) or 3 (colour).
    pub channels: usize,
    /// Pixels.
    pub height: usize,
    /// Pixels.
    pub width: usize,
}

impl NetworkConfig {
    /// The network with fresh weights, drawn from `seed` alone: the same on every device and for
    /// any number of threads.
    ///
    /// # Errors
    ///
    /// [`crate::Error::Value`] where the configuration does not fit the input.
    pub fn init(&self, input: InputShape, seed: u64, device: &Device) -> Result<Network> {
        match self {
            NetworkConfig::ConvBlocks(config) => Ok(Network::ConvBlocks(config.init(input, seed, device)?)),
        }
    }

    /// The name in the run file.
    pub fn name(&self) -> &'static str {
        match self {
            NetworkConfig::ConvBlocks(_) => "conv_blocks",
        }
    }

    /// Length of an embedding.
    pub fn dimensions(&self) -> usize {
        match self {
            NetworkConfig::ConvBlocks(config) => config.dimensions,
        }
    }
}

/// Any network of this crate.
#[derive(Module, Debug)]
pub enum Network {
    /// A stack of convolution blocks.
    ConvBlocks(ConvBlocks),
}

impl Network {
    /// Embeddings of a batch, not normalised.
    ///
    /// # Shapes
    ///
    /// `[n, channels, height, width]` to `[n, dimensions]`.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        match self {
            Network::ConvBlocks(network) => network.forward(images),
        }
    }

    /// Whether a parameter belongs to the embedding head, the layer that is always new (its learning rate is
    /// `optimizer.head_factor` times the base rate).
    ///
    /// `path` is the parameter's dotted path in the network, e.g. `head.weight`.
    pub fn is_head(path: &str) -> bool {
        path.starts_with("head.")
    }
}
