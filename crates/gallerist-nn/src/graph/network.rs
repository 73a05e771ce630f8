//! A network: its steps, and how they are computed.

use std::ops::Range;

use burn::module::{Devices, Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{Device, Tensor, TensorData};

use super::chain::Value;
use crate::extractor::Extractor;
use crate::layers::{Activation, BatchNorm, Conv, Gate, Gem, Linear, Pool, at_least_f32, in_dtype};
use crate::token_layers::{
    AttentionPool, Draw, Gelu, LayerNorm, LayerScale, SelfAttention, Tokens, drop_path, gated_silu,
};

/// An operation with its parameters.
#[derive(Module, Debug)]
#[allow(clippy::large_enum_variant, reason = "one per step; its tensors are far larger")]
pub enum Op {
    /// Convolution.
    Conv(Conv),
    /// Batch norm, with what follows it in the same pass.
    Norm(BatchNorm),
    /// Linear layer.
    Linear(Linear),
    /// Generalised mean over all positions.
    Gem(Gem),
    /// Feature maps as tokens.
    Tokens(Tokens),
    /// Layer norm of rows or tokens.
    LayerNorm(LayerNorm),
    /// A learned factor for each channel of tokens.
    LayerScale(LayerScale),
    /// Self-attention of tokens `[count, 3 width]`.
    SelfAttention(SelfAttention),
    /// A row by the attention of a learned query to all tokens.
    AttentionPool(AttentionPool),
    /// A frozen model of another program.
    Extractor(Extractor),
    /// An operation without parameters.
    Fixed(Fixed),
}

/// An operation without parameters.
#[derive(Module, Debug)]
pub struct Fixed {
    #[module(skip)]
    /// The operation.
    pub kind: FixedKind,
}

/// The operations without parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum FixedKind {
    /// The images.
    Input,
    /// An activation that is no part of a batch norm.
    Activation(Activation),
    /// Maximum over windows.
    MaxPool(Pool),
    /// Mean over windows, zeros of the padding included.
    AveragePool(Pool),
    /// Mean over all positions.
    GlobalAverage,
    /// Maximum over all positions.
    GlobalMax,
    /// Sum of two results.
    Add,
    /// Results one after the other along the channels.
    Concat,
    /// Channels, rows and columns as one row.
    Flatten,
    /// Mean over all positions, as maps of one position.
    Squeeze,
    /// Feature maps times the gate of the second result, which has one position.
    Excite(Gate),
    /// The activation in an MLP.
    Gelu(Gelu),
    /// The gate of an MLP: `silu(a) b` for the two halves of each token.
    GatedSilu,
    /// In training, the branches of some images are left out.
    DropPath {
        /// Their share.
        rate: f64,
    },
    /// The first token.
    ClassToken,
    /// The mean of the tokens after the first ones.
    MeanOfPatches {
        /// The number of the first ones.
        prefix: usize,
    },
}

/// One step: an operation, its name, and the steps of its inputs.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its name, without the parameter's.
    pub name: String,
    /// Its operation.
    pub op: Op,
    /// The steps of its inputs.
    pub inputs: Vec<usize>,
}

/// Shape of a step's result for one image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Channels, height, width.
    Maps([usize; 3]),
    /// Length.
    Row(usize),
    /// Number of tokens, and their length.
    Tokens([usize; 2]),
}

impl Shape {
    /// The number of its values.
    pub(super) fn numbers(&self) -> usize {
        let product =
            |sides: &[usize]| sides.iter().fold(1usize, |product, &side| product.saturating_mul(side));
        match self {
            Shape::Maps(sides) => product(sides),
            Shape::Row(length) => *length,
            Shape::Tokens(sides) => product(sides),
        }
    }
}

/// A network: its steps, and those that give its embeddings.
#[derive(Clone, Debug)]
pub struct Network {
    /// The steps, each after the steps of its inputs.
    pub steps: Vec<Step>,
    /// The step of each head.
    pub heads: Vec<usize>,
    /// Length of each head's rows.
    pub dimensions: Vec<usize>,
    /// The last step that takes a step's result; a head's is kept to the end.
    pub(super) last_use: Vec<usize>,
    /// Whether the result of a step is computed by the only step that uses it, as part of a chain of convolutions.
    pub(super) deferred: Vec<bool>,
    /// The most values of maps and rows that an image takes at one time without gradients, the image included.
    pub(super) values_at_once: usize,
    /// The number of values of the largest result of a step, for one image of the size that the network was built for.
    pub(super) largest_maps: usize,
}

impl Network {
    /// Embeddings of a batch, one tensor per head, not normalised.
    ///
    /// # Shapes
    ///
    /// `[n, channels, height, width]` to `[n, dimensions]` of each of [`crate::NetworkConfig::heads`].
    ///
    /// # Panics
    ///
    /// If the images are not of the channels and, where the network has a layer of fixed size over all
    /// positions, of the size it was made for.
    pub fn forward(&self, images: Tensor<4>) -> Vec<Tensor<2>> {
        self.forward_seeing(images, None, None).0
    }

    /// [`forward`](Self::forward) of a training step, with its random decisions.
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward).
    pub fn forward_training(&self, images: Tensor<4>, draw: Draw) -> Vec<Tensor<2>> {
        self.forward_seeing(images, None, Some(draw)).0
    }

    /// As [`forward`](Self::forward), with the last feature maps, `[n, channels, height, width]`: those that
    /// the last pooling over all positions uses, or the rows made of them. Of a transformer, they are its last
    /// tokens of patches. `None` where a frozen model makes the rows.
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward).
    pub fn forward_with_maps(&self, images: Tensor<4>) -> (Vec<Tensor<2>>, Option<Tensor<4>>) {
        self.forward_seeing(images, self.last_maps(), None)
    }

    /// The step of the last feature maps or tokens; `None` where a frozen model makes the rows.
    pub(super) fn last_maps(&self) -> Option<usize> {
        let pools = |step: &Step| {
            use FixedKind::{ClassToken, Flatten, GlobalAverage, GlobalMax, MeanOfPatches};
            match &step.op {
                Op::Gem(_) | Op::AttentionPool(_) => true,
                Op::Fixed(Fixed { kind: GlobalAverage | GlobalMax | Flatten | ClassToken }) => true,
                Op::Fixed(fixed) => matches!(fixed.kind, MeanOfPatches { .. }),
                _ => false,
            }
        };
        self.steps.iter().rposition(pools).map(|last| self.steps[last].inputs[0])
    }

    /// Whether the result of a step are tokens.
    pub(super) fn has_tokens(&self, step: usize) -> bool {
        let Step { op, inputs, .. } = &self.steps[step];
        match op {
            Op::Tokens(_) | Op::SelfAttention(_) => true,
            Op::Conv(_) | Op::Gem(_) | Op::AttentionPool(_) | Op::Extractor(_) => false,
            Op::Fixed(Fixed {
                kind: FixedKind::Input | FixedKind::ClassToken | FixedKind::MeanOfPatches { .. },
            }) => false,
            _ => self.has_tokens(inputs[0]),
        }
    }

    /// Tokens before those of the patches, and rows and columns of patches.
    pub(super) fn patches(&self) -> (usize, [usize; 2]) {
        let of_patches = |step: &Step| match &step.op {
            Op::Tokens(tokens) => Some((tokens.prefix(), tokens.grid)),
            _ => None,
        };
        self.steps.iter().find_map(of_patches).expect("tokens are made of feature maps")
    }

    /// The most bytes that the maps of an image take at one time in a pass without gradients, the image included.
    /// Memory grows with the number of images in a batch by as much.
    pub fn bytes_per_image(&self) -> usize {
        self.values_at_once * size_of::<f32>()
    }

    /// The results of the heads, and the maps of step `seen`.
    fn forward_seeing(
        &self,
        images: Tensor<4>,
        seen: Option<usize>,
        draw: Option<Draw>,
    ) -> (Vec<Tensor<2>>, Option<Tensor<4>>) {
        let mut values: Vec<Option<Value<'_>>> = vec![None; self.steps.len()];
        values[0] = Some(Value::Maps(images));
        // The results of later steps are not needed for the maps, but for the heads.
        let after = seen.map_or(self.steps.len(), |seen| seen + 1);
        self.compute(1..after, &mut values, draw);
        let maps = seen.and_then(|seen| values[seen].clone()).map(|value| self.as_maps(value));
        self.compute(after..self.steps.len(), &mut values, draw);
        (self.heads_of(&values), maps)
    }

    /// The results of the heads among those of all steps.
    pub(super) fn heads_of(&self, values: &[Option<Value<'_>>]) -> Vec<Tensor<2>> {
        let head = |&i: &usize| at_least_f32(values[i].clone().expect("heads are kept").rows());
        self.heads.iter().map(head).collect()
    }

    /// Computes some steps; `values` are the results of all steps, and lose those that no later step uses.
    pub(super) fn compute<'a>(
        &'a self,
        steps: Range<usize>,
        values: &mut [Option<Value<'a>>],
        draw: Option<Draw>,
    ) {
        for i in steps {
            let step = &self.steps[i];
            let fits = |&j: &usize| values[j].as_ref().is_none_or(Value::fits_chain);
            let deferred = self.deferred[i] && step.inputs.iter().all(fits);
            let mut inputs = step.inputs.iter().map(|&j| {
                let value = if self.last_use[j] == i { values[j].take() } else { values[j].clone() };
                value.expect("a step takes the results of earlier steps")
            });
            let mut one = || inputs.next().expect("the builder gives every operation its inputs");
            values[i] = Some(match &step.op {
                Op::Conv(conv) if deferred => {
                    Value::of_chain(one().chain(step.inputs[0]).with_conv(conv), deferred)
                }
                Op::Conv(conv) => Value::Maps(conv.forward(one().maps())),
                Op::Norm(norm) => match one() {
                    Value::Chain(chain) => Value::of_chain(chain.with_norm(norm), deferred),
                    Value::Maps(maps) => Value::Maps(norm.forward(maps)),
                    Value::Tokens(_) => panic!("batch norm is of feature maps or rows, tokens are found"),
                    Value::Rows(rows) => {
                        let [n, c] = rows.dims();
                        Value::Rows(norm.forward(rows.reshape([n, c, 1, 1])).reshape([n, c]))
                    }
                },
                Op::Linear(linear) => match one() {
                    Value::Tokens(tokens) => Value::Tokens(linear.forward_tokens(tokens)),
                    other => Value::Rows(linear.forward(other.rows())),
                },
                Op::Tokens(tokens) => Value::Tokens(tokens.forward(one().maps())),
                Op::LayerNorm(norm) => match one() {
                    Value::Tokens(tokens) => Value::Tokens(norm.forward(tokens)),
                    other => Value::Rows(norm.forward(other.rows())),
                },
                Op::LayerScale(scale) => Value::Tokens(scale.forward(one().tokens())),
                Op::SelfAttention(attention) => Value::Tokens(attention.forward(one().tokens())),
                Op::AttentionPool(pool) => Value::Rows(pool.forward(one().tokens())),
                Op::Gem(gem) => Value::Rows(gem.forward(one().maps())),
                Op::Extractor(extractor) => Value::Rows(extractor.forward(one().maps())),
                Op::Fixed(fixed) => match fixed.kind {
                    FixedKind::Input => unreachable!("the images are the first result"),
                    FixedKind::Activation(kind) => match one() {
                        Value::Chain(chain) => Value::of_chain(chain.with_activation(kind), deferred),
                        Value::Maps(maps) => Value::Maps(kind.apply(maps)),
                        Value::Rows(rows) => Value::Rows(kind.apply(rows)),
                        Value::Tokens(tokens) => Value::Tokens(kind.apply(tokens)),
                    },
                    FixedKind::MaxPool(pool) => Value::Maps(pool.max(one().maps())),
                    FixedKind::AveragePool(pool) => Value::Maps(pool.average(one().maps())),
                    FixedKind::GlobalAverage => {
                        Value::Rows(gallerist_kernels::global_average_pool(at_least_f32(one().maps())))
                    }
                    FixedKind::Squeeze => {
                        let x = one().maps();
                        let ([n, channels, ..], dtype) = (x.dims(), x.dtype());
                        let mean = gallerist_kernels::global_average_pool(at_least_f32(x));
                        Value::Maps(in_dtype(mean.reshape([n, channels, 1, 1]), dtype))
                    }
                    FixedKind::Excite(gate) => {
                        let (x, by) = (one().maps(), one().maps());
                        Value::Maps(gallerist_kernels::excite(x, by, gate))
                    }
                    FixedKind::GlobalMax => {
                        Value::Rows(at_least_f32(one().maps()).flatten::<3>(2, 3).max_dim(2).squeeze_dim(2))
                    }
                    FixedKind::Add => match (one(), one()) {
                        (Value::Chain(chain), other) => {
                            let chain = chain.with_shortcut(step.inputs[1], other.maps());
                            Value::of_chain(chain, deferred)
                        }
                        (other, Value::Chain(chain)) => {
                            let chain = chain.with_shortcut(step.inputs[0], other.maps());
                            Value::of_chain(chain, deferred)
                        }
                        (Value::Tokens(x), y) => Value::Tokens(x + y.tokens()),
                        (Value::Rows(x), y) => Value::Rows(x + y.rows()),
                        (x, y) => Value::Maps(x.maps() + y.maps()),
                    },
                    FixedKind::Concat => {
                        let parts: Vec<Value<'_>> = inputs.collect();
                        match parts[0] {
                            Value::Rows(_) => {
                                // A mean of tokens is f32, another head may be narrower.
                                let rows = parts.into_iter().map(|part| at_least_f32(part.rows()));
                                Value::Rows(Tensor::cat(rows.collect(), 1))
                            }
                            _ => Value::Maps(gallerist_kernels::concat_channels(
                                parts.into_iter().map(Value::maps).collect(),
                            )),
                        }
                    }
                    FixedKind::Flatten => Value::Rows(one().maps().flatten(1, 3)),
                    FixedKind::Gelu(kind) => match one() {
                        Value::Tokens(tokens) => Value::Tokens(kind.apply(tokens)),
                        other => Value::Rows(kind.apply(other.rows())),
                    },
                    FixedKind::GatedSilu => Value::Tokens(gated_silu(one().tokens())),
                    FixedKind::DropPath { rate } => {
                        let x = one().tokens();
                        Value::Tokens(match draw {
                            Some(draw) => drop_path(x, &step.name, rate, draw),
                            None => x,
                        })
                    }
                    FixedKind::ClassToken => Value::Rows(one().tokens().narrow(1, 0, 1).squeeze_dim(1)),
                    FixedKind::MeanOfPatches { prefix } => {
                        let x = one().tokens();
                        let patches = x.dims()[1] - prefix;
                        Value::Rows(at_least_f32(x.narrow(1, prefix, patches)).mean_dim(1).squeeze_dim(1))
                    }
                },
            });
        }
    }

    /// The tokens of patches as feature maps; feature maps as they are.
    fn as_maps(&self, value: Value<'_>) -> Tensor<4> {
        let Value::Tokens(tokens) = value else { return value.maps() };
        let (prefix, [rows, columns]) = self.patches();
        let [n, _, width] = tokens.dims();
        let patches = tokens.narrow(1, prefix, rows * columns).reshape([n, rows, columns, width]);
        patches.permute([0, 3, 1, 2])
    }

    /// The frozen model that makes its features, if it has one.
    pub fn extractor(&self) -> Option<&Extractor> {
        self.steps.iter().find_map(|step| match &step.op {
            Op::Extractor(extractor) => Some(extractor),
            _ => None,
        })
    }

    /// The number of blocks, by the names of the steps (`blocks.0.…`); `None` where no step has such a name.
    pub fn blocks(&self) -> Option<usize> {
        self.steps.iter().filter_map(|step| block_of(&step.name)).max().map(|last| last + 1)
    }

    /// Numbers of the largest feature maps for one image of the size the network was made for.
    pub fn largest_maps(&self) -> usize {
        self.largest_maps
    }

    /// By how much the network shrinks an image: the product of the strides on the way to its last feature maps.
    pub fn total_stride(&self) -> usize {
        let mut strides = vec![1; self.steps.len()];
        for (i, step) in self.steps.iter().enumerate() {
            let own = match &step.op {
                Op::Conv(conv) => conv.stride,
                Op::Norm(norm) if norm.max_pool2 => 2,
                Op::Fixed(Fixed { kind: FixedKind::MaxPool(pool) | FixedKind::AveragePool(pool) }) => {
                    pool.stride
                }
                _ => 1,
            };
            strides[i] = own * step.inputs.iter().map(|&j| strides[j]).max().unwrap_or(1);
        }
        strides.into_iter().max().unwrap_or(1)
    }

    /// The network that returns the inputs of the linear heads as its embeddings, in the order of the heads.
    ///
    /// `None` where a head is not a linear layer.
    pub fn features(&self) -> Option<Self> {
        let mut features = self.clone();
        for (head, dimensions) in features.heads.iter_mut().zip(&mut features.dimensions) {
            let Step { op: Op::Linear(linear), inputs, name } = &self.steps[*head] else { return None };
            if !Self::is_head(&format!("{name}.")) {
                return None;
            }
            (*head, *dimensions) = (inputs[0], linear.weight.dims()[0]);
        }
        features.heads.iter().for_each(|&step| features.last_use[step] = usize::MAX);
        Some(features)
    }

    /// Weight, `[inputs, outputs]`, and bias of a linear head; 0 if it has no bias.
    pub fn head(&self, head: usize) -> (Vec<f32>, Vec<f32>) {
        let Op::Linear(linear) = &self.steps[self.heads[head]].op else {
            panic!("head {head} is not linear")
        };
        let values = |data: TensorData| data.try_into_vec::<f32>().expect("weights are f32");
        let bias = linear.bias.as_ref().map(|bias| values(bias.val().into_data()));
        (values(linear.weight.val().into_data()), bias.unwrap_or_else(|| vec![0.0; self.dimensions[head]]))
    }

    /// The network with another weight, `[inputs, outputs]`, and bias of a linear head; a head without a
    /// bias ignores the bias.
    pub fn with_head(mut self, head: usize, weight: Vec<f32>, bias: Vec<f32>) -> Self {
        let Op::Linear(linear) = &mut self.steps[self.heads[head]].op else {
            panic!("head {head} is not linear")
        };
        linear.weight = with_values(linear.weight.clone(), weight);
        linear.bias = linear.bias.take().map(|old| with_values(old, bias));
        self
    }

    /// Whether a parameter belongs to a layer that is always new: an embedding head or a learned pooling
    /// (its learning rate is `optimizer.head_factor` times the base rate).
    ///
    /// `path` is the parameter's dotted path in the network, e.g. `head.weight`.
    pub fn is_head(path: &str) -> bool {
        path.starts_with("head.")
    }

    /// The group of a parameter for a learning rate that decays with the depth: 0 for the layers before the first of
    /// `blocks` blocks, 1 for that block, `blocks + 1` for the layers after the last.
    pub fn depth_group(path: &str, blocks: usize) -> usize {
        const FIRST: [&str; 7] =
            ["cls_token", "reg_token", "pos_embed", "patch_embed.", "norm_pre.", "conv_stem.", "bn1."];
        match block_of(path) {
            Some(block) => block + 1,
            None if FIRST.iter().any(|first| path.starts_with(first)) => 0,
            None => blocks + 1,
        }
    }

    /// Whether a parameter is a learned token or position, which weight decay leaves out with the biases.
    pub fn is_token(path: &str) -> bool {
        matches!(path, "cls_token" | "reg_token" | "pos_embed" | "attn_pool.latent")
    }

    /// Whether a parameter may be absent from weights made for another task: an embedding head, or an
    /// auxiliary classifier on the way to one.
    pub fn may_be_new(path: &str) -> bool {
        Self::is_head(path) || path.starts_with("auxiliary.")
    }

    /// The name of each batch norm, and whether it uses the statistics of the batch in training: it is not frozen.
    pub fn batch_norms(&self) -> impl Iterator<Item = (&str, bool)> {
        self.steps.iter().filter_map(|step| match &step.op {
            Op::Norm(norm) => Some((step.name.as_str(), norm.training.is_enabled())),
            _ => None,
        })
    }

    /// Every tensor: its layer's step, its name within the layer, its shape.
    pub fn slots(&self) -> Vec<Slot<'_>> {
        let mut slots = Vec::new();
        for (step, Step { name, op, .. }) in self.steps.iter().enumerate() {
            let mut slot = |field: &'static str, shape: Vec<usize>| {
                let linear = matches!(op, Op::Linear(_)) || field.contains('.');
                let norm = matches!(op, Op::Norm(_));
                slots.push(Slot { step, layer: name, field, shape, linear, norm });
            };
            match op {
                Op::Conv(Conv { weight, bias, .. }) => {
                    slot("weight", weight.dims().to_vec());
                    bias.iter().for_each(|bias| slot("bias", bias.dims().to_vec()));
                }
                Op::Linear(Linear { weight, bias, .. }) => {
                    slot("weight", weight.dims().to_vec());
                    bias.iter().for_each(|bias| slot("bias", bias.dims().to_vec()));
                }
                Op::Norm(norm) => {
                    for field in ["gamma", "beta", "running_mean", "running_var"] {
                        slot(field, norm.gamma.dims().to_vec());
                    }
                }
                Op::Gem(gem) => slot("p", gem.p.dims().to_vec()),
                Op::Tokens(Tokens { cls_token, reg_token, pos_embed, .. }) => {
                    cls_token.iter().for_each(|token| slot("cls_token", token.dims().to_vec()));
                    reg_token.iter().for_each(|tokens| slot("reg_token", tokens.dims().to_vec()));
                    pos_embed.iter().for_each(|positions| slot("pos_embed", positions.dims().to_vec()));
                }
                Op::LayerNorm(LayerNorm { weight, bias, .. }) => {
                    slot("weight", weight.dims().to_vec());
                    slot("bias", bias.dims().to_vec());
                }
                Op::LayerScale(scale) => slot("gamma", scale.gamma.dims().to_vec()),
                Op::AttentionPool(pool) => {
                    slot("latent", pool.latent.dims().to_vec());
                    let parts = [
                        ("q.weight", "q.bias", &pool.q),
                        ("kv.weight", "kv.bias", &pool.kv),
                        ("proj.weight", "proj.bias", &pool.proj),
                    ];
                    for (weight, bias, linear) in parts {
                        slot(weight, linear.weight.dims().to_vec());
                        linear.bias.iter().for_each(|values| slot(bias, values.dims().to_vec()));
                    }
                }
                Op::SelfAttention(_) | Op::Extractor(_) | Op::Fixed(_) => {}
            }
        }
        slots
    }

    fn map_ops(self, mut f: impl FnMut(&str, Op) -> Op) -> Self {
        let steps = self
            .steps
            .into_iter()
            .map(|Step { name, op, inputs }| Step { op: f(&name, op), name, inputs })
            .collect();
        Network { steps, ..self }
    }
}

/// A parameter with other values.
fn with_values<const D: usize>(param: Param<Tensor<D>>, values: Vec<f32>) -> Param<Tensor<D>> {
    let learns = param.is_require_grad();
    param.map(|old| {
        Tensor::from_data(TensorData::new(values, old.dims()), &old.device()).set_require_grad(learns)
    })
}

/// A tensor of a network.
pub struct Slot<'a> {
    /// The step that has it.
    pub step: usize,
    /// The step's name.
    pub layer: &'a str,
    /// Its name in the layer: `weight`, `gamma`, …
    pub field: &'static str,
    /// Its shape here; a linear weight is `[inputs, outputs]`.
    pub shape: Vec<usize>,
    /// Whether it belongs to a linear layer.
    pub linear: bool,
    /// Whether it belongs to batch norm.
    pub norm: bool,
}

impl Slot<'_> {
    /// Its name in the network.
    pub fn path(&self) -> String {
        join(self.layer, self.field)
    }
}

/// The name of a tensor: a layer without a name has its tensors at the top.
fn join(layer: &str, field: &str) -> String {
    if layer.is_empty() { field.into() } else { format!("{layer}.{field}") }
}

/// The number of the block in a name such as `blocks.3.norm1.weight`.
fn block_of(name: &str) -> Option<usize> {
    name.strip_prefix("blocks.")?.split('.').next()?.parse().ok()
}

/// The name of the module that a traversal enters.
const CONTAINER: &str = "Struct:Network";

impl Module for Network {
    fn collect_devices(&self, devices: Devices) -> Devices {
        self.steps.iter().fold(devices, |devices, step| step.op.collect_devices(devices))
    }

    fn fork(self, device: &Device) -> Self {
        self.map_ops(|_, op| op.fork(device))
    }

    fn to_device(self, device: &Device) -> Self {
        self.map_ops(|_, op| op.to_device(device))
    }

    fn train(self) -> Self {
        self.map_ops(|_, op| op.train())
    }

    fn valid(&self) -> Self {
        self.clone().map_ops(|_, op| op.valid())
    }

    fn materialize(self) -> Self {
        self.map_ops(|_, op| op.materialize())
    }

    fn visit<V: ModuleVisitor>(&self, visitor: &mut V) {
        for step in &self.steps {
            // The tensors of a layer without a name are at the top.
            if step.name.is_empty() {
                step.op.visit(visitor);
                continue;
            }
            visitor.enter_module(&step.name, CONTAINER);
            step.op.visit(visitor);
            visitor.exit_module(&step.name, CONTAINER);
        }
    }

    fn map<M: ModuleMapper>(self, mapper: &mut M) -> Self {
        self.map_ops(|name, op| {
            if name.is_empty() {
                return op.map(mapper);
            }
            mapper.enter_module(name, CONTAINER);
            let op = op.map(mapper);
            mapper.exit_module(name, CONTAINER);
            op
        })
    }
}

impl Pool {
    fn max(self, x: Tensor<4>) -> Tensor<4> {
        gallerist_kernels::max_pool2d(x, self.max_options())
    }

    fn average(self, x: Tensor<4>) -> Tensor<4> {
        gallerist_kernels::avg_pool2d(x, self.average_options())
    }
}
