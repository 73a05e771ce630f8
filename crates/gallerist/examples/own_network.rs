//! A program with a network of its own: a Burn module that run files name `kind = "tiny"`. It has all commands of
//! `gallerist`.
//!
//! ```text
//! cargo run --release --example own_network -- train run.toml
//! ```

use gallerist::burn;
use gallerist::burn::module::Module;
use gallerist::burn::nn::conv::{Conv2d, Conv2dConfig};
use gallerist::burn::nn::{Linear, LinearConfig};
use gallerist::burn::tensor::{Tensor, activation::relu};
use gallerist::prelude::*;
use serde::{Deserialize, Serialize};

/// One convolution, the mean over all places, a linear layer.
#[derive(Module, Debug)]
struct Tiny {
    conv: Conv2d,
    head: Linear,
}

impl Embedder for Tiny {
    fn forward(&self, images: Tensor<4>) -> Vec<Tensor<2>> {
        let maps = relu(self.conv.forward(images));
        let features = maps.flatten::<3>(2, 3).mean_dim(2).flatten(1, 2);
        vec![self.head.forward(features)]
    }
}

/// The keys of `[network]`, with their defaults.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TinyConfig {
    channels: usize,
    dimensions: usize,
}

impl Default for TinyConfig {
    fn default() -> Self {
        TinyConfig { channels: 16, dimensions: 8 }
    }
}

impl Named for TinyConfig {
    const NAME: &'static str = "tiny";
}

impl NetworkSpec for TinyConfig {
    fn heads(&self) -> Vec<Head> {
        vec![Head::only(self.dimensions)]
    }

    fn build(&self, setting: Setting<'_>) -> gallerist::network::Result<AnyEmbedder> {
        setting.device.seed(setting.seed);
        let conv = Conv2dConfig::new([setting.input.channels, self.channels], [3, 3]).init(setting.device);
        let head = LinearConfig::new(self.channels, self.dimensions).init(setting.device);
        Ok(Tiny { conv, head }.boxed())
    }
}

/// The registry with the network.
pub fn registry() -> Registry {
    Registry::default().network::<TinyConfig>()
}

fn main() -> std::process::ExitCode {
    gallerist::cli::run(&registry())
}
