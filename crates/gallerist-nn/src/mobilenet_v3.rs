//! MobileNetV3 (Howard et al. 2019), large and small.
//!
//! Convolution 3 x 3 of stride 2 to 16 channels, 15 or 11 inverted residual blocks with squeeze and excitation in some of them, and
//! a 1 x 1 convolution to 960 or 576 channels. The first blocks have ReLU, the later ones hard-swish. The features are the
//! pooled maps: the published classifiers have a further layer, which is not part of the network here.
//!
//! | layout | weights | names | zeros around the maps | epsilon of batch norm |
//! |---|---|---|---|---|
//! | `torchvision` | torchvision's | `features.2.block.0.0` | equal on all sides | 0.001 |
//! | `timm` | timm's own (`mobilenetv3_large_100`) | `blocks.1.0.conv_pw` | equal on all sides | 0.00001 |
//! | `timm_tf` | TensorFlow's, by timm (`tf_mobilenetv3_large_100`) | `blocks.1.0.conv_pw` | as in TensorFlow | 0.001 |

use gallerist_tensor::Result;
use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::embedder::{AnyEmbedder, Embedder};
use crate::graph::Network;
use crate::heads::Head;
use crate::inverted_residual::{Block, Body, Naming, Style, scaled};
use crate::layers::{Activation, Gate};
use crate::resnet::GlobalPool;
use crate::setting::Setting;
use crate::spec::NetworkSpec;

/// Parameters of MobileNetV3.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MobileNetV3Config {
    /// Large or small.
    pub size: MobileNetV3Size,
    /// The variant: the file of weights must belong to it.
    pub layout: MobileNetV3Variant,
    /// How the last maps become one row.
    pub pool: GlobalPool,
    /// Length of an embedding; 0: the unchanged 960 or 576 pooled features.
    pub dimensions: usize,
    /// Share of the new batch in the running statistics of batch norm.
    pub batch_norm_momentum: f64,
}

/// The sizes of MobileNetV3.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MobileNetV3Size {
    /// 15 blocks, 960 features.
    #[default]
    Large,
    /// 11 blocks, 576 features.
    Small,
}

/// The variants of MobileNetV3 with public weights. They differ in the names of their tensors, the zeros around the maps, and
/// the epsilon of batch norm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MobileNetV3Variant {
    /// torchvision's `mobilenet_v3_large` and `mobilenet_v3_small`.
    #[default]
    Torchvision,
    /// timm's own weights (`mobilenetv3_large_100`).
    Timm,
    /// TensorFlow's weights by timm's names (`tf_mobilenetv3_large_100`).
    TimmTf,
}

impl Default for MobileNetV3Config {
    fn default() -> Self {
        MobileNetV3Config {
            size: MobileNetV3Size::default(),
            layout: MobileNetV3Variant::default(),
            pool: GlobalPool::Average,
            dimensions: 128,
            batch_norm_momentum: 0.1,
        }
    }
}

const RELU: Activation = Activation::Relu;
const HARD_SWISH: Activation = Activation::HardSwish;

/// Group of the block, side of the windows, stride, channels inside and of the result, squeeze and excitation, activation
/// (Howard et al. 2019, tables 1 and 2). The groups are timm's.
type Row = (usize, usize, usize, usize, usize, bool, Activation);

const LARGE: [Row; 15] = [
    (0, 3, 1, 16, 16, false, RELU),
    (1, 3, 2, 64, 24, false, RELU),
    (1, 3, 1, 72, 24, false, RELU),
    (2, 5, 2, 72, 40, true, RELU),
    (2, 5, 1, 120, 40, true, RELU),
    (2, 5, 1, 120, 40, true, RELU),
    (3, 3, 2, 240, 80, false, HARD_SWISH),
    (3, 3, 1, 200, 80, false, HARD_SWISH),
    (3, 3, 1, 184, 80, false, HARD_SWISH),
    (3, 3, 1, 184, 80, false, HARD_SWISH),
    (4, 3, 1, 480, 112, true, HARD_SWISH),
    (4, 3, 1, 672, 112, true, HARD_SWISH),
    (5, 5, 2, 672, 160, true, HARD_SWISH),
    (5, 5, 1, 960, 160, true, HARD_SWISH),
    (5, 5, 1, 960, 160, true, HARD_SWISH),
];

const SMALL: [Row; 11] = [
    (0, 3, 2, 16, 16, true, RELU),
    (1, 3, 2, 72, 24, false, RELU),
    (1, 3, 1, 88, 24, false, RELU),
    (2, 5, 2, 96, 40, true, HARD_SWISH),
    (2, 5, 1, 240, 40, true, HARD_SWISH),
    (2, 5, 1, 240, 40, true, HARD_SWISH),
    (3, 5, 1, 120, 48, true, HARD_SWISH),
    (3, 5, 1, 144, 48, true, HARD_SWISH),
    (4, 5, 2, 288, 96, true, HARD_SWISH),
    (4, 5, 1, 576, 96, true, HARD_SWISH),
    (4, 5, 1, 576, 96, true, HARD_SWISH),
];

/// Channels of the first convolution.
const STEM: usize = 16;

impl MobileNetV3Size {
    fn rows(self) -> &'static [Row] {
        match self {
            MobileNetV3Size::Large => &LARGE,
            MobileNetV3Size::Small => &SMALL,
        }
    }

    /// Channels of the last maps: six times those of the last block.
    fn features(self) -> usize {
        match self {
            MobileNetV3Size::Large => 960,
            MobileNetV3Size::Small => 576,
        }
    }

    fn blocks(self) -> Vec<Block> {
        let mut blocks: Vec<Block> = Vec::new();
        for (number, &(group, window, stride, inside, out, squeezes, then)) in self.rows().iter().enumerate()
        {
            let of_group = blocks.iter().filter(|block| block.group == group).count();
            let input = blocks.last().map_or(STEM, |block| block.channels[2]);
            let squeezed = if squeezes { scaled(inside, 0.25) } else { 0 };
            let channels = [input, inside, out];
            let expands = inside != input;
            blocks.push(Block { number, group, of_group, window, stride, channels, expands, squeezed, then });
        }
        blocks
    }
}

impl MobileNetV3Variant {
    fn style(self) -> Style {
        Style {
            naming: match self {
                MobileNetV3Variant::Torchvision => Naming::Torchvision,
                MobileNetV3Variant::Timm | MobileNetV3Variant::TimmTf => Naming::Timm,
            },
            same_padding: self == MobileNetV3Variant::TimmTf,
            squeeze: Some((RELU, Gate::HardSigmoid)),
        }
    }

    fn epsilon(self) -> f64 {
        match self {
            MobileNetV3Variant::Timm => 1e-5,
            MobileNetV3Variant::Torchvision | MobileNetV3Variant::TimmTf => 1e-3,
        }
    }

    /// Names of the last convolution and of its batch norm; `blocks` are those before it.
    fn last(self, blocks: &[Block]) -> [String; 2] {
        let naming = self.style().naming;
        match (naming, blocks.last()) {
            (Naming::Timm, Some(Block { group, .. })) => {
                ["conv", "bn1"].map(|name| format!("blocks.{}.0.{name}", group + 1))
            }
            _ => naming.last(blocks),
        }
    }
}

impl Named for MobileNetV3Config {
    const NAME: &'static str = "mobilenet_v3";
}

impl NetworkSpec for MobileNetV3Config {
    fn heads(&self) -> Vec<Head> {
        vec![Head::of_layer(self.dimensions, self.size.features())]
    }

    fn build(&self, setting: Setting<'_>) -> Result<AnyEmbedder> {
        Ok(self.describe(setting)?.boxed())
    }
}

impl MobileNetV3Config {
    fn describe(&self, setting: Setting<'_>) -> Result<Network> {
        let builder = setting.builder(self.batch_norm_momentum, self.layout.epsilon())?;
        let (style, blocks) = (self.layout.style(), self.size.blocks());
        let last = (self.layout.last(&blocks), self.size.features());
        let MobileNetV3Config { pool, dimensions, .. } = *self;
        Body { style, stem: STEM, blocks, last, then: HARD_SWISH, pool, dimensions }
            .network(builder, setting.input)
    }
}
