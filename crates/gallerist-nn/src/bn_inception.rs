//! BN-Inception (Ioffe & Szegedy 2015, GoogLeNet V2), the network of the ranked list loss and ICE papers.
//!
//! Input 227 x 227. Ten inception blocks, each the concatenation of a 1 x 1 convolution, a 3 x 3, two 3 x 3 in a
//! row, and a pool with its projection; 3c and 4e halve the size and pass the pooled maps on without projection. No
//! convolution has a bias; each is followed by batch norm, scale and shift, and ReLU. Pools round their sizes up,
//! as Caffe does.
//!
//! Three embeddings can be taken, each by a linear layer without bias:
//!
//! - `H`: the mean over the last maps (5b);
//! - `L`: 3c through the network's own auxiliary classifier (average pool 5 x 5 of stride 3, 1 x 1 convolution
//!   to 128, linear to 1024, both with batch norm and ReLU), which learns at the base rate;
//! - `M`: 4e the same way.
//!
//! In training each has a separate loss. [`super::Combine`] defines how they become one embedding.
//!
//! The names are those of the public PyTorch weights (`bn_inception-….pth`); their convolutions have
//! biases, which are folded into the running means when they are loaded.

use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::graph::{Builder, Kernel, Network, Node};
use crate::layers::{Activation, Pool};
use gallerist_tensor::Result;

use crate::embedder::{AnyEmbedder, Embedder};
use crate::heads::Head;
use crate::setting::{Setting, value};
use crate::spec::NetworkSpec;

/// Parameters of BN-Inception.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct BnInceptionConfig {
    /// The embeddings that are learned, each once: `L`, `M`, `H`.
    pub heads: Vec<InceptionHead>,
    /// Length of each embedding; 0: the unchanged 1024 features.
    pub dimensions: usize,
    /// Share of the new batch in the running statistics of batch norm.
    pub batch_norm_momentum: f64,
}

/// The block from which an embedding of BN-Inception is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum InceptionHead {
    /// Low: after block 3c.
    L,
    /// Middle: after block 4e.
    M,
    /// High: after block 5b.
    H,
}

impl InceptionHead {
    /// Its name in the run file.
    pub fn name(self) -> &'static str {
        match self {
            InceptionHead::L => "L",
            InceptionHead::M => "M",
            InceptionHead::H => "H",
        }
    }

    /// The block of its input.
    fn block(self) -> &'static str {
        match self {
            InceptionHead::L => "3c",
            InceptionHead::M => "4e",
            InceptionHead::H => "5b",
        }
    }
}

impl Default for BnInceptionConfig {
    fn default() -> Self {
        BnInceptionConfig { heads: vec![InceptionHead::H], dimensions: 512, batch_norm_momentum: 0.001 }
    }
}

/// The pool branch of a block.
#[derive(Clone, Copy)]
enum Branch {
    /// Average 3 x 3, then a projection.
    Average(usize),
    /// Maximum 3 x 3, then a projection.
    Max(usize),
    /// Maximum 3 x 3 of stride 2; the 3 x 3 branches have that stride too.
    Down,
}

/// A block: name; channels of the 1 x 1 (0: none); of the reduced and full 3 x 3; of the reduced and the two full double 3
/// x 3; the pool branch.
type Block = (&'static str, usize, [usize; 2], [usize; 3], Branch);

const BLOCKS: [Block; 10] = [
    ("3a", 64, [64, 64], [64, 96, 96], Branch::Average(32)),
    ("3b", 64, [64, 96], [64, 96, 96], Branch::Average(64)),
    ("3c", 0, [128, 160], [64, 96, 96], Branch::Down),
    ("4a", 224, [64, 96], [96, 128, 128], Branch::Average(128)),
    ("4b", 192, [96, 128], [96, 128, 128], Branch::Average(128)),
    ("4c", 160, [128, 160], [128, 160, 160], Branch::Average(96)),
    ("4d", 96, [128, 192], [160, 192, 192], Branch::Average(96)),
    ("4e", 0, [128, 192], [192, 256, 256], Branch::Down),
    ("5a", 352, [192, 320], [160, 224, 224], Branch::Average(128)),
    ("5b", 352, [192, 320], [192, 224, 224], Branch::Max(128)),
];

impl Named for BnInceptionConfig {
    const NAME: &'static str = "bn_inception";
}

impl NetworkSpec for BnInceptionConfig {
    fn heads(&self) -> Vec<Head> {
        let head = |of: &InceptionHead| Head { name: of.name(), ..Head::of_layer(self.dimensions, 1024) };
        self.heads.iter().map(head).collect()
    }

    fn build(&self, setting: Setting<'_>) -> Result<AnyEmbedder> {
        Ok(self.describe(setting)?.boxed())
    }
}

impl BnInceptionConfig {
    fn describe(&self, setting: Setting<'_>) -> Result<Network> {
        let names: Vec<&str> = self.heads.iter().map(|head| head.name()).collect();
        let twice = names.iter().enumerate().any(|(i, name)| names[..i].contains(name));
        if names.is_empty() || twice {
            return Err(value(
                "heads",
                "a list of `L`, `M` and `H`, each at most once",
                format!("{names:?}"),
            ));
        }
        let (mut b, x) = setting.builder(self.batch_norm_momentum, 1e-5)?;
        let x = unit(&mut b, "conv1_7x7_s2", x, 64, Kernel::new(7).stride(2));
        let x = b.max_pool(x, Pool::ceil(3, 2));
        let x = unit(&mut b, "conv2_3x3_reduce", x, 64, Kernel::new(1));
        let x = unit(&mut b, "conv2_3x3", x, 192, Kernel::new(3));
        let mut x = b.max_pool(x, Pool::ceil(3, 2));
        let mut embeddings = vec![None; self.heads.len()];
        // Blocks after the last one that a head uses are not computed.
        let last = BLOCKS.iter().rposition(|(name, ..)| self.heads.iter().any(|head| head.block() == *name));
        for (name, one, three, double, branch) in &BLOCKS[..=last.expect("there is a head")] {
            x = block(&mut b, name, x, *one, *three, *double, *branch);
            if let Some(i) = self.heads.iter().position(|head| head.block() == *name) {
                embeddings[i] = Some(head(&mut b, self.heads[i], x, self.dimensions));
            }
        }
        let embeddings: Vec<Node> = embeddings.into_iter().flatten().collect();
        b.finish(&embeddings, setting.input)
    }
}

fn block(
    b: &mut Builder<'_>,
    name: &str,
    x: Node,
    one: usize,
    three: [usize; 2],
    double: [usize; 3],
    branch: Branch,
) -> Node {
    let path = |part: &str| format!("inception_{name}_{part}");
    let stride = if matches!(branch, Branch::Down) { 2 } else { 1 };
    let mut parts = Vec::new();
    if one > 0 {
        parts.push(unit(b, &path("1x1"), x, one, Kernel::new(1)));
    }
    let y = unit(b, &path("3x3_reduce"), x, three[0], Kernel::new(1));
    parts.push(unit(b, &path("3x3"), y, three[1], Kernel::new(3).stride(stride)));
    let y = unit(b, &path("double_3x3_reduce"), x, double[0], Kernel::new(1));
    let y = unit(b, &path("double_3x3_1"), y, double[1], Kernel::new(3));
    parts.push(unit(b, &path("double_3x3_2"), y, double[2], Kernel::new(3).stride(stride)));
    let same = Pool::ceil(3, 1).padded(1);
    parts.push(match branch {
        Branch::Average(out) => {
            let y = b.average_pool(x, same);
            unit(b, &path("pool_proj"), y, out, Kernel::new(1))
        }
        Branch::Max(out) => {
            let y = b.max_pool(x, same);
            unit(b, &path("pool_proj"), y, out, Kernel::new(1))
        }
        Branch::Down => b.max_pool(x, Pool::ceil(3, 2)),
    });
    b.concat(&parts)
}

/// The embedding from the result of a block.
fn head(b: &mut Builder<'_>, head: InceptionHead, x: Node, dimensions: usize) -> Node {
    let features = match head {
        InceptionHead::H => b.global_average(x),
        InceptionHead::L | InceptionHead::M => {
            let path = |part: &str| format!("auxiliary.{}.{part}", head.name());
            let y = b.average_pool(x, Pool::ceil(5, 3));
            let y = unit(b, &path("conv"), y, 128, Kernel::new(1));
            let y = b.flatten(y);
            let y = b.linear(&path("fc"), y, 1024, false);
            b.norm(&path("fc_bn"), y, Activation::Relu)
        }
    };
    match dimensions {
        0 => features,
        _ => b.linear(&format!("head.{}", head.name()), features, dimensions, false),
    }
}

/// Convolution, batch norm, ReLU.
fn unit(b: &mut Builder<'_>, name: &str, x: Node, out: usize, kernel: Kernel) -> Node {
    b.conv_norm([name, &format!("{name}_bn")], x, out, kernel, Activation::Relu)
}
