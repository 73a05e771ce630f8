//! Residual networks (He et al. 2016) of 18, 34 and 50 layers, version 1, as in torchvision.
//!
//! Convolution 7 x 7 of stride 2 to 64 channels, batch norm, ReLU, max pool 3 x 3 of stride 2, then four
//! groups of blocks at 64, 128, 256 and 512 channels, each from the second on halving the size. A block
//! of the networks of 18 and 34 layers is two 3 x 3 convolutions; one of 50 layers is 1 x 1, 3 x 3 (which
//! has the stride), 1 x 1 to four times the channels. All convolutions are without bias and followed by
//! batch norm.
//!
//! The soft ranking threshold paper puts on the 50 layers a global maximum pool, a linear layer to 1024 and
//! one to 128: `depth = 50, pool = "max", hidden = 1024, dimensions = 128`, on images of 256 x 128.
//! Recall@k surrogate (Patel et al. 2022) and others put a generalised mean, a layer norm and a linear layer on them:
//! `depth = 50, pool = "gem", layer_norm = true`.

use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::graph::{Builder, Kernel, Network, Node};
use crate::layers::{Activation, Pool};
use gallerist_tensor::Result;

use crate::embedder::{AnyEmbedder, Embedder};
use crate::heads::Head;
use crate::setting::{Setting, value};
use crate::spec::NetworkSpec;

/// Parameters of a residual network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ResNetConfig {
    /// Layers with weights: 18, 34 or 50.
    pub depth: usize,
    /// How the last maps become one row.
    pub pool: GlobalPool,
    /// Whether a layer norm follows the pool.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub layer_norm: bool,
    /// Width of a linear layer between the pool and the embedding; 0: none.
    pub hidden: usize,
    /// Whether batch norm and ReLU follow the hidden layer (as in TriNet, Hermans et al. 2017).
    pub hidden_norm: bool,
    /// Length of an embedding; 0: the unchanged pooled features.
    pub dimensions: usize,
    /// Share of the new batch in the running statistics of batch norm.
    pub batch_norm_momentum: f64,
}

/// How feature maps become one row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum GlobalPool {
    /// Mean over all positions.
    #[default]
    Average,
    /// Maximum over all positions.
    Max,
    /// Generalised mean with a learned exponent ([`super::layers::Gem`]).
    Gem,
}

impl GlobalPool {
    pub(super) fn describe(self, b: &mut Builder<'_>, x: Node) -> Node {
        match self {
            GlobalPool::Average => b.global_average(x),
            GlobalPool::Max => b.global_max(x),
            GlobalPool::Gem => b.gem("head.pool", x),
        }
    }
}

impl Default for ResNetConfig {
    fn default() -> Self {
        ResNetConfig {
            depth: 50,
            pool: GlobalPool::Average,
            layer_norm: false,
            hidden: 0,
            hidden_norm: false,
            dimensions: 512,
            batch_norm_momentum: 0.1,
        }
    }
}

impl Named for ResNetConfig {
    const NAME: &'static str = "resnet";
}

impl NetworkSpec for ResNetConfig {
    fn heads(&self) -> Vec<Head> {
        vec![Head::of_layer(self.dimensions, self.features())]
    }

    fn build(&self, setting: Setting<'_>) -> Result<AnyEmbedder> {
        Ok(self.describe(setting)?.boxed())
    }
}

impl ResNetConfig {
    /// Blocks per group, and whether they are of three convolutions.
    fn plan(&self) -> Option<([usize; 4], bool)> {
        match self.depth {
            18 => Some(([2, 2, 2, 2], false)),
            34 => Some(([3, 4, 6, 3], false)),
            50 => Some(([3, 4, 6, 3], true)),
            _ => None,
        }
    }

    /// Channels of the last maps.
    pub(super) fn features(&self) -> usize {
        if self.depth == 50 { 2048 } else { 512 }
    }

    fn describe(&self, setting: Setting<'_>) -> Result<Network> {
        let Some((groups, bottleneck)) = self.plan() else {
            return Err(value("depth", "18, 34 or 50", self.depth.to_string()));
        };
        if self.dimensions == 0 && self.hidden > 0 {
            return Err(value("dimensions", "1 or more with a hidden layer", "0".into()));
        }
        if self.hidden_norm && self.hidden == 0 {
            return Err(value("hidden", "1 or more with hidden_norm", "0".into()));
        }
        let (mut b, x) = setting.builder(self.batch_norm_momentum, 1e-5)?;
        let x = b.conv_norm(["conv1", "bn1"], x, 64, Kernel::new(7).stride(2), Activation::Relu);
        let mut x = b.max_pool(x, Pool::new(3, 2).padded(1));
        for (group, &count) in groups.iter().enumerate() {
            for i in 0..count {
                let stride = if group > 0 && i == 0 { 2 } else { 1 };
                x = block(&mut b, &format!("layer{}.{i}", group + 1), x, 64 << group, stride, bottleneck);
            }
        }
        let mut x = self.pool.describe(&mut b, x);
        if self.layer_norm {
            x = b.layer_norm("head.layer_norm", x, 1e-5);
        }
        if self.hidden > 0 {
            x = b.linear("head.hidden", x, self.hidden, true);
            if self.hidden_norm {
                x = b.norm("head.norm", x, Activation::Relu);
            }
        }
        if self.dimensions > 0 {
            let name = if self.hidden > 0 { "head.embedding" } else { "head" };
            x = b.linear(name, x, self.dimensions, true);
        }
        b.finish(&[x], setting.input)
    }
}

/// Two or three convolutions, and the input added to their result.
fn block(b: &mut Builder<'_>, path: &str, x: Node, width: usize, stride: usize, bottleneck: bool) -> Node {
    let kernels = match bottleneck {
        false => vec![(width, Kernel::new(3).stride(stride)), (width, Kernel::new(3))],
        true => {
            vec![(width, Kernel::new(1)), (width, Kernel::new(3).stride(stride)), (4 * width, Kernel::new(1))]
        }
    };
    let count = kernels.len();
    let mut y = x;
    for (i, (out, kernel)) in kernels.into_iter().enumerate() {
        let names = ["conv", "bn"].map(|part| format!("{path}.{part}{}", i + 1));
        let then = if i + 1 < count { Activation::Relu } else { Activation::None };
        y = b.conv_norm(names, y, out, kernel, then);
    }
    let out = b.channels(y);
    let shortcut = if stride == 1 && b.channels(x) == out {
        x
    } else {
        let names = [0, 1].map(|i| format!("{path}.downsample.{i}"));
        b.conv_norm(names, x, out, Kernel::new(1).stride(stride), Activation::None)
    };
    let sum = b.add(y, shortcut);
    b.activation(sum, Activation::Relu)
}
