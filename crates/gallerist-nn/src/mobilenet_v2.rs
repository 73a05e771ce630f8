//! MobileNetV2 (Sandler et al. 2018) in two variants.
//!
//! Convolution 3 x 3 of stride 2 to 32 channels, 17 inverted residual blocks, convolution 1 x 1 to 1280. A block
//! is a 1 x 1 convolution to `t` times the channels, a 3 x 3 convolution of each channel for itself, and
//! a 1 x 1 convolution to the block's channels without activation; its input is added if the shapes
//! agree. Every convolution is without bias and followed by batch norm.
//!
//! | layout | activation | names | stride 2 at blocks | first block |
//! |---|---|---|---|---|
//! | `torchvision` | ReLU6 | `features.3.conv.0.0` | 1, 3, 6, 13 | without its first convolution |
//! | `mxnet` | ReLU | `linearbottleneck2.conv0` | 1, 3, 10, 13 | 32 to 32 channels |

use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::graph::{Kernel, Network};
use crate::layers::Activation;
use crate::resnet::GlobalPool;
use gallerist_tensor::Result;

use crate::embedder::{AnyEmbedder, Embedder};
use crate::heads::Head;
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

/// The two variants of MobileNetV2 with public weights. They differ in activation, in the blocks that halve the
/// resolution, and in the names of their tensors.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MobileNetV2Variant {
    /// torchvision's `mobilenet_v2`.
    #[default]
    Torchvision,
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

/// Expansion, channels, number of blocks.
const GROUPS: [(usize, usize, usize); 7] =
    [(1, 16, 1), (6, 24, 2), (6, 32, 3), (6, 64, 4), (6, 96, 3), (6, 160, 3), (6, 320, 1)];

impl MobileNetV2Variant {
    fn activation(self) -> Activation {
        match self {
            MobileNetV2Variant::Torchvision => Activation::Relu6,
            MobileNetV2Variant::MxNet => Activation::Relu,
        }
    }

    fn halves(self, block: usize) -> bool {
        match self {
            MobileNetV2Variant::Torchvision => [1, 3, 6, 13].contains(&block),
            MobileNetV2Variant::MxNet => [1, 3, 10, 13].contains(&block),
        }
    }

    /// Names of the first or last convolution and its batch norm.
    fn outer(self, last: bool) -> [String; 2] {
        match self {
            MobileNetV2Variant::Torchvision => {
                [0, 1].map(|i| format!("features.{}.{i}", if last { 18 } else { 0 }))
            }
            MobileNetV2Variant::MxNet => {
                ["conv", "batchnorm"].map(|kind| format!("{kind}{}", usize::from(last)))
            }
        }
    }

    /// Names of convolution `i` of `count` in a block and of its batch norm.
    fn inner(self, block: usize, i: usize, count: usize) -> [String; 2] {
        match self {
            MobileNetV2Variant::Torchvision => {
                let path = format!("features.{}.conv", block + 1);
                match i + 1 == count {
                    false => [format!("{path}.{i}.0"), format!("{path}.{i}.1")],
                    true => [format!("{path}.{i}"), format!("{path}.{}", i + 1)],
                }
            }
            MobileNetV2Variant::MxNet => {
                ["conv", "batchnorm"].map(|kind| format!("linearbottleneck{block}.{kind}{i}"))
            }
        }
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
        let layout = self.layout;
        let then = layout.activation();
        let (mut b, x) = setting.builder(self.batch_norm_momentum, 1e-5)?;
        let mut x = b.conv_norm(layout.outer(false), x, 32, Kernel::new(3).stride(2), then);
        let blocks = GROUPS.iter().flat_map(|&(t, c, n)| std::iter::repeat_n((t, c), n));
        for (block, (expansion, out)) in blocks.enumerate() {
            let stride = if layout.halves(block) { 2 } else { 1 };
            let channels = b.channels(x);
            let inside = expansion * channels;
            let mut kernels = vec![
                (inside, Kernel::new(1), then),
                (inside, Kernel::new(3).stride(stride).groups(inside), then),
                (out, Kernel::new(1), Activation::None),
            ];
            if expansion == 1 && layout == MobileNetV2Variant::Torchvision {
                kernels.remove(0);
            }
            let count = kernels.len();
            let mut y = x;
            for (i, (out, kernel, then)) in kernels.into_iter().enumerate() {
                y = b.conv_norm(layout.inner(block, i, count), y, out, kernel, then);
            }
            x = if stride == 1 && channels == out { b.add(y, x) } else { y };
        }
        let x = b.conv_norm(layout.outer(true), x, 1280, Kernel::new(1), then);
        let mut x = self.pool.describe(&mut b, x);
        if self.dimensions > 0 {
            x = b.linear("head", x, self.dimensions, true);
        }
        b.finish(&[x], setting.input)
    }
}
