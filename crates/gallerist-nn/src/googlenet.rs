//! GoogLeNet (Szegedy et al. 2015) with batch norm, as in TF-Slim and torchvision.
//!
//! Nine inception blocks, each the concatenation of a 1 x 1 convolution, a reduced 3 x 3, another reduced
//! 3 x 3 (the paper has 5 x 5; the trained network has 3 x 3) and a projected max pool. Batch norm with epsilon 0.001
//! follows every convolution; all pools round their sizes up. The network of the NRA paper: an
//! average pool over the last 1024 maps and a linear layer.
//!
//! torchvision's weights require pixels from -1 to 1: `image.mean` and `image.std` of 0.5.

use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::graph::{Builder, Kernel, Network, Node};
use crate::layers::{Activation, Pool};
use gallerist_tensor::Result;

use crate::embedder::{AnyEmbedder, Embedder};
use crate::heads::Head;
use crate::setting::Setting;
use crate::spec::NetworkSpec;

/// Parameters of GoogLeNet.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GoogLeNetConfig {
    /// Length of an embedding; 0: the unchanged 1024 pooled features.
    pub dimensions: usize,
    /// Share of the new batch in the running statistics of batch norm.
    pub batch_norm_momentum: f64,
}

impl Default for GoogLeNetConfig {
    fn default() -> Self {
        GoogLeNetConfig { dimensions: 512, batch_norm_momentum: 0.1 }
    }
}

/// Name; channels of the 1 x 1, the reduced and full 3 x 3, the second pair, and the projection; size of the max
/// pool of stride 2 that follows, or 0.
const BLOCKS: [(&str, [usize; 6], usize); 9] = [
    ("inception3a", [64, 96, 128, 16, 32, 32], 0),
    ("inception3b", [128, 128, 192, 32, 96, 64], 3),
    ("inception4a", [192, 96, 208, 16, 48, 64], 0),
    ("inception4b", [160, 112, 224, 24, 64, 64], 0),
    ("inception4c", [128, 128, 256, 24, 64, 64], 0),
    ("inception4d", [112, 144, 288, 32, 64, 64], 0),
    ("inception4e", [256, 160, 320, 32, 128, 128], 2),
    ("inception5a", [256, 160, 320, 32, 128, 128], 0),
    ("inception5b", [384, 192, 384, 48, 128, 128], 0),
];

impl Named for GoogLeNetConfig {
    const NAME: &'static str = "googlenet";
}

impl NetworkSpec for GoogLeNetConfig {
    fn heads(&self) -> Vec<Head> {
        vec![Head::of_layer(self.dimensions, 1024)]
    }

    fn build(&self, setting: Setting<'_>) -> Result<AnyEmbedder> {
        Ok(self.describe(setting)?.boxed())
    }
}

impl GoogLeNetConfig {
    fn describe(&self, setting: Setting<'_>) -> Result<Network> {
        let (mut b, x) = setting.builder(self.batch_norm_momentum, 1e-3)?;
        let x = unit(&mut b, "conv1", x, 64, Kernel::new(7).stride(2));
        let x = b.max_pool(x, Pool::ceil(3, 2));
        let x = unit(&mut b, "conv2", x, 64, Kernel::new(1));
        let x = unit(&mut b, "conv3", x, 192, Kernel::new(3));
        let mut x = b.max_pool(x, Pool::ceil(3, 2));
        for (name, [one, reduce3, three, reduce5, five, projection], pool) in BLOCKS {
            let path = |branch: &str| format!("{name}.{branch}");
            let a = unit(&mut b, &path("branch1"), x, one, Kernel::new(1));
            let y = unit(&mut b, &path("branch2.0"), x, reduce3, Kernel::new(1));
            let y = unit(&mut b, &path("branch2.1"), y, three, Kernel::new(3));
            let z = unit(&mut b, &path("branch3.0"), x, reduce5, Kernel::new(1));
            let z = unit(&mut b, &path("branch3.1"), z, five, Kernel::new(3));
            let w = b.max_pool(x, Pool::ceil(3, 1).padded(1));
            let w = unit(&mut b, &path("branch4.1"), w, projection, Kernel::new(1));
            x = b.concat(&[a, y, z, w]);
            if pool > 0 {
                x = b.max_pool(x, Pool::ceil(pool, 2));
            }
        }
        let mut x = b.global_average(x);
        if self.dimensions > 0 {
            x = b.linear("head", x, self.dimensions, true);
        }
        b.finish(&[x], setting.input)
    }
}

/// Convolution, batch norm, ReLU.
fn unit(b: &mut Builder<'_>, path: &str, x: Node, out: usize, kernel: Kernel) -> Node {
    b.conv_norm([format!("{path}.conv"), format!("{path}.bn")], x, out, kernel, Activation::Relu)
}
