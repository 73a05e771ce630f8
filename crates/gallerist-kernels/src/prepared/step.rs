//! The layers of a network before they are prepared.

use std::sync::Arc;

use burn::tensor::ops::{AvgPoolOptions, MaxPoolOptions};

use crate::norm::Activation;
use crate::tokens::{Gelu, Rotary};

/// A convolution with a square window, or a linear layer (1 x 1).
#[derive(Clone, Debug)]
pub struct Convolution {
    /// Values and shape, `[channels_out, channels_in / groups, size, size]`.
    pub weight: (Vec<f32>, [usize; 4]),
    /// `[channels_out]`.
    pub bias: Vec<f32>,
    /// Stride, in pixels.
    pub stride: usize,
    /// Zeros before and after the rows, before and after the columns.
    pub padding: [(usize, usize); 2],
    /// Groups of channels.
    pub groups: usize,
}

/// A layer before it is prepared.
#[derive(Clone, Debug)]
pub(super) enum Layer {
    Images,
    /// With the activation after it. A second input is added before the activation.
    Conv(Box<Convolution>, Activation),
    /// A factor and a term per channel.
    Affine {
        scale: Vec<f32>,
        shift: Vec<f32>,
    },
    Activation(Activation),
    Add,
    Concat,
    Fixed(Fixed),
}

/// A layer that preparation does not change.
#[derive(Clone, Debug)]
pub(super) enum Fixed {
    MaxPool(MaxPoolOptions<2>),
    AveragePool(AvgPoolOptions<2>),
    GlobalAverage,
    GlobalMax,
    /// The generalised mean with this exponent, of values of at least `least`.
    Gem {
        p: f32,
        least: f32,
    },
    Flatten,
    /// Tokens before those of the maps, and the positions of these.
    Tokens {
        prefix: Vec<f32>,
        positions: Vec<f32>,
    },
    LayerNorm {
        weight: Vec<f32>,
        bias: Vec<f32>,
        epsilon: f64,
    },
    Attention {
        heads: usize,
        rotary: Option<Arc<Rotary>>,
    },
    Gelu(Gelu),
    GatedSilu,
    FirstToken,
    MeanOfTokens {
        after: usize,
    },
}

#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) layer: Layer,
    pub(super) inputs: Vec<usize>,
}
