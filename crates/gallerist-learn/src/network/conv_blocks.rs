//! A stack of convolution blocks for small images (drawings, digits, symbols).
//!
//! Each block is a 3 x 3 convolution without bias, batch norm, ReLU and a 2 x 2 max pool of stride 2 (left
//! out where the image has shrunk to one pixel). A linear layer maps what is left to the
//! embedding. Four blocks of 64 channels on 28 x 28 images are the network that the few-shot
//! literature uses on Omniglot (Vinyals et al. 2016).

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use serde::{Deserialize, Serialize};

use super::InputShape;
use super::layers::{BatchNorm, Conv, Init, Linear};
use crate::{Error, Result};

/// Parameters of [`ConvBlocks`].
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ConvBlocksConfig {
    /// Output channels of each block; their number is the depth.
    pub channels: Vec<usize>,
    /// Length of an embedding.
    pub dimensions: usize,
    /// Share of the new batch in the running statistics of batch norm.
    pub batch_norm_momentum: f64,
}

impl Default for ConvBlocksConfig {
    fn default() -> Self {
        ConvBlocksConfig { channels: vec![64; 4], dimensions: 64, batch_norm_momentum: 0.1 }
    }
}

impl ConvBlocksConfig {
    /// The network with fresh weights.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] for no blocks, a block without channels, or 0 dimensions.
    pub fn init(&self, input: InputShape, seed: u64, device: &Device) -> Result<ConvBlocks> {
        let value = |key: &str, wanted: &str, found: String| Error::Value {
            key: format!("network.{key}"),
            wanted: wanted.into(),
            found,
        };
        if self.channels.is_empty() || self.channels.contains(&0) {
            return Err(value("channels", "one positive number per block", format!("{:?}", self.channels)));
        }
        if self.dimensions == 0 {
            return Err(value("dimensions", "1 or more", "0".into()));
        }
        if !(self.batch_norm_momentum > 0.0 && self.batch_norm_momentum <= 1.0) {
            return Err(value(
                "batch_norm_momentum",
                "above 0 and at most 1",
                self.batch_norm_momentum.to_string(),
            ));
        }
        let init = Init::new(seed, device);
        let (mut channels, mut height, mut width) = (input.channels, input.height, input.width);
        let mut blocks = Vec::new();
        for (i, &out) in self.channels.iter().enumerate() {
            let pool = height > 1 && width > 1;
            blocks.push(Block {
                conv: Conv::new(&init, &format!("blocks.{i}.conv"), [channels, out], 3, 1),
                norm: BatchNorm::new(&init, out, self.batch_norm_momentum),
                pool,
            });
            channels = out;
            if pool {
                (height, width) = (height / 2, width / 2);
            }
        }
        let head = Linear::new(&init, "head", channels * height * width, self.dimensions, true);
        Ok(ConvBlocks { blocks, head })
    }
}

/// One block: convolution, batch norm, ReLU, max pool.
#[derive(Module, Debug)]
struct Block {
    conv: Conv,
    norm: BatchNorm,
    #[module(skip)]
    pool: bool,
}

/// The network; see [`ConvBlocksConfig`] for its parameters.
#[derive(Module, Debug)]
pub struct ConvBlocks {
    blocks: Vec<Block>,
    head: Linear,
}

impl ConvBlocks {
    /// `[n, channels, height, width]` to `[n, dimensions]`, not normalised.
    pub fn forward(&self, images: Tensor<4>) -> Tensor<2> {
        let mut x = images;
        for block in &self.blocks {
            x = block.norm.forward_relu(block.conv.forward(x), block.pool);
        }
        self.head.forward(x.flatten(1, 3))
    }
}
