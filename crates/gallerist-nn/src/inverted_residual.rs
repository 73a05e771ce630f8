//! Inverted residual blocks (Sandler et al. 2018), also with squeeze and excitation (Hu et al. 2018): the parts of MobileNetV2,
//! MobileNetV3 and EfficientNet, by the names of the programs whose weights are in circulation.
//!
//! A block is a 1 x 1 convolution to more channels, a convolution of each channel for itself, squeeze and excitation, and a 1 x
//! 1 convolution to the block's channels without activation; its input is added if the shapes agree. Most blocks that keep their
//! number of channels inside have no first convolution. Every convolution of maps is without bias and followed by batch norm.

use gallerist_tensor::Result;

use crate::graph::{Builder, Kernel, Network, Node, Padding};
use crate::layers::{Activation, Gate};
use crate::resnet::GlobalPool;
use crate::setting::InputShape;

/// A block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Block {
    /// Its number among all blocks; its group, and its number there.
    pub(crate) number: usize,
    pub(crate) group: usize,
    pub(crate) of_group: usize,
    /// Side of the windows of the convolution of each channel.
    pub(crate) window: usize,
    pub(crate) stride: usize,
    /// Channels of its input, inside, and of its result.
    pub(crate) channels: [usize; 3],
    /// Whether it has the first convolution.
    pub(crate) expands: bool,
    /// Channels between squeeze and excitation; 0: none.
    pub(crate) squeezed: usize,
    pub(crate) then: Activation,
}

/// A convolution of a block, for its names.
#[derive(Clone, Copy)]
enum Part {
    Expansion,
    Depthwise,
    Projection,
}

/// A program's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Naming {
    /// torchvision's of MobileNetV2.
    TorchvisionV2,
    /// torchvision's, with the blocks of all groups in a row (MobileNetV3).
    Torchvision,
    /// torchvision's, group by group (EfficientNet).
    TorchvisionGroups,
    Timm,
    /// EfficientNet-PyTorch's.
    EfficientnetPytorch,
    /// MXNet's.
    MxNet,
}

impl Naming {
    /// Names of the first convolution and of its batch norm.
    fn stem(self) -> [String; 2] {
        match self {
            Naming::TorchvisionV2 | Naming::Torchvision | Naming::TorchvisionGroups => {
                ["features.0.0", "features.0.1"]
            }
            Naming::Timm => ["conv_stem", "bn1"],
            Naming::EfficientnetPytorch => ["_conv_stem", "_bn0"],
            Naming::MxNet => ["conv0", "batchnorm0"],
        }
        .map(String::from)
    }

    /// Names of the last convolution and of its batch norm, but for timm's of MobileNetV3; `blocks` are those before it.
    pub(crate) fn last(self, blocks: &[Block]) -> [String; 2] {
        let place = match self {
            Naming::TorchvisionV2 | Naming::Torchvision => blocks.len() + 1,
            Naming::TorchvisionGroups => blocks.last().map_or(0, |block| block.group + 2),
            Naming::Timm => return ["conv_head", "bn2"].map(String::from),
            Naming::EfficientnetPytorch => return ["_conv_head", "_bn1"].map(String::from),
            Naming::MxNet => return ["conv1", "batchnorm1"].map(String::from),
        };
        [0, 1].map(|i| format!("features.{place}.{i}"))
    }

    fn block(self, block: &Block) -> String {
        let Block { number, group, of_group, .. } = block;
        match self {
            Naming::TorchvisionV2 => format!("features.{}.conv", number + 1),
            Naming::Torchvision => format!("features.{}.block", number + 1),
            Naming::TorchvisionGroups => format!("features.{}.{of_group}.block", group + 1),
            Naming::Timm => format!("blocks.{group}.{of_group}"),
            Naming::EfficientnetPytorch => format!("_blocks.{number}"),
            Naming::MxNet => format!("linearbottleneck{number}"),
        }
    }

    /// Names of a convolution of a block and of its batch norm.
    fn part(self, block: &Block, part: Part) -> [String; 2] {
        let path = self.block(block);
        let expansion = usize::from(block.expands);
        let place = match part {
            Part::Expansion => 0,
            Part::Depthwise => expansion,
            Part::Projection => expansion + 1 + usize::from(block.squeezed > 0),
        };
        let names = match (self, part) {
            (Naming::TorchvisionV2, Part::Projection) => {
                return [place, place + 1].map(|place| format!("{path}.{place}"));
            }
            (Naming::TorchvisionV2 | Naming::Torchvision | Naming::TorchvisionGroups, _) => {
                return [0, 1].map(|i| format!("{path}.{place}.{i}"));
            }
            (Naming::MxNet, _) => return ["conv", "batchnorm"].map(|kind| format!("{path}.{kind}{place}")),
            // timm numbers the batch norms of a block.
            (Naming::Timm, Part::Expansion) => ["conv_pw", "bn1"],
            (Naming::Timm, Part::Depthwise) => ["conv_dw", ["bn1", "bn2"][expansion]],
            (Naming::Timm, Part::Projection) => {
                [["conv_pw", "conv_pwl"][expansion], ["bn2", "bn3"][expansion]]
            }
            (Naming::EfficientnetPytorch, Part::Expansion) => ["_expand_conv", "_bn0"],
            (Naming::EfficientnetPytorch, Part::Depthwise) => ["_depthwise_conv", "_bn1"],
            (Naming::EfficientnetPytorch, Part::Projection) => ["_project_conv", "_bn2"],
        };
        names.map(|name| format!("{path}.{name}"))
    }

    /// Names of the two convolutions of squeeze and excitation.
    fn squeeze(self, block: &Block) -> [String; 2] {
        let path = self.block(block);
        let names = match self {
            Naming::Torchvision | Naming::TorchvisionGroups => {
                let place = usize::from(block.expands) + 1;
                return ["fc1", "fc2"].map(|name| format!("{path}.{place}.{name}"));
            }
            Naming::Timm => ["se.conv_reduce", "se.conv_expand"],
            Naming::EfficientnetPytorch => ["_se_reduce", "_se_expand"],
            Naming::TorchvisionV2 | Naming::MxNet => panic!("MobileNetV2 has no squeeze and excitation"),
        };
        names.map(|name| format!("{path}.{name}"))
    }
}

/// How the blocks of a network are made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Style {
    pub(crate) naming: Naming,
    /// Whether the zeros around the maps are those of TensorFlow.
    pub(crate) same_padding: bool,
    /// What follows the first convolution of squeeze and excitation, and the gate; `None`: no block has them.
    pub(crate) squeeze: Option<(Activation, Gate)>,
}

impl Style {
    fn kernel(&self, size: usize) -> Kernel {
        match self.same_padding {
            true => Kernel::new(size).padding(Padding::Same),
            false => Kernel::new(size),
        }
    }

    /// The result of a block.
    fn block(&self, b: &mut Builder<'_>, x: Node, block: Block) -> Node {
        let Block { window, stride, channels: [input, inside, out], squeezed, then, .. } = block;
        let names = |part| self.naming.part(&block, part);
        let mut y = x;
        if block.expands {
            y = b.conv_norm(names(Part::Expansion), y, inside, Kernel::new(1), then);
        }
        let depthwise = self.kernel(window).stride(stride).groups(inside);
        y = b.conv_norm(names(Part::Depthwise), y, inside, depthwise, then);
        if squeezed > 0
            && let Some((between, gate)) = self.squeeze
        {
            let [reduce, expand] = self.naming.squeeze(&block);
            let kernel = Kernel::new(1).with_bias();
            let mean = b.squeeze(y);
            let mean = b.conv(&reduce, mean, squeezed, kernel);
            let mean = b.activation(mean, between);
            let by = b.conv(&expand, mean, inside, kernel);
            y = b.excite(y, by, gate);
        }
        y = b.conv_norm(names(Part::Projection), y, out, Kernel::new(1), Activation::None);
        if stride == 1 && input == out { b.add(y, x) } else { y }
    }
}

/// A network of blocks, from the images to the embedding.
pub(crate) struct Body {
    pub(crate) style: Style,
    /// Channels of the first convolution.
    pub(crate) stem: usize,
    pub(crate) blocks: Vec<Block>,
    /// Names of the last convolution and of its batch norm, and its channels.
    pub(crate) last: ([String; 2], usize),
    /// What follows the first and the last convolution.
    pub(crate) then: Activation,
    pub(crate) pool: GlobalPool,
    /// Length of an embedding; 0: the pooled features.
    pub(crate) dimensions: usize,
}

impl Body {
    /// The network of a builder and its images.
    pub(crate) fn network(self, (mut b, images): (Builder<'_>, Node), input: InputShape) -> Result<Network> {
        let Body { style, stem, blocks, last: (last, features), then, pool, dimensions } = self;
        let mut x = b.conv_norm(style.naming.stem(), images, stem, style.kernel(3).stride(2), then);
        for block in blocks {
            x = style.block(&mut b, x, block);
        }
        let x = b.conv_norm(last, x, features, Kernel::new(1), then);
        let mut x = pool.describe(&mut b, x);
        if dimensions > 0 {
            x = b.linear("head", x, dimensions, true);
        }
        b.finish(&[x], input)
    }
}

/// Channels times a factor: a multiple of 8, not less than nine tenths of the product.
pub(crate) fn scaled(channels: usize, factor: f64) -> usize {
    let exact = channels as f64 * factor;
    let near = (((exact + 4.0) / 8.0) as usize * 8).max(8);
    if (near as f64) < 0.9 * exact { near + 8 } else { near }
}
