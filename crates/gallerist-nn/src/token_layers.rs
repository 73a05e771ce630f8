//! Layers of vision transformers, on tokens `[n, count, width]`.
//!
//! Names and shapes of the parameters are those of timm's `VisionTransformer`. As all [layers](crate::layers), they use
//! the dtype of their input; layer norm and softmax compute in f32.

use std::sync::Arc;

use burn::module::{Module, Param};
use burn::tensor::Tensor;
use burn::tensor::module::attention;
use burn::tensor::ops::AttentionModuleOptions;
use gallerist_kernels::Rotary;
use gallerist_util::random::Random;
use serde::{Deserialize, Serialize};

use crate::layers::{Init, Linear, as_in, at_least_f32, for_sums, in_dtype};

/// What makes the random decisions of a training pass: the same values give the same decisions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Draw {
    /// The seed of the run.
    pub seed: u64,
    /// The training step.
    pub step: u64,
    /// The batch in the step, from 0, where gradients of several batches are accumulated.
    pub batch: u64,
    /// The place in the batch of the first image of the pass: not 0 where several processes share a batch.
    pub first: u64,
}

/// The activation between the two layers of an MLP.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gelu {
    /// `x P(X <= x)` for a normal X (Hendrycks & Gimpel 2016).
    #[default]
    Gelu,
    /// Its approximation by tanh, as in SigLIP.
    GeluTanh,
    /// `x sigmoid(1.702 x)`, as in OpenAI's CLIP.
    QuickGelu,
}

impl Gelu {
    /// Of every value.
    pub fn apply<const D: usize>(self, x: Tensor<D>) -> Tensor<D> {
        gallerist_kernels::gelu(x, self.kernel())
    }

    pub(crate) fn kernel(self) -> gallerist_kernels::Gelu {
        match self {
            Gelu::Gelu => gallerist_kernels::Gelu::Exact,
            Gelu::GeluTanh => gallerist_kernels::Gelu::Tanh,
            Gelu::QuickGelu => gallerist_kernels::Gelu::Quick,
        }
    }

    /// The factor in [`Gelu::QuickGelu`].
    pub const QUICK: f64 = 1.702;
}

/// The tokens of an image: class token, register tokens, then its patches with their positions.
///
/// The class token has a position, the first, where there are no register tokens.
#[derive(Module, Debug)]
pub struct Tokens {
    /// `[1, 1, width]`.
    pub cls_token: Option<Param<Tensor<3>>>,
    /// `[1, registers, width]`.
    pub reg_token: Option<Param<Tensor<3>>>,
    /// `[1, positions, width]`, the patches row by row; none where attention has [rotary](SelfAttention) ones.
    pub pos_embed: Option<Param<Tensor<3>>>,
    /// Rows and columns of patches.
    #[module(skip)]
    pub grid: [usize; 2],
    /// Length of a token.
    #[module(skip)]
    pub width: usize,
}

/// The tokens before those of the patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prefix {
    /// Whether there is a class token, the first.
    pub class: bool,
    /// Register tokens.
    pub registers: usize,
}

impl Prefix {
    /// Their number.
    pub fn tokens(self) -> usize {
        usize::from(self.class) + self.registers
    }
}

/// The standard deviation of new tokens and positions.
const TOKEN_DEVIATION: f64 = 0.02;

impl Tokens {
    /// New tokens for a grid of patches; `positions` tells whether they have learned positions.
    pub fn new(init: &Init<'_>, width: usize, grid: [usize; 2], prefix: Prefix, positions: bool) -> Self {
        let bound = TOKEN_DEVIATION * 3f64.sqrt();
        let tokens = |name: &str, count: usize| init.uniform(name, [1, count, width], bound);
        let Prefix { class, registers } = prefix;
        let placed = grid[0] * grid[1] + usize::from(class && registers == 0);
        Tokens {
            cls_token: class.then(|| tokens("cls_token", 1)),
            reg_token: (registers > 0).then(|| tokens("reg_token", registers)),
            pos_embed: positions.then(|| tokens("pos_embed", placed)),
            grid,
            width,
        }
    }

    /// Tokens before those of the patches.
    pub fn prefix(&self) -> usize {
        let registers = self.reg_token.as_ref().map_or(0, |tokens| tokens.dims()[1]);
        usize::from(self.cls_token.is_some()) + registers
    }

    /// Whether the first position is that of the class token.
    pub fn has_class_position(&self) -> bool {
        self.pos_embed.is_some() && self.cls_token.is_some() && self.reg_token.is_none()
    }

    /// `[n, width, rows, columns]` to `[n, count, width]`.
    pub fn forward(&self, patches: Tensor<4>) -> Tensor<3> {
        let [n, width, rows, columns] = patches.dims();
        assert_eq!([rows, columns], self.grid, "rows and columns of patches");
        let positions = self.pos_embed.as_ref().map(|positions| as_in(positions, &patches));
        let prefix = [&self.cls_token, &self.reg_token]
            .into_iter()
            .flatten()
            .map(|tokens| as_in(tokens, &patches).expand([n as i64, -1, -1]))
            .collect::<Vec<_>>();
        // The maps of a convolution have their channels innermost in memory.
        let patches = patches.permute([0, 2, 3, 1]).reshape([n, rows * columns, width]);
        let with = |mut prefix: Vec<Tensor<3>>, patches| match prefix.is_empty() {
            true => patches,
            false => {
                prefix.push(patches);
                Tensor::cat(prefix, 1)
            }
        };
        match positions {
            Some(positions) if self.has_class_position() => with(prefix, patches) + positions,
            Some(positions) => with(prefix, patches + positions),
            None => with(prefix, patches),
        }
    }
}

/// Layer norm over the width (Ba et al. 2016).
#[derive(Module, Debug)]
pub struct LayerNorm {
    /// Scale, `[width]`.
    pub weight: Param<Tensor<1>>,
    /// Shift, `[width]`.
    pub bias: Param<Tensor<1>>,
    /// Added to the variance.
    #[module(skip)]
    pub epsilon: f64,
}

impl LayerNorm {
    /// Scale 1, shift 0.
    pub fn new(init: &Init<'_>, width: usize, epsilon: f64) -> Self {
        LayerNorm { weight: init.constant(1.0, width), bias: init.constant(0.0, width), epsilon }
    }

    /// `[.., width]` to the same shape.
    pub fn forward<const D: usize>(&self, x: Tensor<D>) -> Tensor<D> {
        let dtype = x.dtype();
        let (weight, bias) = (self.weight.val(), self.bias.val());
        in_dtype(gallerist_kernels::layer_norm(for_sums(x), weight, bias, self.epsilon), dtype)
    }
}

/// A learned factor for each channel (Touvron et al. 2021, LayerScale).
#[derive(Module, Debug)]
pub struct LayerScale {
    /// `[width]`.
    pub gamma: Param<Tensor<1>>,
}

impl LayerScale {
    /// The first value of the factors, as in DINOv2.
    const FIRST: f32 = 1e-5;

    /// The same factor for all channels.
    pub fn new(init: &Init<'_>, width: usize) -> Self {
        LayerScale { gamma: init.constant(Self::FIRST, width) }
    }

    /// `[n, count, width]` to the same shape.
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let gamma = as_in(&self.gamma, &x).unsqueeze();
        x * gamma
    }
}

/// Self-attention.
#[derive(Module, Debug)]
pub struct SelfAttention {
    /// Its heads.
    #[module(skip)]
    pub heads: usize,
    /// The positions by which it turns queries and keys.
    #[module(skip)]
    pub rotary: Option<Arc<Rotary>>,
}

impl SelfAttention {
    /// `[n, count, 3 width]` (queries, keys, values) to `[n, count, width]`.
    ///
    /// `softmax(q k^T / sqrt(d)) v` for each head of `d = width / heads` channels (Vaswani et al. 2017).
    pub fn forward(&self, x: Tensor<3>) -> Tensor<3> {
        let dtype = x.dtype();
        let x = if self.rotary.is_none() { for_sums(x) } else { at_least_f32(x) };
        in_dtype(gallerist_kernels::self_attention(x, self.heads, self.rotary.as_ref()), dtype)
    }
}

/// Attention of `[n, heads, queries, d]` to keys and values `[n, heads, count, d]`: `[n, queries, heads d]`.
fn attend(query: Tensor<4>, key: Tensor<4>, value: Tensor<4>) -> Tensor<3> {
    let dtype = query.dtype();
    let [n, heads, queries, d] = query.dims();
    let [query, key, value] = [query, key, value].map(at_least_f32);
    let y = attention(query, key, value, None, None, AttentionModuleOptions::default());
    in_dtype(y.swap_dims(1, 2).reshape([n, queries, heads * d]), dtype)
}

/// The gate of an MLP, `silu(a) b` for the halves `a`, `b` of each token: `[n, count, 2 width]` to `[n, count, width]`.
pub fn gated_silu(x: Tensor<3>) -> Tensor<3> {
    let dtype = x.dtype();
    in_dtype(gallerist_kernels::gated_silu(at_least_f32(x)), dtype)
}

/// Drops each image's branch with probability `rate` and scales the others by `1 / (1 - rate)` (Huang et al. 2016,
/// stochastic depth).
pub fn drop_path(x: Tensor<3>, name: &str, rate: f64, draw: Draw) -> Tensor<3> {
    let n = x.dims()[0];
    let mut random = Random::new(draw.seed, &format!("drop path/{name}"), draw.step, draw.batch);
    // Decisions are drawn in the order of the batch.
    (0..draw.first).for_each(|_| _ = random.chance(rate));
    let kept: Vec<f32> =
        (0..n).map(|_| if random.chance(rate) { 0.0 } else { (1.0 / (1.0 - rate)) as f32 }).collect();
    let mask = Tensor::<1>::from_floats(kept.as_slice(), &x.device()).cast(x.dtype()).reshape([n, 1, 1]);
    x * mask
}

/// One row by the attention of a learned query to all tokens (SigLIP's head, before its MLP).
#[derive(Module, Debug)]
pub struct AttentionPool {
    /// The query before its projection, `[1, 1, width]`.
    pub latent: Param<Tensor<3>>,
    /// The projection of the query.
    pub q: Linear,
    /// Keys and values, `[width, 2 width]`.
    pub kv: Linear,
    /// The projection of the result.
    pub proj: Linear,
    /// Heads of the attention.
    #[module(skip)]
    pub heads: usize,
}

impl AttentionPool {
    /// New weights; `path` is the name of the layer.
    pub fn new(init: &Init<'_>, path: &str, width: usize, heads: usize) -> Self {
        let linear = |part: &str, outputs| Linear::new(init, &format!("{path}.{part}"), width, outputs, true);
        AttentionPool {
            latent: init.uniform(&format!("{path}.latent"), [1, 1, width], TOKEN_DEVIATION * 3f64.sqrt()),
            q: linear("q", width),
            kv: linear("kv", 2 * width),
            proj: linear("proj", width),
            heads,
        }
    }

    /// `[n, count, width]` to `[n, width]`.
    pub fn forward(&self, x: Tensor<3>) -> Tensor<2> {
        let [n, count, width] = x.dims();
        let d = width / self.heads;
        let latent = as_in(&self.latent, &x).reshape([1, width]);
        let query = self.q.forward(latent).reshape([1, self.heads, 1, d]).expand([n as i64, -1, -1, -1]);
        let parts = self.kv.forward_tokens(x).reshape([n, count, 2, self.heads, d]).permute([2, 0, 3, 1, 4]);
        let part = |i: usize| parts.clone().narrow(0, i, 1).squeeze_dim::<4>(0);
        self.proj.forward(attend(query, part(0), part(1)).reshape([n, width]))
    }
}
