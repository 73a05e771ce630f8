//! The layers of a network before they are prepared, and the sizes of their results.

use std::sync::Arc;

use burn::tensor::ops::{AvgPoolOptions, ConvOptions, MaxPoolOptions};

use crate::gate::Gate;
use crate::geometry::Geometry;
use crate::maps::Maps;
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
    /// The second input has a value for the gate of each channel.
    Excite(Gate),
    Concat,
    Fixed(Fixed),
    /// A 1 x 1 convolution of the first input, excited by the second one, with the activation after it. A third input is
    /// added before the activation.
    ExcitedConv(Box<Convolution>, Activation, Gate),
    /// The convolutions of an inverted residual block, with the activations after them. A second input is added before the
    /// last activation.
    InvertedResidual(Vec<(Convolution, Activation)>),
    /// A result of the layers that compute in int8.
    Result {
        index: usize,
        maps: Maps,
    },
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

impl Convolution {
    pub(super) fn options(&self) -> ConvOptions<2> {
        ConvOptions::new_with_padding([self.stride; 2], self.padding, [1, 1], self.groups)
    }

    /// The sizes for an input.
    ///
    /// # Panics
    ///
    /// If the convolution does not fit it.
    pub(super) fn sizes(&self, x: Maps) -> Geometry {
        let shape = self.weight.1;
        Geometry::new(x, shape, &self.options())
            .unwrap_or_else(|| panic!("a convolution with the weight {shape:?} of {x:?}"))
    }
}

impl Layer {
    /// The sizes of the result for those of the inputs; `images` are those of the network's images.
    ///
    /// # Panics
    ///
    /// If the layer does not fit its inputs.
    fn output(&self, inputs: &[Maps], images: Maps) -> Maps {
        let with_add = |add: usize, y: Maps| {
            assert!(inputs.get(add).is_none_or(|add| *add == y), "{:?} is added to {y:?}", inputs.last());
            y
        };
        let excited = |x: Maps| {
            let row = Maps { height: 1, width: 1, ..x };
            assert_eq!(inputs[1], row, "values of the gates for {x:?}");
            x
        };
        match self {
            Layer::Images => images,
            Layer::Result { maps, .. } => *maps,
            Layer::Conv(conv, _) => with_add(1, conv.sizes(inputs[0]).output),
            Layer::InvertedResidual(convs) => {
                with_add(1, convs.iter().fold(inputs[0], |x, (conv, _)| conv.sizes(x).output))
            }
            Layer::Affine { scale, .. } => {
                assert_eq!(scale.len(), inputs[0].channels, "factors for {:?}", inputs[0]);
                inputs[0]
            }
            Layer::Activation(_) => inputs[0],
            Layer::Add => {
                assert_eq!(inputs[0], inputs[1], "sizes of the two terms of a sum");
                inputs[0]
            }
            Layer::Excite(_) => excited(inputs[0]),
            Layer::ExcitedConv(conv, ..) => with_add(2, conv.sizes(excited(inputs[0])).output),
            Layer::Concat => {
                let channels = inputs.iter().map(|maps| maps.channels).sum();
                let first = Maps { channels, ..inputs[0] };
                assert!(inputs.iter().all(|maps| Maps { channels, ..*maps } == first), "{inputs:?} joined");
                first
            }
            Layer::Fixed(fixed) => fixed.output(inputs[0]),
        }
    }
}

/// The number of steps and outputs that use the result of each step; `inputs` are those of all steps.
pub(super) fn users<'a>(
    inputs: impl ExactSizeIterator<Item = &'a [usize]>,
    outputs: &'a [usize],
) -> Vec<usize> {
    let mut users = vec![0; inputs.len()];
    inputs.flatten().chain(outputs).for_each(|&i| users[i] += 1);
    users
}

/// The sizes of the results of all steps for one image.
///
/// # Panics
///
/// If a layer does not fit its inputs.
pub(super) fn sizes(steps: &[Step], images: Maps) -> Vec<Maps> {
    let mut sizes: Vec<Maps> = Vec::with_capacity(steps.len());
    for step in steps {
        let inputs: Vec<Maps> = step.inputs.iter().map(|&i| sizes[i]).collect();
        sizes.push(step.layer.output(&inputs, images));
    }
    sizes
}
