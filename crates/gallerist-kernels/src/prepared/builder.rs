//! The layers of a plan, in order.

use std::sync::Arc;

use burn::tensor::ops::{AvgPoolOptions, MaxPoolOptions};

use super::bytes;
use super::fuse::fuse;
use super::measurement::Measurement;
use super::plan::Plan;
use super::ranges::Ranges;
use super::step::{Convolution, Fixed, Layer, Step};
use crate::gate::Gate;
use crate::maps::Maps;
use crate::norm::Activation;
use crate::product::Products;
use crate::tokens::{Gelu, Rotary};

/// The result of a layer.
#[derive(Clone, Copy, Debug)]
pub struct Node(usize);

/// Takes the layers of a network in order.
pub struct Builder {
    steps: Vec<Step>,
    input: [usize; 3],
}

impl Builder {
    /// For images of these channels, height and width; also returns the images.
    pub fn new(input: [usize; 3]) -> (Self, Node) {
        let mut builder = Builder { steps: Vec::new(), input };
        let images = builder.push(Layer::Images, &[]);
        (builder, images)
    }

    fn push(&mut self, layer: Layer, inputs: &[Node]) -> Node {
        self.steps.push(Step { layer, inputs: inputs.iter().map(|node| node.0).collect() });
        Node(self.steps.len() - 1)
    }

    fn fixed(&mut self, layer: Fixed, x: Node) -> Node {
        self.push(Layer::Fixed(layer), &[x])
    }

    /// A convolution, or a linear layer of rows or tokens.
    pub fn conv(&mut self, x: Node, convolution: Convolution) -> Node {
        let (weight, shape) = &convolution.weight;
        assert_eq!(weight.len(), shape.iter().product::<usize>(), "values of a weight {shape:?}");
        assert_eq!(convolution.bias.len(), shape[0], "values of a bias for the weight {shape:?}");
        self.push(Layer::Conv(Box::new(convolution), Activation::None), &[x])
    }

    /// `x * scale + shift`, a value of each per channel.
    pub fn affine(&mut self, x: Node, scale: Vec<f32>, shift: Vec<f32>) -> Node {
        assert_eq!(scale.len(), shift.len(), "factors and terms");
        self.push(Layer::Affine { scale, shift }, &[x])
    }

    /// An activation.
    pub fn activation(&mut self, x: Node, activation: Activation) -> Node {
        match activation {
            Activation::None => x,
            other => self.push(Layer::Activation(other), &[x]),
        }
    }

    /// The sum of two results of the same shape.
    pub fn add(&mut self, x: Node, y: Node) -> Node {
        self.push(Layer::Add, &[x, y])
    }

    /// [`excite`](crate::excite): `x gate(by)` with a row `by`.
    pub fn excite(&mut self, x: Node, by: Node, gate: Gate) -> Node {
        self.push(Layer::Excite(gate), &[x, by])
    }

    /// Results one after the other along the channels.
    pub fn concat(&mut self, parts: &[Node]) -> Node {
        self.push(Layer::Concat, parts)
    }

    /// The maximum over windows; NaN wins over all numbers.
    pub fn max_pool(&mut self, x: Node, options: MaxPoolOptions<2>) -> Node {
        self.fixed(Fixed::MaxPool(options), x)
    }

    /// The mean over windows.
    pub fn average_pool(&mut self, x: Node, options: AvgPoolOptions<2>) -> Node {
        self.fixed(Fixed::AveragePool(options), x)
    }

    /// The mean over all positions.
    pub fn global_average(&mut self, x: Node) -> Node {
        self.fixed(Fixed::GlobalAverage, x)
    }

    /// The maximum over all positions.
    pub fn global_max(&mut self, x: Node) -> Node {
        self.fixed(Fixed::GlobalMax, x)
    }

    /// `(mean of max(x, least)^p)^(1/p)` over all positions.
    pub fn gem(&mut self, x: Node, p: f32, least: f32) -> Node {
        self.fixed(Fixed::Gem { p, least }, x)
    }

    /// Maps as rows: channels, then rows, then columns.
    pub fn flatten(&mut self, x: Node) -> Node {
        self.fixed(Fixed::Flatten, x)
    }

    /// Maps as tokens: first `prefix`, whole tokens, then the positions of the maps, row by row, plus `positions`.
    pub fn tokens(&mut self, x: Node, prefix: Vec<f32>, positions: Vec<f32>) -> Node {
        self.fixed(Fixed::Tokens { prefix, positions }, x)
    }

    /// Layer norm of rows or tokens.
    pub fn layer_norm(&mut self, x: Node, weight: Vec<f32>, bias: Vec<f32>, epsilon: f64) -> Node {
        self.fixed(Fixed::LayerNorm { weight, bias, epsilon }, x)
    }

    /// [`self_attention`](crate::self_attention) of tokens of queries, keys and values.
    pub fn attention(&mut self, x: Node, heads: usize, rotary: Option<Arc<Rotary>>) -> Node {
        self.fixed(Fixed::Attention { heads, rotary }, x)
    }

    /// The activation in an MLP.
    pub fn gelu(&mut self, x: Node, kind: Gelu) -> Node {
        self.fixed(Fixed::Gelu(kind), x)
    }

    /// [`gated_silu`](crate::gated_silu) of tokens.
    pub fn gated_silu(&mut self, x: Node) -> Node {
        self.fixed(Fixed::GatedSilu, x)
    }

    /// The first token as a row.
    pub fn first_token(&mut self, x: Node) -> Node {
        self.fixed(Fixed::FirstToken, x)
    }

    /// The mean of the tokens after the first ones as a row.
    pub fn mean_of_tokens(&mut self, x: Node, after: usize) -> Node {
        self.fixed(Fixed::MeanOfTokens { after }, x)
    }

    /// The plan that gives these results by such products; in int8 there is [`finish_int8`](Self::finish_int8).
    ///
    /// # Panics
    ///
    /// If the sizes of the layers do not fit together.
    pub fn finish(self, outputs: &[Node], products: Products) -> Plan {
        let (steps, outputs, images) = self.fused(outputs);
        Plan::new(steps, outputs, images, products, None)
    }

    /// The plan that gives these results in int8, as far as the layers from the images on have a form for it: convolutions with
    /// all channels or one in a group, with what follows them, pooling over windows, sums and joined channels. What is after them,
    /// as the last linear layer, is computed in f32.
    ///
    /// Weights have a step for each output channel; `ranges` are those of [`measure`](Self::measure) for the same layers and
    /// outputs. `None` if they are of other ones, and for a network most of whose multiplications are elsewhere, as in
    /// transformers. What is in int8 has the same values on every CPU.
    ///
    /// # Panics
    ///
    /// If the sizes of the layers do not fit together.
    pub fn finish_int8(self, outputs: &[Node], ranges: &Ranges) -> Option<Plan> {
        let (steps, outputs, images) = self.fused(outputs);
        let (segment, steps, outputs) = bytes::split(steps, outputs, images, ranges)?;
        Some(Plan::new(steps, outputs, images, Products::F32, Some(segment)))
    }

    /// A measurement of the ranges of all layers.
    ///
    /// # Panics
    ///
    /// If the sizes of the layers do not fit together.
    pub fn measure(self, outputs: &[Node]) -> Measurement {
        let (steps, _, images) = self.fused(outputs);
        let all = (0..steps.len()).collect();
        Measurement::new(Plan::new(steps, all, images, Products::F32, None))
    }

    /// The layers, with those joined that are parts of a convolution, the outputs, and the sizes of an image.
    fn fused(self, outputs: &[Node]) -> (Vec<Step>, Vec<usize>, Maps) {
        let outputs: Vec<usize> = outputs.iter().map(|node| node.0).collect();
        let (steps, outputs) = fuse(self.steps, &outputs);
        let [channels, height, width] = self.input;
        (steps, outputs, Maps { images: 1, height, width, channels })
    }
}
