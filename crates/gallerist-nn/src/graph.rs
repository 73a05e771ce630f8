//! A network as data: a list of steps, each an operation on the results of earlier ones.
//!
//! Every network of this crate is described once, by calls on a [`Builder`], and the description
//! serves for everything: shapes, initial weights, names, the forward pass, the exchange with other
//! programs ([`gallerist_weights`]) and the export to ONNX. A layer's name is its name in the
//! PyTorch implementation whose weights are in circulation, so that parameters need no table of
//! names.

use burn::module::{Devices, Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Tensor, TensorData};
use gallerist_kernels::{ConvNorm, Shortcut, conv_norm_chain};

use super::layers::{Activation, BatchNorm, Conv, Gem, Init, Linear, Pool, at_least_f32};
use super::{FreezeBatchNorm, InputShape};
use crate::limits::{MAX_PARAMETERS, numbers_in_words};
use crate::{Error, Result};

/// An operation with its parameters.
#[derive(Module, Debug)]
pub enum Op {
    /// Convolution.
    Conv(Conv),
    /// Batch norm, with what follows it in the same pass.
    Norm(BatchNorm),
    /// Linear layer.
    Linear(Linear),
    /// Generalised mean over all positions.
    Gem(Gem),
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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FixedKind {
    /// The images.
    Input,
    /// ReLU and its kin on their own.
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
}

/// One step: an operation, its name, and the steps whose results it takes.
#[derive(Clone, Debug)]
pub struct Step {
    /// Its name, without the parameter's.
    pub name: String,
    /// Its operation.
    pub op: Op,
    /// The steps whose results it takes.
    pub inputs: Vec<usize>,
}

/// Shape of a step's result for one image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// Channels, height, width.
    Maps([usize; 3]),
    /// Length.
    Row(usize),
}

/// A network: steps, and which of them are its embeddings.
#[derive(Clone, Debug)]
pub struct Network {
    /// The steps, each after those whose results it takes.
    pub steps: Vec<Step>,
    /// The step of each head.
    pub heads: Vec<usize>,
    /// Length of each head's rows.
    pub dimensions: Vec<usize>,
    /// The last step that takes a step's result; a head's is kept to the end.
    last_use: Vec<usize>,
    /// Whether a step's result is left to the one step that takes it, as part of a chain of convolutions.
    deferred: Vec<bool>,
    /// The most values of maps and rows that an image takes at one time without gradients, the image included.
    values_at_once: usize,
    /// Numbers of the largest result of a step for one image of the size it was made for.
    largest_maps: usize,
}

/// Convolutions, batch norms and what follows, to be computed as one operation.
#[derive(Clone)]
struct Chain<'a> {
    /// The step whose result goes in.
    from: usize,
    x: Tensor<4>,
    layers: Vec<ConvNorm>,
    norms: Vec<&'a BatchNorm>,
    /// The convolution whose batch norm is yet to come.
    conv: Option<&'a Conv>,
    shortcut: Shortcut,
}

impl<'a> Chain<'a> {
    fn new(from: usize, x: Tensor<4>) -> Self {
        Chain { from, x, layers: Vec::new(), norms: Vec::new(), conv: None, shortcut: Shortcut::None }
    }

    fn with_conv(self, conv: &'a Conv) -> Self {
        Chain { conv: Some(conv), ..self }
    }

    fn with_norm(mut self, norm: &'a BatchNorm) -> Self {
        let conv = self.conv.take().expect("a chain's batch norm follows a convolution");
        self.layers.push(norm.after(conv, self.x.device().is_autodiff()));
        self.norms.push(norm);
        self
    }

    /// With the result of step `from` added.
    fn with_shortcut(self, from: usize, maps: Tensor<4>) -> Self {
        let shortcut = if from == self.from { Shortcut::Input } else { Shortcut::Maps(maps) };
        Chain { shortcut, ..self }
    }

    fn with_activation(mut self, activation: Activation) -> Self {
        self.layers.last_mut().expect("a chain has a layer").activation = activation;
        self
    }

    fn run(self) -> Tensor<4> {
        let out = conv_norm_chain(self.x, self.layers, self.shortcut);
        for (norm, moments) in self.norms.into_iter().zip(out.moments) {
            if let Some(moments) = moments {
                norm.update(moments);
            }
        }
        out.output
    }
}

#[derive(Clone)]
enum Value<'a> {
    Maps(Tensor<4>),
    Rows(Tensor<2>),
    Chain(Box<Chain<'a>>),
}

impl<'a> Value<'a> {
    fn maps(self) -> Tensor<4> {
        match self {
            Value::Maps(maps) => maps,
            Value::Chain(chain) => chain.run(),
            Value::Rows(rows) => panic!("feature maps are wanted, rows {:?} are found", rows.dims()),
        }
    }

    fn rows(self) -> Tensor<2> {
        match self {
            Value::Rows(rows) => rows,
            Value::Maps(maps) => panic!("rows are wanted, feature maps {:?} are found", maps.dims()),
            Value::Chain(_) => panic!("rows are wanted, feature maps are found"),
        }
    }

    /// A chain that goes on from this result of step `from`.
    fn chain(self, from: usize) -> Chain<'a> {
        match self {
            Value::Chain(chain) => *chain,
            other => Chain::new(from, other.maps()),
        }
    }

    /// A chain as it is if the next step takes it on, otherwise its result.
    fn of_chain(chain: Chain<'a>, deferred: bool) -> Self {
        if deferred { Value::Chain(Box::new(chain)) } else { Value::Maps(chain.run()) }
    }
}

impl Network {
    /// Embeddings of a batch, one tensor per head, not normalised.
    ///
    /// # Shapes
    ///
    /// `[n, channels, height, width]` to `[n, dimensions]` of each of [`super::NetworkConfig::heads`].
    ///
    /// # Panics
    ///
    /// If the images are not of the channels and, where the network has a layer of fixed size over all
    /// positions, of the size it was made for.
    pub fn forward(&self, images: Tensor<4>) -> Vec<Tensor<2>> {
        self.forward_seeing(images, None).0
    }

    /// As [`forward`](Self::forward), with the last feature maps, `[n, channels, height, width]`: those that
    /// the last pooling over all positions takes, or the rows made of them.
    ///
    /// # Panics
    ///
    /// As [`forward`](Self::forward).
    pub fn forward_with_maps(&self, images: Tensor<4>) -> (Vec<Tensor<2>>, Tensor<4>) {
        let pools = |step: &Step| {
            use FixedKind::{Flatten, GlobalAverage, GlobalMax};
            match &step.op {
                Op::Gem(_) => true,
                Op::Fixed(fixed) => matches!(fixed.kind, GlobalAverage | GlobalMax | Flatten),
                _ => false,
            }
        };
        let last = self.steps.iter().rposition(pools).expect("a network makes rows of its maps");
        let (outputs, maps) = self.forward_seeing(images, Some(self.steps[last].inputs[0]));
        (outputs, maps.expect("the maps come before the rows"))
    }

    /// The most bytes that the maps of an image take at one time in a pass without gradients, the image included.
    /// Memory grows with the number of images in a batch by as much.
    pub fn bytes_per_image(&self) -> usize {
        self.values_at_once * size_of::<f32>()
    }

    /// The heads' results, and the maps that step `seen` gives.
    fn forward_seeing(&self, images: Tensor<4>, seen: Option<usize>) -> (Vec<Tensor<2>>, Option<Tensor<4>>) {
        let mut values: Vec<Option<Value<'_>>> = vec![None; self.steps.len()];
        let mut maps = None;
        // Chains keep to f32; layers on their own convert their parameters.
        let chains = images.dtype() == DType::F32;
        for (i, step) in self.steps.iter().enumerate() {
            let mut inputs = step.inputs.iter().map(|&j| {
                let value = if self.last_use[j] == i { values[j].take() } else { values[j].clone() };
                value.expect("a step takes the results of earlier steps")
            });
            let mut one = || inputs.next().expect("the builder gives every operation its inputs");
            let deferred = chains && self.deferred[i];
            values[i] = Some(match &step.op {
                Op::Conv(conv) if deferred => {
                    Value::of_chain(one().chain(step.inputs[0]).with_conv(conv), deferred)
                }
                Op::Conv(conv) => Value::Maps(conv.forward(one().maps())),
                Op::Norm(norm) => match one() {
                    Value::Chain(chain) => Value::of_chain(chain.with_norm(norm), deferred),
                    Value::Maps(maps) => Value::Maps(norm.forward(maps)),
                    Value::Rows(rows) => {
                        let [n, c] = rows.dims();
                        Value::Rows(norm.forward(rows.reshape([n, c, 1, 1])).reshape([n, c]))
                    }
                },
                Op::Linear(linear) => Value::Rows(linear.forward(one().rows())),
                Op::Gem(gem) => Value::Rows(gem.forward(one().maps())),
                Op::Fixed(fixed) => match fixed.kind {
                    FixedKind::Input => Value::Maps(images.clone()),
                    FixedKind::Activation(kind) => match one() {
                        Value::Chain(chain) => Value::of_chain(chain.with_activation(kind), deferred),
                        Value::Maps(maps) => Value::Maps(kind.apply(maps)),
                        Value::Rows(rows) => Value::Rows(kind.apply(rows)),
                    },
                    FixedKind::MaxPool(pool) => Value::Maps(pool.max(one().maps())),
                    FixedKind::AveragePool(pool) => Value::Maps(pool.average(one().maps())),
                    FixedKind::GlobalAverage => {
                        Value::Rows(gallerist_kernels::global_average_pool(at_least_f32(one().maps())))
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
                        (x, y) => Value::Maps(x.maps() + y.maps()),
                    },
                    FixedKind::Concat => {
                        Value::Maps(gallerist_kernels::concat_channels(inputs.map(Value::maps).collect()))
                    }
                    FixedKind::Flatten => Value::Rows(one().maps().flatten(1, 3)),
                },
            });
            if seen == Some(i) {
                maps = values[i].clone().map(Value::maps);
            }
        }
        let head = |&i: &usize| at_least_f32(values[i].clone().expect("heads are kept").rows());
        let heads = self.heads.iter().map(head);
        (heads.collect(), maps)
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

    /// The network whose embeddings are what its linear heads are given, in the order of the heads.
    ///
    /// `None` where a head is not a linear layer.
    pub fn features(&self) -> Option<Self> {
        let mut features = self.clone();
        for (head, dimensions) in features.heads.iter_mut().zip(&mut features.dimensions) {
            let Step { op: Op::Linear(linear), inputs, .. } = &self.steps[*head] else { return None };
            (*head, *dimensions) = (inputs[0], linear.weight.dims()[0]);
        }
        features.heads.iter().for_each(|&step| features.last_use[step] = usize::MAX);
        Some(features)
    }

    /// Weight, `[inputs, outputs]`, and bias of a linear head; a bias that it lacks is 0.
    pub fn head(&self, head: usize) -> (Vec<f32>, Vec<f32>) {
        let Op::Linear(linear) = &self.steps[self.heads[head]].op else {
            panic!("head {head} is not linear")
        };
        let values = |data: TensorData| data.try_into_vec::<f32>().expect("weights are f32");
        let bias = linear.bias.as_ref().map(|bias| values(bias.val().into_data()));
        (values(linear.weight.val().into_data()), bias.unwrap_or_else(|| vec![0.0; self.dimensions[head]]))
    }

    /// The network with another weight, `[inputs, outputs]`, and bias of a linear head; a head without a
    /// bias leaves that out.
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

    /// Whether a parameter may be absent from weights made for another task: an embedding head, or an
    /// auxiliary classifier on the way to one.
    pub fn may_be_new(path: &str) -> bool {
        Self::is_head(path) || path.starts_with("auxiliary.")
    }

    /// Every tensor: its layer's step, its name within the layer, its shape.
    pub fn slots(&self) -> Vec<Slot<'_>> {
        let mut slots = Vec::new();
        for (step, Step { name, op, .. }) in self.steps.iter().enumerate() {
            let mut slot = |field: &'static str, shape: Vec<usize>| {
                slots.push(Slot { step, layer: name, field, shape, linear: matches!(op, Op::Linear(_)) });
            };
            match op {
                Op::Conv(Conv { weight, bias, .. }) => {
                    slot("weight", weight.dims().to_vec());
                    bias.iter().for_each(|bias| slot("bias", bias.dims().to_vec()));
                }
                Op::Linear(Linear { weight, bias }) => {
                    slot("weight", weight.dims().to_vec());
                    bias.iter().for_each(|bias| slot("bias", bias.dims().to_vec()));
                }
                Op::Norm(norm) => {
                    for field in ["gamma", "beta", "running_mean", "running_var"] {
                        slot(field, norm.gamma.dims().to_vec());
                    }
                }
                Op::Gem(gem) => slot("p", gem.p.dims().to_vec()),
                Op::Fixed(_) => {}
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
    /// Whether the layer is linear.
    pub linear: bool,
}

impl Slot<'_> {
    /// Its name in the network.
    pub fn path(&self) -> String {
        format!("{}.{}", self.layer, self.field)
    }
}

/// What a traversal is told that it enters.
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
            visitor.enter_module(&step.name, CONTAINER);
            step.op.visit(visitor);
            visitor.exit_module(&step.name, CONTAINER);
        }
    }

    fn map<M: ModuleMapper>(self, mapper: &mut M) -> Self {
        self.map_ops(|name, op| {
            mapper.enter_module(name, CONTAINER);
            let op = op.map(mapper);
            mapper.exit_module(name, CONTAINER);
            op
        })
    }
}

/// The result of a step in a description.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node(usize);

/// Sizes of a convolution.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kernel {
    pub(super) size: usize,
    pub(super) stride: usize,
    pub(super) padding: usize,
    pub(super) groups: usize,
    pub(super) bias: bool,
}

impl Kernel {
    /// Stride 1, padded to keep the size, without bias.
    pub(super) fn new(size: usize) -> Self {
        Kernel { size, stride: 1, padding: size / 2, groups: 1, bias: false }
    }

    pub(super) fn stride(self, stride: usize) -> Self {
        Kernel { stride, ..self }
    }

    pub(super) fn groups(self, groups: usize) -> Self {
        Kernel { groups, ..self }
    }

    pub(super) fn with_bias(self) -> Self {
        Kernel { bias: true, ..self }
    }
}

/// Puts a network together.
pub(super) struct Builder<'a> {
    init: Init<'a>,
    steps: Vec<Step>,
    shapes: Vec<Shape>,
    /// Share of the new batch in the running statistics of batch norm.
    momentum: f64,
    /// Batch norm's constant under the root.
    epsilon: f64,
    freeze: FreezeBatchNorm,
    /// Why the images' size does not fit.
    misfit: Option<String>,
    /// Parameters so far. Above the limit no memory is taken for further ones, and `finish` refuses the network.
    parameters: u128,
    /// The layer with which the parameters became too many, and its own.
    too_large: Option<(String, u128)>,
}

impl<'a> Builder<'a> {
    pub(super) fn new(init: Init<'a>, input: InputShape) -> (Self, Node) {
        let mut builder = Builder {
            init,
            steps: Vec::new(),
            shapes: Vec::new(),
            momentum: 0.1,
            epsilon: 1e-5,
            freeze: FreezeBatchNorm::None,
            misfit: None,
            parameters: 0,
            too_large: None,
        };
        let shape = Shape::Maps([input.channels, input.height, input.width]);
        let images = builder.fixed("images", FixedKind::Input, &[], shape);
        (builder, images)
    }

    /// Sets what the batch norms made from here on have in common.
    pub(super) fn batch_norm(&mut self, momentum: f64, epsilon: f64, freeze: FreezeBatchNorm) {
        (self.momentum, self.epsilon, self.freeze) = (momentum, epsilon, freeze);
    }

    /// Whether a layer with so many parameters may be made.
    fn admits(&mut self, name: &str, parameters: &[usize]) -> bool {
        let own = parameters.iter().fold(1u128, |product, &side| product.saturating_mul(side as u128));
        self.parameters = self.parameters.saturating_add(own);
        let admitted = self.parameters <= MAX_PARAMETERS as u128;
        if !admitted {
            self.too_large.get_or_insert_with(|| (name.into(), own));
        }
        admitted
    }

    fn push(&mut self, name: &str, op: Op, inputs: &[Node], shape: Shape) -> Node {
        self.steps.push(Step { name: name.into(), op, inputs: inputs.iter().map(|node| node.0).collect() });
        self.shapes.push(shape);
        Node(self.steps.len() - 1)
    }

    fn fixed(&mut self, name: &str, kind: FixedKind, inputs: &[Node], shape: Shape) -> Node {
        self.push(name, Op::Fixed(Fixed { kind }), inputs, shape)
    }

    fn maps(&self, x: Node) -> [usize; 3] {
        match self.shapes[x.0] {
            Shape::Maps(shape) => shape,
            Shape::Row(length) => panic!("feature maps are wanted, rows of {length} are found"),
        }
    }

    fn row(&self, x: Node) -> usize {
        match self.shapes[x.0] {
            Shape::Row(length) => length,
            Shape::Maps(shape) => panic!("rows are wanted, feature maps {shape:?} are found"),
        }
    }

    /// Channels of feature maps.
    pub(super) fn channels(&self, x: Node) -> usize {
        self.maps(x)[0]
    }

    /// Height and width of feature maps.
    pub(super) fn area(&self, x: Node) -> [usize; 2] {
        let [_, height, width] = self.maps(x);
        [height, width]
    }

    /// One side after windows of `size` and `stride`; 1 and a note where no window fits.
    fn side(&mut self, name: &str, side: usize, [size, stride, padding]: [usize; 3], ceil: bool) -> usize {
        let Some(room) = (side + 2 * padding).checked_sub(size) else {
            self.misfit.get_or_insert_with(|| {
                format!("large enough: {side} pixels are left before the {size} of {name}")
            });
            return 1;
        };
        match ceil {
            false => room / stride + 1,
            // A window that would start in the padding behind the map is left out.
            true => {
                let count = room.div_ceil(stride) + 1;
                count - usize::from((count - 1) * stride >= side + padding)
            }
        }
    }

    /// Convolution to `out` channels.
    pub(super) fn conv(&mut self, name: &str, x: Node, out: usize, kernel: Kernel) -> Node {
        let [channels, height, width] = self.maps(x);
        let Kernel { size, stride, padding, .. } = kernel;
        let sides = [height, width].map(|side| self.side(name, side, [size, stride, padding], false));
        // What is refused is described on, with a layer of one channel in its place.
        let (sides_of, groups) = match self.admits(name, &[channels / kernel.groups.max(1), out, size, size])
        {
            true => ([channels, out], kernel.groups),
            false => ([1, 1], 1),
        };
        let conv =
            Conv::new(&self.init, name, sides_of, size, groups).with_stride(stride).with_padding(padding);
        let conv = if kernel.bias { conv.with_bias(&self.init) } else { conv };
        self.push(name, Op::Conv(conv), &[x], Shape::Maps([out, sides[0], sides[1]]))
    }

    /// Batch norm, then an activation.
    pub(super) fn norm(&mut self, name: &str, x: Node, then: Activation) -> Node {
        let shape = self.shapes[x.0];
        let channels = match shape {
            Shape::Maps([channels, ..]) => channels,
            Shape::Row(length) => length,
        };
        // New layers have no statistics yet that could be kept.
        let freeze = if Network::is_head(name) { FreezeBatchNorm::None } else { self.freeze };
        let made = if self.admits(name, &[4, channels]) { channels } else { 1 };
        let norm = BatchNorm::new(&self.init, made, self.momentum)
            .with_epsilon(self.epsilon)
            .with_activation(then)
            .frozen(freeze);
        self.push(name, Op::Norm(norm), &[x], shape)
    }

    /// An activation on its own.
    pub(super) fn activation(&mut self, x: Node, kind: Activation) -> Node {
        self.fixed("", FixedKind::Activation(kind), &[x], self.shapes[x.0])
    }

    fn windows(&mut self, name: &str, x: Node, pool: Pool) -> Shape {
        let [channels, height, width] = self.maps(x);
        let Pool { size, stride, padding, ceil } = pool;
        let sides = [height, width].map(|side| self.side(name, side, [size, stride, padding], ceil));
        Shape::Maps([channels, sides[0], sides[1]])
    }

    /// Maximum over windows. Directly after batch norm with ReLU, 2 x 2 windows become part of its pass.
    pub(super) fn max_pool(&mut self, x: Node, pool: Pool) -> Node {
        let shape = self.windows("a max pool", x, pool);
        let last = x.0 + 1 == self.steps.len();
        if let Op::Norm(norm) = &mut self.steps[x.0].op
            && last
            && pool == Pool::new(2, 2)
            && norm.fuse_max_pool2()
        {
            self.shapes[x.0] = shape;
            return x;
        }
        self.fixed("", FixedKind::MaxPool(pool), &[x], shape)
    }

    /// Mean over windows, zeros of the padding included.
    pub(super) fn average_pool(&mut self, x: Node, pool: Pool) -> Node {
        let shape = self.windows("an average pool", x, pool);
        self.fixed("", FixedKind::AveragePool(pool), &[x], shape)
    }

    /// Mean over all positions.
    pub(super) fn global_average(&mut self, x: Node) -> Node {
        self.fixed("", FixedKind::GlobalAverage, &[x], Shape::Row(self.channels(x)))
    }

    /// Maximum over all positions.
    pub(super) fn global_max(&mut self, x: Node) -> Node {
        self.fixed("", FixedKind::GlobalMax, &[x], Shape::Row(self.channels(x)))
    }

    /// Generalised mean over all positions.
    pub(super) fn gem(&mut self, name: &str, x: Node) -> Node {
        let gem = Gem::new(&self.init);
        self.push(name, Op::Gem(gem), &[x], Shape::Row(self.channels(x)))
    }

    /// Sum of two feature maps.
    pub(super) fn add(&mut self, x: Node, y: Node) -> Node {
        let shapes = [self.maps(x), self.maps(y)];
        assert_eq!(shapes[0], shapes[1], "shapes of the two terms of a sum");
        self.fixed("", FixedKind::Add, &[x, y], Shape::Maps(shapes[0]))
    }

    /// Feature maps one after the other along the channels.
    pub(super) fn concat(&mut self, parts: &[Node]) -> Node {
        let shapes: Vec<[usize; 3]> = parts.iter().map(|&part| self.maps(part)).collect();
        let [_, height, width] = shapes[0];
        if let Some([_, h, w]) = shapes.iter().find(|s| s[1..] != [height, width]) {
            self.misfit.get_or_insert_with(|| {
                format!(
                    "one that all branches of a block halve alike, such as 224 or 227: there are {height} x {width} \
                     and {h} x {w}"
                )
            });
        }
        let channels = shapes.iter().map(|s| s[0]).sum();
        self.fixed("", FixedKind::Concat, parts, Shape::Maps([channels, height, width]))
    }

    /// Feature maps as rows.
    pub(super) fn flatten(&mut self, x: Node) -> Node {
        let length = self.maps(x).iter().fold(1usize, |product, &side| product.saturating_mul(side));
        self.fixed("", FixedKind::Flatten, &[x], Shape::Row(length))
    }

    /// Linear layer.
    pub(super) fn linear(&mut self, name: &str, x: Node, outputs: usize, bias: bool) -> Node {
        let inputs = self.row(x);
        let made = if self.admits(name, &[inputs, outputs]) { [inputs, outputs] } else { [1, 1] };
        let linear = Linear::new(&self.init, name, made[0], made[1], bias);
        self.push(name, Op::Linear(linear), &[x], Shape::Row(outputs))
    }

    /// The network whose embeddings are `heads`.
    ///
    /// # Errors
    ///
    /// [`Error::Value`] where the images are too small for the network, or it has too many parameters.
    pub(super) fn finish(self, heads: &[Node], input: InputShape) -> Result<Network> {
        if let Some((name, own)) = self.too_large {
            return Err(Error::Value {
                key: "network".into(),
                wanted: format!("of at most {} parameters", numbers_in_words(MAX_PARAMETERS as u128)),
                found: format!(
                    "of {}: `{name}` alone has {}",
                    numbers_in_words(self.parameters),
                    numbers_in_words(own)
                ),
            });
        }
        if let Some(wanted) = self.misfit {
            return Err(Error::Value {
                key: "image.size".into(),
                wanted,
                found: format!("{} x {}", input.height, input.width),
            });
        }
        let mut last_use = vec![0; self.steps.len()];
        for (i, step) in self.steps.iter().enumerate() {
            step.inputs.iter().for_each(|&j| last_use[j] = i);
        }
        let dimensions = heads.iter().map(|&head| self.row(head)).collect();
        let heads: Vec<usize> = heads.iter().map(|node| node.0).collect();
        heads.iter().for_each(|&i| last_use[i] = usize::MAX);
        let deferred = deferred(&self.steps);
        let values_at_once = values_at_once(&self.steps, &self.shapes, &last_use, &deferred);
        let numbers = |shape: &Shape| match shape {
            Shape::Maps(sides) => sides.iter().fold(1usize, |product, &side| product.saturating_mul(side)),
            Shape::Row(length) => *length,
        };
        let largest_maps = self.shapes.iter().map(numbers).max().unwrap_or(0);
        Ok(Network { steps: self.steps, heads, dimensions, last_use, deferred, values_at_once, largest_maps })
    }
}

/// What a step's result takes in memory.
#[derive(Clone)]
enum Held {
    /// Its own maps or rows.
    Own,
    /// What goes into a chain that has not run: the steps whose maps it reads, and the convolutions' sizes.
    Chain { reads: Vec<usize>, convolutions: Vec<usize> },
}

/// The most values that an image takes at one time without gradients: results that are needed later, what a step
/// reads and what it writes. Of a chain the maps of one convolution and of the one before it are there at a time, then
/// those of the last and the result.
fn values_at_once(steps: &[Step], shapes: &[Shape], last_use: &[usize], deferred: &[bool]) -> usize {
    let size = |i: usize| match shapes[i] {
        Shape::Maps(shape) => shape.iter().product::<usize>(),
        Shape::Row(length) => length,
    };
    let mut held: Vec<Held> = Vec::with_capacity(steps.len());
    let mut most = 0;
    for (i, step) in steps.iter().enumerate() {
        // The images stay to the end.
        let mut alive = vec![false; i];
        for j in (0..i).filter(|&j| j == 0 || last_use[j] >= i) {
            match &held[j] {
                Held::Own => alive[j] = true,
                Held::Chain { reads, .. } => reads.iter().for_each(|&read| alive[read] = true),
            }
        }
        let before: usize = (0..i).filter(|&j| alive[j]).map(size).sum();
        let chain = step.inputs.iter().find_map(|&j| match &held[j] {
            Held::Chain { reads, convolutions } => Some((j, reads.clone(), convolutions.clone())),
            Held::Own => None,
        });
        let others = |of: Option<usize>| step.inputs.iter().copied().filter(move |&j| Some(j) != of);
        let (mut reads, mut convolutions) = match chain {
            Some((of, mut reads, convolutions)) => {
                reads.extend(others(Some(of)).filter(|&j| matches!(held[j], Held::Own)));
                (reads, convolutions)
            }
            None => (others(None).collect(), Vec::new()),
        };
        if deferred[i] {
            if matches!(step.op, Op::Conv(_)) {
                convolutions.push(size(i));
            }
            reads.sort_unstable();
            reads.dedup();
            held.push(Held::Chain { reads, convolutions });
        } else {
            convolutions.push(size(i));
            let of_step = convolutions.windows(2).map(|pair| pair[0] + pair[1]).max();
            most = most.max(before + of_step.unwrap_or(size(i)));
            held.push(Held::Own);
        }
    }
    most
}

/// Which results are left to the step that takes them: those inside a chain of [convolution, batch norm with
/// activation] and, behind its last batch norm, a sum and an activation.
fn deferred(steps: &[Step]) -> Vec<bool> {
    let mut users = vec![Vec::new(); steps.len()];
    for (i, step) in steps.iter().enumerate() {
        step.inputs.iter().for_each(|&j| users[j].push(i));
    }
    let only_user = |i: usize| if let [user] = users[i][..] { Some(user) } else { None };
    let conv_before_norm = |i: usize| {
        let norm = |j: usize| matches!(&steps[j].op, Op::Norm(norm) if !norm.max_pool2);
        matches!(&steps[i].op, Op::Conv(conv) if conv.bias.is_none()) && only_user(i).is_some_and(norm)
    };
    let norm_behind_conv = |i: usize| {
        let norm = matches!(&steps[i].op, Op::Norm(norm) if !norm.max_pool2);
        norm && conv_before_norm(steps[i].inputs[0])
    };
    let fixed = |i: usize, wanted: fn(&FixedKind) -> bool| matches!(&steps[i].op, Op::Fixed(fixed) if wanted(&fixed.kind));
    let term_of_sum = |i: usize| {
        let plain = matches!(&steps[i].op, Op::Norm(norm) if norm.then == Activation::None);
        let sum = |j: usize| fixed(j, |kind| *kind == FixedKind::Add);
        plain && norm_behind_conv(i) && only_user(i).is_some_and(sum)
    };
    let sum_of_chain = |i: usize| {
        let activation = |j: usize| fixed(j, |kind| matches!(kind, FixedKind::Activation(_)));
        fixed(i, |kind| *kind == FixedKind::Add)
            && steps[i].inputs.iter().any(|&j| term_of_sum(j))
            && only_user(i).is_some_and(activation)
    };
    let inside = |i: usize| norm_behind_conv(i) && only_user(i).is_some_and(conv_before_norm);
    (0..steps.len()).map(|i| conv_before_norm(i) || inside(i) || term_of_sum(i) || sum_of_chain(i)).collect()
}

impl Pool {
    fn max(self, x: Tensor<4>) -> Tensor<4> {
        gallerist_kernels::max_pool2d(x, self.max_options())
    }

    fn average(self, x: Tensor<4>) -> Tensor<4> {
        gallerist_kernels::avg_pool2d(x, self.average_options())
    }
}
