//! A stack of convolution blocks for small images (drawings, digits, symbols).
//!
//! Each block is a 3 x 3 convolution without bias, batch norm, ReLU and a 2 x 2 max pool of stride 2 (left
//! out where the image has shrunk to one pixel). A linear layer maps what is left to the
//! embedding. Four blocks of 64 channels on 28 x 28 images are the network that the few-shot
//! literature uses on Omniglot (Vinyals et al. 2016).

use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::graph::{Kernel, Network};
use crate::layers::{Activation, Pool};
use gallerist_tensor::Result;

use crate::embedder::{AnyEmbedder, Embedder};
use crate::heads::Head;
use crate::setting::{Setting, value};
use crate::spec::NetworkSpec;

/// Parameters of the network of convolution blocks.
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

impl Named for ConvBlocksConfig {
    const NAME: &'static str = "conv_blocks";
}

impl NetworkSpec for ConvBlocksConfig {
    fn heads(&self) -> Vec<Head> {
        vec![Head::only(self.dimensions)]
    }

    fn build(&self, setting: Setting<'_>) -> Result<AnyEmbedder> {
        Ok(self.describe(setting)?.boxed())
    }
}

impl ConvBlocksConfig {
    fn describe(&self, setting: Setting<'_>) -> Result<Network> {
        if self.channels.is_empty() || self.channels.contains(&0) {
            return Err(value("channels", "one positive number per block", format!("{:?}", self.channels)));
        }
        if self.dimensions == 0 {
            return Err(value("dimensions", "1 or more", "0".into()));
        }
        let (mut b, mut x) = setting.builder(self.batch_norm_momentum, 1e-5)?;
        for (i, &out) in self.channels.iter().enumerate() {
            let names = ["conv", "norm"].map(|part| format!("blocks.{i}.{part}"));
            x = b.conv_norm(names, x, out, Kernel::new(3), Activation::Relu);
            if b.area(x).iter().all(|&side| side > 1) {
                x = b.max_pool(x, Pool::new(2, 2));
            }
        }
        let row = b.flatten(x);
        let head = b.linear("head", row, self.dimensions, true);
        b.finish(&[head], setting.input)
    }
}
