//! Vision transformers (Dosovitskiy et al. 2021), as in timm, DINO, DINOv2, DINOv3, CLIP, SigLIP and
//! torchvision.
//!
//! A convolution cuts the image into patches; class token, register tokens (Darcet et al. 2024) and the patches with
//! their positions pass `depth` blocks, then a layer norm. A block is
//!
//! ```text
//! x = x + drop(scale(proj(attention(qkv(norm(x))))))
//! x = x + drop(scale(fc2(gelu(fc1(norm(x))))))
//! ```
//!
//! or, with `gated_mlp`, `fc2(silu(a) b)` in the second branch, where `a` and `b` are the halves of `fc1(norm(x))`;
//! with learned factors `scale` if `layer_scale`, and `drop` the drop path. Names are timm's. The network is built for
//! one size of images; learned positions of weights for another size are interpolated when they are loaded.

use gallerist_util::registry::Named;
use serde::{Deserialize, Serialize};

use crate::graph::{Builder, Kernel, Network, Node, Padding};
use crate::token_layers::{Gelu, Prefix, SelfAttention};
use gallerist_tensor::Result;

use crate::embedder::{AnyEmbedder, Embedder};
use crate::heads::Head;
use crate::setting::{Setting, value};
use crate::spec::NetworkSpec;

/// Parameters of a vision transformer.
///
/// | weights | keys |
/// |---|---|
/// | timm, DINO, torchvision | the defaults |
/// | DINOv2 | `patch = 14, layer_scale = true`, with registers `registers = 4` |
/// | DINOv2 giant | besides `width = 1536, depth = 40, gated_mlp = true, mlp_ratio = 2.6666666666666665` |
/// | DINOv3 | `positions = "rotary", key_bias = false, registers = 4, layer_scale = true, norm_epsilon = 1e-5`, S+ and H+ also `gated_mlp = true` |
/// | CLIP | `pre_norm = true, norm_epsilon = 1e-5, projection = 512`, OpenAI's `activation = "quick_gelu"` |
/// | SigLIP | `class_token = false, output = "attention"`, `activation = "gelu_tanh"` |
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// use gallerist_nn::{InputShape, NetworkConfig, VitConfig, VitOutput, VitSize};
///
/// let config = VitConfig { size: VitSize::Ti, patch: 14, output: VitOutput::ClassAndMean, dimensions: 0, ..Default::default() };
/// let config = NetworkConfig::from(VitConfig { depth: 2, ..config });
/// let input = InputShape { channels: 3, height: 98, width: 56 };
/// let network = config.init(input, 1, &Device::flex())?;
/// let embeddings = network.forward(Tensor::zeros([2, 3, 98, 56], &Device::flex()));
/// assert_eq!(embeddings[0].dims(), [2, 2 * 192]);
/// # Ok::<(), gallerist_nn::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct VitConfig {
    /// Width, depth and heads of a usual size.
    pub size: VitSize,
    /// Channels of a token; 0: those of `size`.
    pub width: usize,
    /// Blocks; 0: those of `size`.
    pub depth: usize,
    /// Heads of the attention; 0: those of `size`, or one for every 64 channels of `width`.
    pub attention_heads: usize,
    /// Width of the MLP in a block, in multiples of the width.
    pub mlp_ratio: f64,
    /// Whether the first layer in the MLPs of the blocks is two layers, one of which is the gate of the other (Shazeer 2020,
    /// SwiGLU). `mlp_ratio` is that of one of them; `activation` is not used.
    #[serde(skip_serializing_if = "is_false")]
    pub gated_mlp: bool,
    /// Side of a patch, in pixels.
    pub patch: usize,
    /// What becomes the features.
    pub output: VitOutput,
    /// Whether there is a class token.
    pub class_token: bool,
    /// Register tokens.
    pub registers: usize,
    /// How tokens know their places.
    // Not written by default, like `key_bias`: fingerprints of embeddings are made of what is written.
    #[serde(skip_serializing_if = "VitPositions::is_default")]
    pub positions: VitPositions,
    /// Whether the keys of the attention have a bias.
    #[serde(skip_serializing_if = "is_true")]
    pub key_bias: bool,
    /// Whether each branch of a block has a learned factor for each channel.
    pub layer_scale: bool,
    /// Whether a layer norm precedes the first block, and the patches have no bias (CLIP).
    pub pre_norm: bool,
    /// The activation in the MLPs.
    pub activation: Gelu,
    /// Epsilon of layer norm.
    pub norm_epsilon: f64,
    /// Length of the projection of the features that belongs to the weights (CLIP); 0: none.
    pub projection: usize,
    /// Probability that an image skips a branch of the last block in training; it falls linearly to 0 in the first.
    pub drop_path: f64,
    /// The embedding of the patches and so many of the first blocks are not trained; 0: everything is.
    pub freeze_blocks: usize,
    /// Length of an embedding; 0: the unchanged features.
    pub dimensions: usize,
}

/// Usual sizes of vision transformers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VitSize {
    /// 192 channels, 12 blocks, 3 heads.
    Ti,
    /// 384 channels, 12 blocks, 6 heads.
    #[default]
    S,
    /// 768 channels, 12 blocks, 12 heads.
    B,
    /// 1024 channels, 24 blocks, 16 heads.
    L,
}

/// How the tokens of patches know their places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum VitPositions {
    /// A learned position is added to each token. Those of weights for another size of images are interpolated.
    #[default]
    Learned,
    /// Every attention turns the queries and keys of patches by angles that depend on the place
    /// ([`Rotary`](crate::Rotary), DINOv3).
    Rotary,
}

impl VitPositions {
    /// The period of the slowest angle of [`VitPositions::Rotary`] over that of the fastest.
    pub const BASE: f64 = 100.0;

    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// What becomes the features of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VitOutput {
    /// The class token.
    #[default]
    Class,
    /// The mean of the patches.
    Mean,
    /// The class token, then the mean of the patches.
    ClassAndMean,
    /// Attention of a learned query to all tokens (SigLIP).
    Attention,
}

impl Default for VitConfig {
    fn default() -> Self {
        VitConfig {
            size: VitSize::S,
            width: 0,
            depth: 0,
            attention_heads: 0,
            mlp_ratio: 4.0,
            gated_mlp: false,
            patch: 16,
            output: VitOutput::Class,
            class_token: true,
            registers: 0,
            positions: VitPositions::Learned,
            key_bias: true,
            layer_scale: false,
            pre_norm: false,
            activation: Gelu::Gelu,
            norm_epsilon: 1e-6,
            projection: 0,
            drop_path: 0.0,
            freeze_blocks: 0,
            dimensions: 128,
        }
    }
}

fn is_false(value: &bool) -> bool {
    !*value
}

fn is_true(value: &bool) -> bool {
    *value
}

impl VitSize {
    /// Width, depth, heads.
    const fn sizes(self) -> [usize; 3] {
        match self {
            VitSize::Ti => [192, 12, 3],
            VitSize::S => [384, 12, 6],
            VitSize::B => [768, 12, 12],
            VitSize::L => [1024, 24, 16],
        }
    }

    /// The size with this width, if there is one.
    pub fn of_width(width: usize) -> Option<Self> {
        [VitSize::Ti, VitSize::S, VitSize::B, VitSize::L].into_iter().find(|size| size.sizes()[0] == width)
    }

    /// Its name in the run file.
    pub fn name(self) -> &'static str {
        match self {
            VitSize::Ti => "ti",
            VitSize::S => "s",
            VitSize::B => "b",
            VitSize::L => "l",
        }
    }

    /// Its number of blocks.
    pub fn depth(self) -> usize {
        self.sizes()[1]
    }
}

impl Named for VitConfig {
    const NAME: &'static str = "vit";
}

impl NetworkSpec for VitConfig {
    fn heads(&self) -> Vec<Head> {
        vec![Head::of_layer(self.dimensions, self.features())]
    }

    fn build(&self, setting: Setting<'_>) -> Result<AnyEmbedder> {
        Ok(self.describe(setting)?.boxed())
    }
}

impl VitConfig {
    /// Width, depth and heads.
    fn sizes(&self) -> [usize; 3] {
        let [width, depth, heads] = self.size.sizes();
        let own = |own: usize, usual: usize| if own > 0 { own } else { usual };
        let heads = if self.width > 0 { (self.width / 64).max(1) } else { heads };
        [own(self.width, width), own(self.depth, depth), own(self.attention_heads, heads)]
    }

    /// Length of the features.
    fn features(&self) -> usize {
        match (self.projection, self.output) {
            (0, VitOutput::ClassAndMean) => 2 * self.sizes()[0],
            (0, _) => self.sizes()[0],
            (projection, _) => projection,
        }
    }

    fn check(&self, setting: &Setting<'_>) -> Result<()> {
        let [width, depth, heads] = self.sizes();
        if !width.is_multiple_of(heads) {
            return Err(value(
                "attention_heads",
                &format!("a divisor of the width {width}"),
                heads.to_string(),
            ));
        }
        if self.positions == VitPositions::Rotary && !(width / heads).is_multiple_of(4) {
            let found = format!("{heads} heads of {} channels", width / heads);
            return Err(value(
                "attention_heads",
                "heads of a multiple of 4 channels for rotary positions",
                found,
            ));
        }
        if !(self.mlp_ratio > 0.0 && self.mlp_ratio <= 64.0) {
            return Err(value("mlp_ratio", "above 0 and at most 64", self.mlp_ratio.to_string()));
        }
        if self.patch == 0 {
            return Err(value("patch", "1 or more", "0".into()));
        }
        if !(0.0..1.0).contains(&self.drop_path) {
            return Err(value("drop_path", "from 0 to below 1", self.drop_path.to_string()));
        }
        if !(self.norm_epsilon > 0.0 && self.norm_epsilon < 1.0) {
            return Err(value("norm_epsilon", "above 0 and below 1", self.norm_epsilon.to_string()));
        }
        if self.freeze_blocks > depth {
            let wanted = format!("at most {depth}, the blocks of the network");
            return Err(value("freeze_blocks", &wanted, self.freeze_blocks.to_string()));
        }
        if !self.class_token && matches!(self.output, VitOutput::Class | VitOutput::ClassAndMean) {
            let found = if self.output == VitOutput::Class { "class" } else { "class_and_mean" };
            return Err(value("output", "`mean` or `attention` without a class token", format!("`{found}`")));
        }
        let input = setting.input;
        if [input.height, input.width].iter().any(|&side| side == 0 || !side.is_multiple_of(self.patch)) {
            return Err(gallerist_tensor::Error::Value {
                key: "image.size".into(),
                wanted: format!(
                    "a multiple of the patch of {} pixels, such as {}",
                    self.patch,
                    (input.height / self.patch).max(1) * self.patch
                ),
                found: format!("{} x {}", input.height, input.width),
            });
        }
        Ok(())
    }

    fn describe(&self, setting: Setting<'_>) -> Result<Network> {
        self.check(&setting)?;
        let [width, depth, heads] = self.sizes();
        let input = setting.input;
        let (mut b, images) = setting.builder(0.1, 1e-5)?;
        b.freeze(self.freeze_blocks > 0);
        let kernel = Kernel {
            padding: Padding::Each(0),
            bias: !self.pre_norm,
            ..Kernel::new(self.patch).stride(self.patch)
        };
        let patches = b.conv("patch_embed.proj", images, width, kernel);
        let prefix = Prefix { class: self.class_token, registers: self.registers };
        let rotary = (self.positions == VitPositions::Rotary)
            .then(|| b.rotary(patches, prefix, width / heads, VitPositions::BASE));
        let mut x = b.tokens(patches, prefix, rotary.is_none());
        if self.pre_norm {
            x = b.layer_norm("norm_pre", x, self.norm_epsilon);
        }
        for i in 0..depth {
            b.freeze(i < self.freeze_blocks);
            let rate =
                if depth > 1 { self.drop_path * i as f64 / (depth - 1) as f64 } else { self.drop_path };
            x = self.block(
                &mut b,
                &format!("blocks.{i}"),
                x,
                SelfAttention { heads, rotary: rotary.clone() },
                rate,
            );
        }
        b.freeze(false);
        let x = b.layer_norm("norm", x, self.norm_epsilon);
        let mut x = self.pool(&mut b, x, heads);
        if self.projection > 0 {
            x = b.linear("proj", x, self.projection, false);
        }
        if self.dimensions > 0 {
            x = b.linear("head", x, self.dimensions, true);
        }
        b.finish(&[x], input)
    }

    fn block(&self, b: &mut Builder<'_>, path: &str, x: Node, attention: SelfAttention, rate: f64) -> Node {
        let width = b.width(x);
        let branch = |b: &mut Builder<'_>, part: usize, x: Node, y: Node| {
            let y = if self.layer_scale { b.layer_scale(&format!("{path}.ls{part}"), y) } else { y };
            let y = if rate > 0.0 { b.drop_path(&format!("{path}.drop_path{part}"), y, rate) } else { y };
            b.add(x, y)
        };
        let y = b.layer_norm(&format!("{path}.norm1"), x, self.norm_epsilon);
        let y = b.linear(&format!("{path}.attn.qkv"), y, 3 * width, true);
        if !self.key_bias {
            b.keep_bias_at_zero(y, width..2 * width);
        }
        let y = b.self_attention(y, attention);
        let y = b.linear(&format!("{path}.attn.proj"), y, width, true);
        let x = branch(b, 1, x, y);
        let y = b.layer_norm(&format!("{path}.norm2"), x, self.norm_epsilon);
        let y = self.mlp(b, path, y, self.gated_mlp);
        branch(b, 2, x, y)
    }

    fn mlp(&self, b: &mut Builder<'_>, path: &str, x: Node, gated: bool) -> Node {
        let width = b.width(x);
        let inner = (self.mlp_ratio * width as f64).round() as usize;
        let fc1 = format!("{path}.mlp.fc1");
        let y = if gated {
            let y = b.linear(&fc1, x, 2 * inner, true);
            b.gated_silu(y)
        } else {
            let y = b.linear(&fc1, x, inner, true);
            b.gelu(y, self.activation)
        };
        b.linear(&format!("{path}.mlp.fc2"), y, width, true)
    }

    fn pool(&self, b: &mut Builder<'_>, x: Node, heads: usize) -> Node {
        match self.output {
            VitOutput::Class => b.class_token(x),
            VitOutput::Mean => b.mean_of_patches(x),
            VitOutput::ClassAndMean => {
                let rows = [b.class_token(x), b.mean_of_patches(x)];
                b.concat_rows(&rows)
            }
            VitOutput::Attention => {
                let x = b.attention_pool("attn_pool", x, heads);
                let y = b.layer_norm("attn_pool.norm", x, self.norm_epsilon);
                let y = self.mlp(b, "attn_pool", y, false);
                b.add(x, y)
            }
        }
    }
}
