//! A network prepared for embedding.

use std::fmt;

use burn::module::Param;
use burn::tensor::{Device, Tensor, TensorData};
use gallerist_kernels::Products;
use gallerist_kernels::prepared::{Builder, Convolution, Measurement, Node, Plan, Ranges};

use super::network::{Fixed, FixedKind, Network, Op, Step};
use crate::layers::{BatchNorm, Conv, Gem, Linear, Pool};
use crate::setting::InputShape;
use crate::token_layers::Tokens;

/// A network that only embeds, on the CPU: batch norm is part of the weights, which are packed once in the order in which
/// the kernels read them.
///
/// Made by [`Network::prepare`]. The embeddings are those of the network up to rounding: on the networks of this crate,
/// their cosine distance to the network's own is below 1e-6. The weights are copies; later changes of the network have no
/// effect.
pub struct Prepared {
    plan: Plan,
    /// Tokens before those of the patches, and rows and columns of patches, where the last maps are tokens.
    patches: Option<(usize, [usize; 2])>,
}

impl fmt::Debug for Prepared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Prepared").field("input", &self.plan.input()).finish_non_exhaustive()
    }
}

impl Network {
    /// The network prepared for embedding images of one size on the CPU.
    ///
    /// `None` for a layer that cannot be prepared, which is [attention with a learned
    /// query](crate::token_layers::AttentionPool) or a [frozen model](crate::Extractor), and where the kernels are turned off.
    ///
    /// The preparation needs memory for another copy of the weights.
    ///
    /// # Panics
    ///
    /// If the network does not fit the images.
    ///
    /// # Example
    ///
    /// ```
    /// use burn::tensor::Device;
    /// use gallerist_nn::{ConvBlocksConfig, InputShape, NetworkConfig, Products};
    ///
    /// let input = InputShape { channels: 1, height: 28, width: 28 };
    /// let config = NetworkConfig::from(ConvBlocksConfig::default());
    /// let network = config.init(input, 1, &Device::flex())?;
    /// let prepared = network.prepare(input, Products::F32).unwrap();
    /// let embeddings = prepared.forward(&vec![0.5; 2 * 28 * 28], 2);
    /// assert_eq!(embeddings[0].dims(), [2, 64]);
    /// # Ok::<(), gallerist_nn::Error>(())
    /// ```
    pub fn prepare(&self, input: InputShape, products: Products) -> Option<Prepared> {
        let Layers { builder, outputs, patches } = self.layers_for(input)?;
        Some(Prepared { plan: builder.finish(&outputs, products), patches })
    }

    /// The network prepared in int8: maps between convolutions are bytes, in ranges that were measured on images of this size
    /// ([`measure`](Self::measure)). What follows the last convolution is in f32.
    ///
    /// `None` as for [`prepare`](Self::prepare), for a network most of whose multiplications are not in convolutions of maps, such as
    /// transformers, and for ranges of another network.
    ///
    /// # Panics
    ///
    /// If the network does not fit the images.
    ///
    /// # Example
    ///
    /// ```
    /// use burn::tensor::Device;
    /// use gallerist_nn::{ConvBlocksConfig, InputShape, NetworkConfig};
    ///
    /// let input = InputShape { channels: 1, height: 28, width: 28 };
    /// let config = NetworkConfig::from(ConvBlocksConfig::default());
    /// let network = config.init(input, 1, &Device::flex())?;
    /// let images: Vec<f32> = (0..2 * 28 * 28).map(|i| (i % 13) as f32 / 13.0).collect();
    /// let mut measurement = network.measure(input).unwrap();
    /// measurement.add(&images, 2);
    /// let ranges = measurement.finish().unwrap();
    /// let prepared = network.prepare_int8(input, &ranges).unwrap();
    /// assert_eq!(prepared.forward(&images, 2)[0].dims(), [2, 64]);
    /// # Ok::<(), gallerist_nn::Error>(())
    /// ```
    pub fn prepare_int8(&self, input: InputShape, ranges: &Ranges) -> Option<Prepared> {
        let Layers { builder, outputs, patches } = self.layers_for(input)?;
        Some(Prepared { plan: builder.finish_int8(&outputs, ranges)?, patches })
    }

    /// A measurement of the ranges of all layers for images of one size; `None` as for [`prepare`](Self::prepare).
    ///
    /// # Panics
    ///
    /// If the network does not fit the images.
    pub fn measure(&self, input: InputShape) -> Option<Measurement> {
        let Layers { builder, outputs, .. } = self.layers_for(input)?;
        Some(builder.measure(&outputs))
    }

    /// The steps as layers of a plan.
    fn layers_for(&self, input: InputShape) -> Option<Layers> {
        let attends = self.steps.iter().any(|step| matches!(step.op, Op::AttentionPool(_)));
        if attends || self.extractor().is_some() || !gallerist_kernels::is_enabled() {
            return None;
        }
        let last = self.last_maps()?;
        let (builder, images) = Builder::new([input.channels, input.height, input.width]);
        let mut plan = Translation { builder, images, nodes: Vec::with_capacity(self.steps.len()) };
        for step in &self.steps {
            let node = plan.translate(step);
            plan.nodes.push(node);
        }
        let outputs = self.heads.iter().chain([&last]).map(|&i| plan.nodes[i]).collect();
        let patches = self.has_tokens(last).then(|| self.patches());
        Some(Layers { builder: plan.builder, outputs, patches })
    }
}

/// The layers of a plan, with its outputs: the heads and the last maps.
struct Layers {
    builder: Builder,
    outputs: Vec<Node>,
    /// As [`Prepared::patches`].
    patches: Option<(usize, [usize; 2])>,
}

impl Prepared {
    /// Embeddings of `count` images, one tensor per head, not normalised: as [`Network::forward`].
    ///
    /// # Panics
    ///
    /// If `images` are not `count` images of the size that the network was prepared for, `[count, channels, height,
    /// width]`.
    pub fn forward(&self, images: &[f32], count: usize) -> Vec<Tensor<2>> {
        self.run(images, count, false).0
    }

    /// As [`forward`](Self::forward), with the last feature maps: as [`Network::forward_with_maps`].
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward).
    pub fn forward_with_maps(&self, images: &[f32], count: usize) -> (Vec<Tensor<2>>, Tensor<4>) {
        let (rows, maps) = self.run(images, count, true);
        (rows, maps.expect("the maps were wanted"))
    }

    fn run(&self, images: &[f32], count: usize, with_maps: bool) -> (Vec<Tensor<2>>, Option<Tensor<4>>) {
        let heads = self.plan.outputs() - 1;
        let mut wanted = vec![true; heads];
        wanted.push(with_maps);
        let device = Device::flex();
        let mut outputs = self.plan.run(images, count, &wanted);
        let maps = outputs.pop().flatten().map(|values| {
            let [height, width, channels] = self.plan.output(heads);
            let tensor = |shape| Tensor::<4>::from_data(TensorData::new(values, shape), &device);
            match self.patches {
                Some((prefix, [rows, columns])) => {
                    let tokens = tensor([count, height, width, channels]);
                    let patches = tokens.narrow(2, prefix, rows * columns);
                    patches.reshape([count, rows, columns, channels]).permute([0, 3, 1, 2])
                }
                None => tensor([count, height, width, channels]).permute([0, 3, 1, 2]),
            }
        });
        let row = |(head, values): (usize, Option<Vec<f32>>)| {
            let [_, _, length] = self.plan.output(head);
            let values = values.expect("heads were wanted");
            Tensor::from_data(TensorData::new(values, [count, length]), &device)
        };
        (outputs.into_iter().enumerate().map(row).collect(), maps)
    }
}

/// The steps of a network as layers of a plan.
struct Translation {
    builder: Builder,
    images: Node,
    nodes: Vec<Node>,
}

impl Translation {
    fn translate(&mut self, step: &Step) -> Node {
        let inputs: Vec<Node> = step.inputs.iter().map(|&i| self.nodes[i]).collect();
        let b = &mut self.builder;
        match &step.op {
            Op::Conv(conv) => b.conv(inputs[0], convolution(conv)),
            Op::Norm(norm) => self.norm(norm, inputs[0]),
            Op::Linear(layer) => b.conv(inputs[0], linear(layer)),
            Op::Gem(Gem { p }) => b.gem(inputs[0], values(p)[0], Gem::LEAST as f32),
            Op::Tokens(tokens) => {
                let (prefix, positions) = token_values(tokens);
                b.tokens(inputs[0], prefix, positions)
            }
            Op::LayerNorm(norm) => {
                b.layer_norm(inputs[0], values(&norm.weight), values(&norm.bias), norm.epsilon)
            }
            Op::LayerScale(scale) => {
                let scale = values(&scale.gamma);
                let shift = vec![0.0; scale.len()];
                b.affine(inputs[0], scale, shift)
            }
            Op::SelfAttention(attention) => b.attention(inputs[0], attention.heads, attention.rotary.clone()),
            Op::AttentionPool(_) | Op::Extractor(_) => {
                unreachable!("networks with this layer are not prepared")
            }
            Op::Fixed(Fixed { kind }) => self.fixed(*kind, &inputs),
        }
    }

    fn norm(&mut self, norm: &BatchNorm, x: Node) -> Node {
        let b = &mut self.builder;
        let variance = host(norm.running_var.value());
        let scale: Vec<f64> = values(&norm.gamma)
            .iter()
            .zip(&variance)
            .map(|(gamma, variance)| f64::from(*gamma) / (f64::from(*variance) + norm.epsilon).sqrt())
            .collect();
        let shift = values(&norm.beta)
            .iter()
            .zip(host(norm.running_mean.value()).iter().zip(&scale))
            .map(|(beta, (mean, scale))| (f64::from(*beta) - f64::from(*mean) * scale) as f32)
            .collect();
        let x = b.affine(x, scale.iter().map(|scale| *scale as f32).collect(), shift);
        let x = b.activation(x, norm.then);
        match norm.max_pool2 {
            true => b.max_pool(x, Pool::new(2, 2).max_options()),
            false => x,
        }
    }

    fn fixed(&mut self, kind: FixedKind, inputs: &[Node]) -> Node {
        let b = &mut self.builder;
        match kind {
            FixedKind::Input => self.images,
            FixedKind::Activation(kind) => b.activation(inputs[0], kind),
            FixedKind::MaxPool(pool) => b.max_pool(inputs[0], pool.max_options()),
            FixedKind::AveragePool(pool) => b.average_pool(inputs[0], pool.average_options()),
            FixedKind::GlobalAverage => b.global_average(inputs[0]),
            FixedKind::GlobalMax => b.global_max(inputs[0]),
            FixedKind::Add => b.add(inputs[0], inputs[1]),
            FixedKind::Concat => b.concat(inputs),
            FixedKind::Flatten => b.flatten(inputs[0]),
            FixedKind::Squeeze => b.global_average(inputs[0]),
            FixedKind::Excite(gate) => b.excite(inputs[0], inputs[1], gate),
            FixedKind::Gelu(kind) => b.gelu(inputs[0], kind.kernel()),
            FixedKind::GatedSilu => b.gated_silu(inputs[0]),
            FixedKind::DropPath { .. } => inputs[0],
            FixedKind::ClassToken => b.first_token(inputs[0]),
            FixedKind::MeanOfPatches { prefix } => b.mean_of_tokens(inputs[0], prefix),
        }
    }
}

fn host<const D: usize>(tensor: Tensor<D>) -> Vec<f32> {
    tensor.into_data().try_into_vec::<f32>().expect("parameters are f32")
}

fn values<const D: usize>(parameter: &Param<Tensor<D>>) -> Vec<f32> {
    host(parameter.val())
}

fn convolution(conv: &Conv) -> Convolution {
    let shape = conv.weight.dims();
    Convolution {
        weight: (values(&conv.weight), shape),
        bias: conv.bias.as_ref().map_or_else(|| vec![0.0; shape[0]], values),
        stride: conv.stride,
        padding: conv.padding,
        groups: conv.groups,
    }
}

fn linear(layer: &Linear) -> Convolution {
    let [inputs, outputs] = layer.weight.dims();
    let weight = host(layer.weight.val().transpose());
    let bias = layer.whole_bias().map_or_else(|| vec![0.0; outputs], host);
    Convolution {
        weight: (weight, [outputs, inputs, 1, 1]),
        bias,
        stride: 1,
        padding: [(0, 0); 2],
        groups: 1,
    }
}

/// The tokens before those of the patches, with their position, and the positions of the patches.
fn token_values(tokens: &Tokens) -> (Vec<f32>, Vec<f32>) {
    let mut prefix = tokens.cls_token.as_ref().map(values).unwrap_or_default();
    prefix.extend(tokens.reg_token.as_ref().map(values).unwrap_or_default());
    let without = || vec![0.0; tokens.grid[0] * tokens.grid[1] * tokens.width];
    let mut positions = tokens.pos_embed.as_ref().map_or_else(without, values);
    if tokens.has_class_position() {
        let of_patches = positions.split_off(tokens.width);
        prefix.iter_mut().zip(&positions).for_each(|(token, position)| *token += position);
        positions = of_patches;
    }
    (prefix, positions)
}

#[cfg(test)]
mod tests;
