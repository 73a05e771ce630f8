//! EfficientNet-Lite (Tan & Le 2019; Lite: Liu 2020), sizes 0 to 4: EfficientNet without squeeze and excitation, with ReLU6.
//!
//! Convolution 3 x 3 of stride 2 to 32 channels, inverted residual blocks (16 in size 0), convolution 1 x 1 to 1280. Larger
//! sizes have more channels and more blocks.
//!
//! | layout | weights | names | zeros around the maps | epsilon of batch norm |
//! |---|---|---|---|---|
//! | `efficientnet_pytorch` | TensorFlow's, converted | `_blocks.0._depthwise_conv` | as in TensorFlow | 0.001 |
//! | `timm_tf` | TensorFlow's, by timm (`tf_efficientnet_lite0`) | `blocks.0.0.conv_dw` | as in TensorFlow | 0.001 |
//! | `timm` | timm's own (`efficientnet_lite0`) | `blocks.0.0.conv_dw` | equal on all sides | 0.00001 |

use gallerist_tensor::Result;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::efficientnet::{GROUPS, blocks, find_size, times};
use crate::embedder::{AnyEmbedder, Embedder};
use crate::graph::Network;
use crate::heads::Head;
use crate::inverted_residual::{Block, Body, Naming, Style};
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

const RELU6: Activation = Activation::Relu6;

/// Channels of the first and of the last convolution, in all sizes.
const OUTER: [usize; 2] = [32, 1280];

/// The blocks of a size, one of [`SIZES`]. The first and the last group have one in all sizes.
fn blocks_of(size: usize) -> Vec<Block> {
    let (width, depth, _) = SIZES[size];
    let count = |group, of_size_0| match group == 0 || group + 1 == GROUPS.len() {
        true => of_size_0,
        false => times(of_size_0, depth),
    };
    blocks(OUTER[0], width, count, false, RELU6)
}

impl EfficientNetLiteVariant {
    fn style(self) -> Style {
        Style {
            naming: match self {
                EfficientNetLiteVariant::EfficientnetPytorch => Naming::EfficientnetPytorch,
                EfficientNetLiteVariant::TimmTf | EfficientNetLiteVariant::Timm => Naming::Timm,
            },
            same_padding: self != EfficientNetLiteVariant::Timm,
            squeeze: None,
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
        find_size(0..SIZES.len(), blocks_of, block_count, last_channels)
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
        let builder = setting.builder(self.batch_norm_momentum, self.layout.epsilon())?;
        let (style, blocks) = (self.layout.style(), blocks_of(self.size));
        let [stem, features] = OUTER;
        let last = (style.naming.last(&blocks), features);
        let EfficientNetLiteConfig { pool, dimensions, .. } = *self;
        Body { style, stem, blocks, last, then: RELU6, pool, dimensions }.network(builder, setting.input)
    }
}
