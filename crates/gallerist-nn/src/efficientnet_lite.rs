//! EfficientNet-Lite (Tan & Le 2019; Lite: Liu 2020), sizes 0 to 4: EfficientNet without squeeze and excitation, with ReLU6.
//!
//! Convolution 3 x 3 of stride 2 to 32 channels, inverted residual blocks (16 in size 0), convolution 1 x 1 to 1280. A
//! block is a 1 x 1 convolution to six times the channels, a 3 x 3 or 5 x 5 convolution of each channel for itself, and a
//! 1 x 1 convolution to the block's channels without activation; its input is added if the shapes agree. The first block
//! has no first convolution. Every convolution is without bias and followed by batch norm. Larger sizes have more
//! channels and more blocks.
//!
//! | layout | weights | names | zeros around the maps | epsilon of batch norm |
//! |---|---|---|---|---|
//! | `efficientnet_pytorch` | TensorFlow's, converted | `_blocks.0._depthwise_conv` | as in TensorFlow | 0.001 |
//! | `timm_tf` | TensorFlow's, by timm (`tf_efficientnet_lite0`) | `blocks.0.0.conv_dw` | as in TensorFlow | 0.001 |
//! | `timm` | timm's own (`efficientnet_lite0`) | `blocks.0.0.conv_dw` | equal on all sides | 0.00001 |

use gallerist_tensor::Result;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::embedder::{AnyEmbedder, Embedder};
use crate::graph::{Kernel, Network, Padding};
use crate::heads::Head;
use crate::layers::Activation;
use crate::resnet::GlobalPool;
use crate::setting::{Setting, value};
use crate::spec::NetworkSpec;

/// Parameters of EfficientNet-Lite.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct EfficientNetLiteConfig {
    /// 0 to 4.
    pub size: usize,
    /// The variant: the file of weights must belong to it.
    pub layout: EfficientNetLiteVariant,
    /// How the last maps become one row.
    pub pool: GlobalPool,
    /// Length of an embedding; 0: the unchanged 1280 pooled features.
    pub dimensions: usize,
    /// Share of the new batch in the running statistics of batch norm.
    pub batch_norm_momentum: f64,
}

/// The variants of EfficientNet-Lite with public weights. They differ in the zeros around the maps, the epsilon of batch
/// norm, and the names of their tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EfficientNetLiteVariant {
    /// TensorFlow's weights by the names of EfficientNet-PyTorch.
    #[default]
    EfficientnetPytorch,
    /// TensorFlow's weights by timm's names (`tf_efficientnet_lite0`).
    TimmTf,
    /// timm's own weights (`efficientnet_lite0`).
    Timm,
}

impl Default for EfficientNetLiteConfig {
    fn default() -> Self {
        EfficientNetLiteConfig {
            size: 0,
            layout: EfficientNetLiteVariant::default(),
            pool: GlobalPool::Average,
            dimensions: 128,
            batch_norm_momentum: 0.1,
        }
    }
}

/// Factors of channels and of blocks, and the side of the images of the published weights, for each size.
const SIZES: [(f64, f64, usize); 5] =
    [(1.0, 1.0, 224), (1.0, 1.1, 240), (1.1, 1.2, 260), (1.2, 1.4, 280), (1.4, 1.8, 300)];

/// Blocks, side of the windows, stride of the first block, expansion, channels, in size 0.
const GROUPS: [(usize, usize, usize, usize, usize); 7] = [
    (1, 3, 1, 1, 16),
    (2, 3, 2, 6, 24),
    (2, 5, 2, 6, 40),
    (3, 3, 2, 6, 80),
    (3, 5, 1, 6, 112),
    (4, 5, 2, 6, 192),
    (1, 3, 1, 6, 320),
];

const RELU6: Activation = Activation::Relu6;

/// Channels in a size: a multiple of 8, not less than nine tenths of the product.
fn scaled(channels: usize, factor: f64) -> usize {
    let exact = channels as f64 * factor;
    let near = ((exact + 4.0) / 8.0) as usize * 8;
    if (near as f64) < 0.9 * exact { near + 8 } else { near }
}

/// An inverted residual block.
#[derive(Clone, Copy)]
struct Block {
    /// Its number among all blocks; its group, and its number there.
    number: usize,
    group: usize,
    of_group: usize,
    window: usize,
    stride: usize,
    expansion: usize,
    out: usize,
}

/// The blocks of a size, one of [`SIZES`].
fn blocks(size: usize) -> Vec<Block> {
    let (width, depth, _) = SIZES[size];
    let mut blocks = Vec::new();
    for (group, (count, window, stride, expansion, out)) in GROUPS.into_iter().enumerate() {
        let outer = group == 0 || group + 1 == GROUPS.len();
        let count = if outer { count } else { (count as f64 * depth).ceil() as usize };
        for of_group in 0..count {
            blocks.push(Block {
                number: blocks.len(),
                group,
                of_group,
                window,
                stride: if of_group == 0 { stride } else { 1 },
                expansion,
                out: scaled(out, width),
            });
        }
    }
    blocks
}

/// A convolution of a network, for its names.
#[derive(Clone, Copy)]
enum Part {
    Stem,
    Expansion(Block),
    Depthwise(Block),
    Projection(Block),
    Head,
}

impl EfficientNetLiteVariant {
    /// Names of a convolution and of its batch norm.
    fn names(self, part: Part) -> [String; 2] {
        if self == EfficientNetLiteVariant::EfficientnetPytorch {
            let of_block = |block: Block, conv: &str, norm: &str| {
                [conv, norm].map(|name| format!("_blocks.{}.{name}", block.number))
            };
            return match part {
                Part::Stem => ["_conv_stem", "_bn0"].map(String::from),
                Part::Expansion(block) => of_block(block, "_expand_conv", "_bn0"),
                Part::Depthwise(block) => of_block(block, "_depthwise_conv", "_bn1"),
                Part::Projection(block) => of_block(block, "_project_conv", "_bn2"),
                Part::Head => ["_conv_head", "_bn1"].map(String::from),
            };
        }
        let of_block = |block: Block, conv: &str, norm: &str| {
            [conv, norm].map(|name| format!("blocks.{}.{}.{name}", block.group, block.of_group))
        };
        // timm numbers the batch norms of a block, and the first block lacks an expansion.
        match part {
            Part::Stem => ["conv_stem", "bn1"].map(String::from),
            Part::Expansion(block) => of_block(block, "conv_pw", "bn1"),
            Part::Depthwise(block) if block.expansion == 1 => of_block(block, "conv_dw", "bn1"),
            Part::Depthwise(block) => of_block(block, "conv_dw", "bn2"),
            Part::Projection(block) if block.expansion == 1 => of_block(block, "conv_pw", "bn2"),
            Part::Projection(block) => of_block(block, "conv_pwl", "bn3"),
            Part::Head => ["conv_head", "bn2"].map(String::from),
        }
    }

    fn kernel(self, size: usize) -> Kernel {
        match self {
            EfficientNetLiteVariant::Timm => Kernel::new(size),
            _ => Kernel::new(size).padding(Padding::Same),
        }
    }

    fn epsilon(self) -> f64 {
        match self {
            EfficientNetLiteVariant::Timm => 1e-5,
            _ => 1e-3,
        }
    }
}

impl Named for EfficientNetLiteConfig {
    const NAME: &'static str = "efficientnet_lite";
}

impl NetworkSpec for EfficientNetLiteConfig {
    fn heads(&self) -> Vec<Head> {
        vec![Head::of_layer(self.dimensions, 1280)]
    }

    fn build(&self, setting: Setting<'_>) -> Result<AnyEmbedder> {
        Ok(self.describe(setting)?.boxed())
    }
}

impl EfficientNetLiteConfig {
    /// The size with so many blocks, the last of so many channels, if there is one.
    pub fn size_of(block_count: usize, last_channels: usize) -> Option<usize> {
        (0..SIZES.len()).find(|&size| {
            let blocks = blocks(size);
            blocks.len() == block_count && blocks.last().is_some_and(|block| block.out == last_channels)
        })
    }

    /// Side of the images, in pixels, with which the published weights of a size were trained.
    ///
    /// # Panics
    ///
    /// If `size` is above 4.
    pub fn side_of(size: usize) -> usize {
        SIZES[size].2
    }

    fn describe(&self, setting: Setting<'_>) -> Result<Network> {
        if self.size >= SIZES.len() {
            return Err(value("size", "0 to 4", self.size.to_string()));
        }
        let layout = self.layout;
        let (mut b, images) = setting.builder(self.batch_norm_momentum, layout.epsilon())?;
        let mut x = b.conv_norm(layout.names(Part::Stem), images, 32, layout.kernel(3).stride(2), RELU6);
        for block in blocks(self.size) {
            let Block { window, stride, expansion, out, .. } = block;
            let channels = b.channels(x);
            let inside = expansion * channels;
            let mut y = x;
            if expansion > 1 {
                y = b.conv_norm(layout.names(Part::Expansion(block)), y, inside, Kernel::new(1), RELU6);
            }
            let depthwise = layout.kernel(window).stride(stride).groups(inside);
            y = b.conv_norm(layout.names(Part::Depthwise(block)), y, inside, depthwise, RELU6);
            y = b.conv_norm(layout.names(Part::Projection(block)), y, out, Kernel::new(1), Activation::None);
            x = if stride == 1 && channels == out { b.add(y, x) } else { y };
        }
        let x = b.conv_norm(layout.names(Part::Head), x, 1280, Kernel::new(1), RELU6);
        let mut x = self.pool.describe(&mut b, x);
        if self.dimensions > 0 {
            x = b.linear("head", x, self.dimensions, true);
        }
        b.finish(&[x], setting.input)
    }
}
