//! The small network of the NRA paper's experiment on MNIST: two convolutions and one linear layer to an
//! embedding of two dimensions that can be plotted directly.
//!
//! The paper gives no further sizes. Here each convolution is 5 x 5 with bias, padded to keep the size, and
//! followed by ReLU and a 2 x 2 max pool of stride 2, with 32 and 64 channels.

use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::graph::{Kernel, Network};
use crate::layers::{Activation, Pool};
use gallerist_tensor::Result;

use crate::embedder::{AnyEmbedder, Embedder};
use crate::heads::Head;
use crate::setting::{Setting, value};
use crate::spec::NetworkSpec;

/// Parameters of the network of two convolutions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TwoConvConfig {
    /// Output channels of the two convolutions.
    pub channels: [usize; 2],
    /// Length of an embedding.
    pub dimensions: usize,
}

impl Default for TwoConvConfig {
    fn default() -> Self {
        TwoConvConfig { channels: [32, 64], dimensions: 2 }
    }
}

impl Named for TwoConvConfig {
    const NAME: &'static str = "two_conv";
}

impl NetworkSpec for TwoConvConfig {
    fn heads(&self) -> Vec<Head> {
        vec![Head::only(self.dimensions)]
    }

    fn build(&self, setting: Setting<'_>) -> Result<AnyEmbedder> {
        Ok(self.describe(setting)?.boxed())
    }
}

impl TwoConvConfig {
    fn describe(&self, setting: Setting<'_>) -> Result<Network> {
        if self.channels.contains(&0) {
            return Err(value("channels", "two positive numbers", format!("{:?}", self.channels)));
        }
        if self.dimensions == 0 {
            return Err(value("dimensions", "1 or more", "0".into()));
        }
        let (mut b, mut x) = setting.builder(0.1, 1e-5)?;
        for (name, out) in ["conv1", "conv2"].into_iter().zip(self.channels) {
            x = b.conv(name, x, out, Kernel::new(5).with_bias());
            x = b.activation(x, Activation::Relu);
            x = b.max_pool(x, Pool::new(2, 2));
        }
        let row = b.flatten(x);
        let head = b.linear("head", row, self.dimensions, true);
        b.finish(&[head], setting.input)
    }
}
