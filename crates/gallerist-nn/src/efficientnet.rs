//! EfficientNet (Tan & Le 2019), sizes B0 to B7.
//!
//! Convolution 3 x 3 of stride 2, inverted residual blocks with squeeze and excitation (16 in size 0), and a 1 x 1 convolution (to
//! 1280 channels in size 0), with SiLU throughout. The channels between squeeze and excitation are a quarter of those of the
//! block's input. Larger sizes have more channels and more blocks. The published training leaves whole blocks out at random,
//! which is not done here.
//!
//! | layout | weights | names | zeros around the maps | epsilon of batch norm |
//! |---|---|---|---|---|
//! | `torchvision` | torchvision's | `features.1.0.block.0.0` | equal on all sides | 0.00001; from size 5 on 0.001 |
//! | `timm` | timm's own (`efficientnet_b0`) | `blocks.0.0.conv_dw` | equal on all sides | 0.00001 |
//! | `timm_tf` | TensorFlow's, by timm (`tf_efficientnet_b0`) | `blocks.0.0.conv_dw` | as in TensorFlow | 0.001 |
//! | `efficientnet_pytorch` | TensorFlow's, converted | `_blocks.0._depthwise_conv` | as in TensorFlow | 0.001 |

use gallerist_tensor::Result;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::embedder::{AnyEmbedder, Embedder};
use crate::graph::Network;
use crate::heads::Head;
use crate::inverted_residual::{Block, Body, Naming, Style, scaled};
use crate::layers::{Activation, Gate};
use crate::resnet::GlobalPool;
use crate::setting::{Setting, value};
use crate::spec::NetworkSpec;

/// Parameters of EfficientNet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EfficientNetConfig {
    /// 0 to 7.
    pub size: usize,
    /// The variant: the file of weights must belong to it.
    pub layout: EfficientNetVariant,
    /// How the last maps become one row.
    pub pool: GlobalPool,
    /// Length of an embedding; 0: the unchanged pooled features, 1280 in size 0.
    pub dimensions: usize,
    /// Share of the new batch in the running statistics of batch norm.
    pub batch_norm_momentum: f64,
}

/// The variants of EfficientNet with public weights. They differ in the names of their tensors, the zeros around the maps, and
/// the epsilon of batch norm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EfficientNetVariant {
    /// torchvision's `efficientnet_b0` to `efficientnet_b7`.
    #[default]
    Torchvision,
    /// timm's own weights (`efficientnet_b0`).
    Timm,
    /// TensorFlow's weights by timm's names (`tf_efficientnet_b0`).
    TimmTf,
    /// TensorFlow's weights by the names of EfficientNet-PyTorch.
    EfficientnetPytorch,
}

impl Default for EfficientNetConfig {
    fn default() -> Self {
        EfficientNetConfig {
            size: 0,
            layout: EfficientNetVariant::default(),
            pool: GlobalPool::Average,
            dimensions: 128,
            batch_norm_momentum: 0.1,
        }
    }
}

/// Factors of channels and of blocks, and the side of the images of the published weights, for each size.
const SIZES: [(f64, f64, usize); 8] = [
    (1.0, 1.0, 224),
    (1.0, 1.1, 240),
    (1.1, 1.2, 260),
    (1.2, 1.4, 300),
    (1.4, 1.8, 380),
    (1.6, 2.2, 456),
    (1.8, 2.6, 528),
    (2.0, 3.1, 600),
];

const SILU: Activation = Activation::Silu;

/// Blocks, side of the windows, stride of the first block, expansion, channels, in size 0.
pub(crate) const GROUPS: [(usize, usize, usize, usize, usize); 7] = [
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
];

/// The blocks after a convolution to `stem` channels, for a factor of channels. `count` is the number of blocks of a group, from
/// its number and its blocks in size 0; `squeezes` tells whether they have squeeze and excitation.
pub(crate) fn blocks(
    stem: usize,
    width: f64,
    count: impl Fn(usize, usize) -> usize,
    squeezes: bool,
    then: Activation,
) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for (group, (of_size_0, window, first_stride, expansion, out)) in GROUPS.into_iter().enumerate() {
        for of_group in 0..count(group, of_size_0) {
            let input = blocks.last().map_or(stem, |block| block.channels[2]);
            blocks.push(Block {
                number: blocks.len(),
                group,
                of_group,
                window,
                stride: if of_group == 0 { first_stride } else { 1 },
                channels: [input, expansion * input, scaled(out, width)],
                expands: expansion > 1,
                squeezed: if squeezes { input / 4 } else { 0 },
                then,
            });
        }
    }
    blocks
}

fn channels_of(size: usize) -> [usize; 2] {
    [32, 1280].map(|channels| scaled(channels, SIZES[size].0))
}

fn blocks_of(size: usize) -> Vec<Block> {
    let (width, depth, _) = SIZES[size];
    blocks(channels_of(size)[0], width, |_, of_size_0| times(of_size_0, depth), true, SILU)
}

/// Blocks of a group times a factor.
pub(crate) fn times(of_size_0: usize, depth: f64) -> usize {
    (of_size_0 as f64 * depth).ceil() as usize
}

/// The first of `sizes` with so many blocks, the last of so many channels.
pub(crate) fn find_size(
    mut sizes: std::ops::Range<usize>,
    blocks_of: fn(usize) -> Vec<Block>,
    block_count: usize,
    last_channels: usize,
) -> Option<usize> {
    sizes.find(|&size| {
        let blocks = blocks_of(size);
        blocks.len() == block_count && blocks.last().is_some_and(|block| block.channels[2] == last_channels)
    })
}

impl EfficientNetVariant {
    fn style(self) -> Style {
        Style {
            naming: match self {
                EfficientNetVariant::Torchvision => Naming::TorchvisionGroups,
                EfficientNetVariant::Timm | EfficientNetVariant::TimmTf => Naming::Timm,
                EfficientNetVariant::EfficientnetPytorch => Naming::EfficientnetPytorch,
            },
            same_padding: matches!(
                self,
                EfficientNetVariant::TimmTf | EfficientNetVariant::EfficientnetPytorch
            ),
            squeeze: Some((SILU, Gate::Sigmoid)),
        }
    }

    fn epsilon(self, size: usize) -> f64 {
        match self {
            EfficientNetVariant::Torchvision if size >= 5 => 1e-3,
            EfficientNetVariant::Torchvision | EfficientNetVariant::Timm => 1e-5,
            EfficientNetVariant::TimmTf | EfficientNetVariant::EfficientnetPytorch => 1e-3,
        }
    }
}

impl Named for EfficientNetConfig {
    const NAME: &'static str = "efficientnet";
}

impl NetworkSpec for EfficientNetConfig {
    fn heads(&self) -> Vec<Head> {
        // A size that there is not is an error of `build`.
        let features = channels_of(self.size.min(SIZES.len() - 1))[1];
        vec![Head::of_layer(self.dimensions, features)]
    }

    fn build(&self, setting: Setting<'_>) -> Result<AnyEmbedder> {
        Ok(self.describe(setting)?.boxed())
    }
}

impl EfficientNetConfig {
    /// The size with so many blocks, the last of so many channels, if there is one.
    pub fn size_of(block_count: usize, last_channels: usize) -> Option<usize> {
        find_size(0..SIZES.len(), blocks_of, block_count, last_channels)
    }

    /// Side of the images, in pixels, with which the published weights of a size were trained.
    ///
    /// # Panics
    ///
    /// If `size` is above 7.
    pub fn side_of(size: usize) -> usize {
        SIZES[size].2
    }

    fn describe(&self, setting: Setting<'_>) -> Result<Network> {
        if self.size >= SIZES.len() {
            return Err(value("size", "0 to 7", self.size.to_string()));
        }
        let builder = setting.builder(self.batch_norm_momentum, self.layout.epsilon(self.size))?;
        let (style, blocks) = (self.layout.style(), blocks_of(self.size));
        let [stem, features] = channels_of(self.size);
        let last = (style.naming.last(&blocks), features);
        let EfficientNetConfig { pool, dimensions, .. } = *self;
        Body { style, stem, blocks, last, then: SILU, pool, dimensions }.network(builder, setting.input)
    }
}
