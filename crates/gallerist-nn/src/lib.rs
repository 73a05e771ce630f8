//! Networks: one file each, chosen by `kind` in the run file's `[network]`.
//!
//! A network maps images `[n, channels, height, width]` to embeddings `[n, d]`, one per head, that are not
//! normalised; whether they are is the loss's and the run file's decision.
//!
//! To add a network: one file with its configuration and its description (calls on the builder of
//! the module `graph`), one variant in [`Architecture`], its tests and its documentation.
//!
//! # Example
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use gallerist_nn::{InputShape, NetworkConfig, ResNetConfig};
//!
//! let config = NetworkConfig::from(ResNetConfig { depth: 18, dimensions: 64, ..Default::default() });
//! let input = InputShape { channels: 3, height: 64, width: 32 };
//! let network = config.init(input, 1, &Device::flex())?;
//! let embeddings = network.forward(Tensor::zeros([2, 3, 64, 32], &Device::flex()));
//! assert_eq!(embeddings.len(), config.heads().len());
//! assert_eq!(embeddings[0].dims(), [2, 64]);
//! # Ok::<(), gallerist_nn::Error>(())
//! ```

#![recursion_limit = "256"]

mod bn_inception;
mod config;
mod conv_blocks;
mod googlenet;
pub mod graph;
mod heads;
pub mod layers;
mod limits;
mod mobilenet_v2;
mod resnet;
mod two_conv;

use burn::tensor::Device;

pub use bn_inception::{BnInceptionConfig, InceptionHead};
pub use config::{Architecture, FreezeBatchNorm, HeadInit, NetworkConfig};
pub use conv_blocks::ConvBlocksConfig;
pub use googlenet::GoogLeNetConfig;
pub use graph::Network;
pub use heads::{Combine, Head, HeadChoice, place};
pub use limits::{MAX_PARAMETERS, numbers_in_words};
pub use mobilenet_v2::{Layout, MobileNetV2Config};
pub use resnet::{GlobalPool, ResNetConfig};
pub use two_conv::TwoConvConfig;

pub use gallerist_tensor::{Error, Result};
use graph::{Builder, Node};

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

/// What a network's description is made for.
#[derive(Clone, Copy)]
struct Setting<'a> {
    input: InputShape,
    seed: u64,
    device: &'a Device,
    freeze: FreezeBatchNorm,
}

impl<'a> Setting<'a> {
    /// A builder whose batch norms have these parameters, and the images.
    fn builder(self, momentum: f64, epsilon: f64) -> Result<(Builder<'a>, Node)> {
        if !(momentum > 0.0 && momentum <= 1.0) {
            return Err(value("batch_norm_momentum", "above 0 and at most 1", momentum.to_string()));
        }
        let (mut builder, images) = Builder::new(layers::Init::new(self.seed, self.device), self.input);
        builder.batch_norm(momentum, epsilon, self.freeze);
        Ok((builder, images))
    }
}

fn value(key: &str, wanted: &str, found: String) -> Error {
    Error::Value { key: format!("network.{key}"), wanted: wanted.into(), found }
}
