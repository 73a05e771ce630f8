//! MobileNetV2 (Sandler et al. 2018) in three variants.
//!
//! Convolution 3 x 3 of stride 2 to 32 channels, 17 inverted residual blocks, convolution 1 x 1 to 1280.
//!
//! | layout | activation | names | stride 2 at blocks | first block |
//! |---|---|---|---|---|
//! | `torchvision` | ReLU6 | `features.3.conv.0.0` | 1, 3, 6, 13 | without its first convolution |
//! | `timm` | ReLU6 | `blocks.1.1.conv_pw` | 1, 3, 6, 13 | without its first convolution |
//! | `mxnet` | ReLU | `linearbottleneck2.conv0` | 1, 3, 10, 13 | 32 to 32 channels |

use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::graph::Network;
use crate::layers::Activation;
use crate::resnet::GlobalPool;
use gallerist_tensor::Result;

use crate::embedder::{AnyEmbedder, Embedder};
use crate::heads::Head;
use crate::inverted_residual::{Block, Body, Naming, Style};
use crate::setting::Setting;
use crate::spec::NetworkSpec;

/// Parameters of MobileNetV2.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MobileNetV2Config {
    /// The variant: the file of weights must belong to it.
    pub layout: MobileNetV2Variant,
    /// How the last maps become one row.
    pub pool: GlobalPool,
    /// Length of an embedding; 0: the unchanged 1280 pooled features.
    pub dimensions: usize,
    /// Share of the new batch in the running statistics of batch norm.
    pub batch_norm_momentum: f64,
}

/// The variants of MobileNetV2 with public weights. They differ in activation, in the blocks that halve the
/// resolution, and in the names of their tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MobileNetV2Variant {
    /// torchvision's `mobilenet_v2`.
    #[default]
    Torchvision,
    /// timm's `mobilenetv2_100`.
    Timm,
    /// MXNet's `mobilenetv2_1.0`.
    MxNet,
}

impl Default for MobileNetV2Config {
    fn default() -> Self {
        MobileNetV2Config {
            layout: MobileNetV2Variant::Torchvision,
            pool: GlobalPool::Average,
            dimensions: 128,
            batch_norm_momentum: 0.1,
        }
    }
}

/// Channels of the first convolution.
const STEM: usize = 32;

/// Expansion, channels, number of blocks.
const GROUPS: [(usize, usize, usize); 7] =
    [(1, 16, 1), (6, 24, 2), (6, 32, 3), (6, 64, 4), (6, 96, 3), (6, 160, 3), (6, 320, 1)];

impl MobileNetV2Variant {
    fn style(self) -> Style {
        Style {
            naming: match self {
                MobileNetV2Variant::Torchvision => Naming::TorchvisionV2,
                MobileNetV2Variant::Timm => Naming::Timm,
                MobileNetV2Variant::MxNet => Naming::MxNet,
            },
            same_padding: false,
            squeeze: None,
        }
    }

    fn activation(self) -> Activation {
        match self {
            MobileNetV2Variant::Torchvision | MobileNetV2Variant::Timm => Activation::Relu6,
            MobileNetV2Variant::MxNet => Activation::Relu,
        }
    }

    fn halves(self, block: usize) -> bool {
        match self {
            MobileNetV2Variant::Torchvision | MobileNetV2Variant::Timm => [1, 3, 6, 13].contains(&block),
            MobileNetV2Variant::MxNet => [1, 3, 10, 13].contains(&block),
        }
    }

    fn blocks(self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        for (group, (expansion, out, count)) in GROUPS.into_iter().enumerate() {
            for of_group in 0..count {
                let (number, input) = (blocks.len(), blocks.last().map_or(STEM, |block| block.channels[2]));
                blocks.push(Block {
                    number,
                    group,
                    of_group,
                    window: 3,
                    stride: if self.halves(number) { 2 } else { 1 },
                    channels: [input, expansion * input, out],
                    expands: expansion > 1 || self == MobileNetV2Variant::MxNet,
                    squeezed: 0,
                    then: self.activation(),
                });
            }
        }
        blocks
    }
}

impl Named for MobileNetV2Config {
    const NAME: &'static str = "mobilenet_v2";
}

impl NetworkSpec for MobileNetV2Config {
    fn heads(&self) -> Vec<Head> {
        vec![Head::of_layer(self.dimensions, 1280)]
    }

    fn build(&self, setting: Setting<'_>) -> Result<AnyEmbedder> {
        Ok(self.describe(setting)?.boxed())
    }
}

impl MobileNetV2Config {
    fn describe(&self, setting: Setting<'_>) -> Result<Network> {
        let builder = setting.builder(self.batch_norm_momentum, 1e-5)?;
        let (style, blocks) = (self.layout.style(), self.layout.blocks());
        let last = (style.naming.last(&blocks), 1280);
        let MobileNetV2Config { pool, dimensions, .. } = *self;
        let then = self.layout.activation();
        Body { style, stem: STEM, blocks, last, then, pool, dimensions }.network(builder, setting.input)
    }
}
