//! A network: its steps, and how they are computed.

use burn::module::{Devices, Module, ModuleMapper, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Tensor, TensorData};

use super::chain::Value;
use crate::layers::{Activation, BatchNorm, Conv, Gem, Linear, Pool, at_least_f32};

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
        self.forward_seeing(images, None).0
    }

    /// As [`forward`](Self::forward), with the last feature maps, `[n, channels, height, width]`: those that
    /// the last pooling over all positions uses, or the rows made of them.
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

    /// The results of the heads, and the maps of step `seen`.
    fn forward_seeing(&self, images: Tensor<4>, seen: Option<usize>) -> (Vec<Tensor<2>>, Option<Tensor<4>>) {
        let mut values: Vec<Option<Value<'_>>> = vec![None; self.steps.len()];
        let mut maps = None;
        // Chains use f32; single layers convert their parameters.
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

    /// The network that returns the inputs of the linear heads as its embeddings, in the order of the heads.
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

impl Pool {
    fn max(self, x: Tensor<4>) -> Tensor<4> {
        gallerist_kernels::max_pool2d(x, self.max_options())
    }

    fn average(self, x: Tensor<4>) -> Tensor<4> {
        gallerist_kernels::avg_pool2d(x, self.average_options())
    }
}
