//! The kernels as operations of the engine: their implementation for the CPU backend and their
//! place in its gradient graph.

use std::sync::Arc;

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{
    Autodiff, Backend, BackendTensor, Dispatch, DispatchAutodiffContext, DispatchTensor, DispatchTensorKind,
    ExtensionType, Flex, backend_extension,
};
use burn::tensor::ops::{AvgPoolOptions, ConvOptions, MaxPoolOptions};

use crate::buffer::Buffer;
use crate::chain::{Chain, LayerOptions, LayerValues, Shortcut, Wanted};
use crate::concat;
use crate::conv::{self, Geometry, Source};
use crate::nhwc::{Contiguous, Maps, Values, contiguous_tensor, tensor};
use crate::norm::{self, Activation, Affine, Winners};
use crate::pool::{self, Means, Windows};
use crate::shared;

/// Most layers of a chain.
pub(crate) const LONGEST_CHAIN: usize = 4;

/// Most parts of a concatenation.
pub(crate) const MOST_PARTS: usize = 6;

/// What follows the normalisation in the same operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// An activation.
    Activation(Activation),
    /// ReLU, then the maximum over 2 x 2 windows with stride 2.
    ReluMaxPool2,
}

/// Tensors of an operation that takes any number of them.
pub(crate) struct Tensors<B: Backend>(pub(crate) Vec<FloatTensor<B>>);

impl<B: Backend> ExtensionType<B> for Tensors<B> {
    type Target = Tensors<Dispatch>;

    fn map_to_dispatch<F>(self, map_kind: F, autodiff: DispatchAutodiffContext) -> Self::Target
    where
        F: Fn(BackendTensor<B>) -> DispatchTensorKind,
    {
        let wrap = |tensor| DispatchTensor { kind: map_kind(BackendTensor::Float(tensor)), autodiff };
        Tensors(self.0.into_iter().map(wrap).collect())
    }

    fn map_from_dispatch<F>(target: Self::Target, unwrap_kind: F) -> Self
    where
        F: Fn(DispatchTensor) -> BackendTensor<B>,
    {
        Tensors(target.0.into_iter().map(|tensor| unwrap_kind(tensor).float()).collect())
    }

    fn routing_tensor(target: &Self::Target) -> Option<&DispatchTensor> {
        target.0.first()
    }

    fn routing_float_tensor(target: &Self::Target) -> Option<&DispatchTensor> {
        target.0.first()
    }

    fn autodiff_context(target: &Self::Target) -> DispatchAutodiffContext {
        let none = DispatchAutodiffContext::Disabled;
        target.0.iter().fold(none, |context, tensor| context.merge(tensor.autodiff))
    }
}

/// The operations. The doors of this crate call them only where they can run: `f32` tensors of rank
/// 4 on the CPU backend, sizes that fit together.
#[backend_extension(Autodiff, Flex)]
pub(crate) trait KernelOps: Backend {
    /// Convolution without bias.
    fn conv2d_kernel(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        options: ConvOptions<2>,
    ) -> FloatTensor<Self>;

    /// Convolution with bias.
    fn conv2d_bias_kernel(
        x: FloatTensor<Self>,
        weight: FloatTensor<Self>,
        bias: FloatTensor<Self>,
        options: ConvOptions<2>,
    ) -> FloatTensor<Self>;

    /// Batch normalisation by the statistics of the batch: result, mean, biased variance.
    fn batch_norm_train_kernel(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        epsilon: f64,
        tail: Tail,
    ) -> (FloatTensor<Self>, FloatTensor<Self>, FloatTensor<Self>);

    /// Maximum over windows.
    fn max_pool2d_kernel(x: FloatTensor<Self>, options: MaxPoolOptions<2>) -> FloatTensor<Self>;

    /// Mean over windows.
    fn avg_pool2d_kernel(x: FloatTensor<Self>, options: AvgPoolOptions<2>) -> FloatTensor<Self>;

    /// 2 to [`MOST_PARTS`] tensors one after the other along the channels.
    fn concat_kernel(#[extension_type] parts: Tensors<Self>) -> FloatTensor<Self>;

    /// Mean over all positions, `[batch, channels]`.
    fn global_average_kernel(x: FloatTensor<Self>) -> FloatTensor<Self>;

    /// A chain of convolutions with batch norm ([`crate::chain`]). Its tensors are the input, the shortcut if
    /// it is [`Shortcut::Other`], and for every layer weight, gamma, beta and, if they are given, mean and
    /// variance. It returns the result, and mean and variance of every layer that takes them of the batch.
    fn chain_kernel(
        #[extension_type] tensors: Tensors<Self>,
        layers: Vec<LayerOptions>,
        shortcut: Shortcut,
    ) -> Vec<FloatTensor<Self>>;

    /// Batch normalisation by given statistics, then an activation.
    fn batch_norm_fixed_kernel(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        mean: FloatTensor<Self>,
        variance: FloatTensor<Self>,
        epsilon: f64,
        activation: Activation,
    ) -> FloatTensor<Self>;
}

fn geometry(x: &FlexTensor, weight: &FlexTensor, options: &ConvOptions<2>) -> Geometry {
    Geometry::new(Maps::of(x), weight.layout().shape().dims(), options)
        .expect("the door of the crate forwards sizes that do not fit")
}

fn conv2d(
    x: &FlexTensor,
    weight: &FlexTensor,
    bias: Option<&FlexTensor>,
    options: &ConvOptions<2>,
) -> FlexTensor {
    let sizes = geometry(x, weight, options);
    let bias = bias.map(Contiguous::of);
    let x = Values::of(x);
    let (y, _) =
        conv::forward::<()>(&Source::Values(&x), &Contiguous::of(weight), bias.as_deref(), &sizes, None);
    tensor(y, sizes.output)
}

/// A parameter gradient as a tensor of rank 1.
fn vector(values: &[f32]) -> FlexTensor {
    let mut buffer = Buffer::new(values.len());
    buffer.copy_from_slice(values);
    contiguous_tensor(buffer, [values.len()])
}

/// Result of a batch normalisation and what its backward pass needs.
struct Normalised {
    y: FlexTensor,
    mean: FlexTensor,
    variance: FlexTensor,
    affine: Affine,
    winners: Option<Winners>,
}

fn batch_norm_train(
    x: &FlexTensor,
    gamma: &FlexTensor,
    beta: &FlexTensor,
    epsilon: f64,
    tail: Tail,
) -> Normalised {
    let maps = Maps::of(x);
    let values = Values::of(x);
    let moments = norm::moments(&values, maps.channels);
    let affine =
        Affine::new(&Contiguous::of(gamma), &Contiguous::of(beta), &moments.mean, &moments.variance, epsilon);
    let (y, winners) = match tail {
        Tail::Activation(activation) => (tensor(norm::apply(&values, &affine, None, activation), maps), None),
        Tail::ReluMaxPool2 => {
            let (y, winners) = norm::pool_forward(&values, maps, &affine);
            (tensor(y, norm::pooled(maps)), Some(winners))
        }
    };
    Normalised { y, mean: vector(&moments.mean), variance: vector(&moments.variance), affine, winners }
}

impl KernelOps for Flex {
    fn conv2d_kernel(x: FlexTensor, weight: FlexTensor, options: ConvOptions<2>) -> FlexTensor {
        conv2d(&x, &weight, None, &options)
    }

    fn conv2d_bias_kernel(
        x: FlexTensor,
        weight: FlexTensor,
        bias: FlexTensor,
        options: ConvOptions<2>,
    ) -> FlexTensor {
        conv2d(&x, &weight, Some(&bias), &options)
    }

    fn batch_norm_train_kernel(
        x: FlexTensor,
        gamma: FlexTensor,
        beta: FlexTensor,
        epsilon: f64,
        tail: Tail,
    ) -> (FlexTensor, FlexTensor, FlexTensor) {
        let result = batch_norm_train(&x, &gamma, &beta, epsilon, tail);
        (result.y, result.mean, result.variance)
    }

    fn max_pool2d_kernel(x: FlexTensor, options: MaxPoolOptions<2>) -> FlexTensor {
        max_pool2d(&x, &options).0
    }

    fn avg_pool2d_kernel(x: FlexTensor, options: AvgPoolOptions<2>) -> FlexTensor {
        avg_pool2d(&x, &options).0
    }

    fn concat_kernel(parts: Tensors<Flex>) -> FlexTensor {
        concat(&parts.0.iter().collect::<Vec<_>>())
    }

    fn global_average_kernel(x: FlexTensor) -> FlexTensor {
        global_average(&x)
    }

    fn chain_kernel(
        tensors: Tensors<Flex>,
        layers: Vec<LayerOptions>,
        shortcut: Shortcut,
    ) -> Vec<FlexTensor> {
        let (y, moments, _) = chain(&tensors.0, layers, shortcut, false);
        std::iter::once(y).chain(moments).collect()
    }

    fn batch_norm_fixed_kernel(
        x: FlexTensor,
        gamma: FlexTensor,
        beta: FlexTensor,
        mean: FlexTensor,
        variance: FlexTensor,
        epsilon: f64,
        activation: Activation,
    ) -> FlexTensor {
        let affine = fixed_affine(&gamma, &beta, &mean, &variance, epsilon);
        tensor(norm::apply(&Values::of(&x), &affine, None, activation), Maps::of(&x))
    }
}

/// What the backward pass of a chain needs.
#[derive(Clone)]
struct ChainState {
    chain: Arc<Chain>,
    x: Arc<Values>,
    /// The result, if [`Chain::mask`] needs it.
    y: Option<FlexTensor>,
    input: Maps,
    shortcut: Shortcut,
    weight_shapes: Vec<[usize; 4]>,
}

impl std::fmt::Debug for ChainState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChainState").field("weight_shapes", &self.weight_shapes).finish_non_exhaustive()
    }
}

/// Tensors of a layer: weight, gamma, beta, and mean and variance if they are given.
fn tensors_of(layer: &LayerOptions) -> usize {
    if layer.batch_statistics { 3 } else { 5 }
}

/// Result, statistics of the batch, and what the backward pass needs, which is there only with `keep`.
fn chain(
    tensors: &[FlexTensor],
    layers: Vec<LayerOptions>,
    shortcut: Shortcut,
    keep: bool,
) -> (FlexTensor, Vec<FlexTensor>, ChainState) {
    let input = Maps::of(&tensors[0]);
    let x = Values::of(&tensors[0]);
    let (other, mut rest) = match shortcut {
        Shortcut::Other => (Some(Values::of(&tensors[1])), &tensors[2..]),
        Shortcut::None | Shortcut::Input => (None, &tensors[1..]),
    };
    let mut weight_shapes = Vec::with_capacity(layers.len());
    let mut all = Vec::with_capacity(layers.len());
    for options in layers {
        let (of_layer, others) = rest.split_at(tensors_of(&options));
        rest = others;
        let weight_shape = of_layer[0].layout().shape().dims::<4>();
        weight_shapes.push(weight_shape);
        let values = LayerValues {
            weight: Contiguous::of(&of_layer[0]),
            weight_shape,
            gamma: Contiguous::of(&of_layer[1]),
            beta: Contiguous::of(&of_layer[2]),
            statistics: (!options.batch_statistics)
                .then(|| [Contiguous::of(&of_layer[3]), Contiguous::of(&of_layer[4])]),
        };
        all.push((options, values));
    }
    let (y, moments, chain) = Chain::forward(&x, input, all, shortcut, other.as_deref(), keep);
    let y = tensor(y, chain.output());
    let moments = moments.iter().flatten().flat_map(|of| [vector(&of.mean), vector(&of.variance)]);
    let moments = moments.collect();
    let of_state = chain.masks().then(|| y.clone());
    let state =
        ChainState { chain: Arc::new(chain), x: Arc::new(x), y: of_state, input, shortcut, weight_shapes };
    (y, moments, state)
}

fn max_pool2d(x: &FlexTensor, options: &MaxPoolOptions<2>) -> (FlexTensor, Vec<u8>, Windows) {
    let windows = Windows::of_max(Maps::of(x), options)
        .expect("the door of the crate forwards what the kernels do not cover");
    let (y, place) = pool::max_forward(&Values::of(x), &windows);
    (tensor(y, windows.output), place, windows)
}

fn avg_pool2d(x: &FlexTensor, options: &AvgPoolOptions<2>) -> (FlexTensor, Means) {
    let means = Means::new(Maps::of(x), options)
        .expect("the door of the crate forwards what the kernels do not cover");
    let y = pool::window_mean_forward(&Values::of(x), &means);
    (tensor(y, means.output), means)
}

fn concat(parts: &[&FlexTensor]) -> FlexTensor {
    let values: Vec<Values> = parts.iter().map(|part| Values::of(part)).collect();
    let channels = || parts.iter().map(|part| Maps::of(part).channels);
    let first = Maps::of(parts[0]);
    let slices: Vec<(&[f32], usize)> = values.iter().map(|values| &**values).zip(channels()).collect();
    tensor(concat::forward(&slices, first.pixels()), Maps { channels: channels().sum(), ..first })
}

fn global_average(x: &FlexTensor) -> FlexTensor {
    let maps = Maps::of(x);
    let mean = pool::mean_forward(&Values::of(x), maps);
    contiguous_tensor(mean, [maps.images, maps.channels])
}

fn fixed_affine(
    gamma: &FlexTensor,
    beta: &FlexTensor,
    mean: &FlexTensor,
    variance: &FlexTensor,
    epsilon: f64,
) -> Affine {
    Affine::new(
        &Contiguous::of(gamma),
        &Contiguous::of(beta),
        &Contiguous::of(mean),
        &Contiguous::of(variance),
        epsilon,
    )
}

type Tracked = FloatTensor<Autodiff<Flex>>;

/// Adds a gradient of maps to the sum for a parent. A macro, because the engine does not export a node's type.
macro_rules! add_maps {
    ($gradients:expr, $parent:expr, $dx:expr) => {
        if let (Some(node), Some(dx)) = ($parent.as_ref(), $dx) {
            let consume = |gradients: &mut Gradients| gradients.consume::<Flex>(node);
            shared::add($gradients, node.id, node.parents.is_empty(), consume, dx);
        }
    };
}

#[derive(Debug)]
struct Conv2d;

#[derive(Debug)]
struct Conv2dWithBias;

/// Nodes whose outputs the gradients of a convolution need, and its options.
type ConvState = (NodeId, NodeId, ConvOptions<2>);

impl Backward<Flex, 2> for Conv2d {
    type State = ConvState;

    fn backward(self, ops: Ops<ConvState, 2>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let dy = gradients.consume::<Flex>(&ops.node);
        let [x, weight] = ops.parents.each_ref().map(|node| node.as_ref().map(|node| node.id));
        let dx = conv2d_backward([x, weight, None], ops.state, &dy, gradients, checkpointer);
        add_maps!(gradients, ops.parents[0], dx);
    }
}

impl Backward<Flex, 3> for Conv2dWithBias {
    type State = ConvState;

    fn backward(self, ops: Ops<ConvState, 3>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let dy = gradients.consume::<Flex>(&ops.node);
        let parents = ops.parents.each_ref().map(|node| node.as_ref().map(|node| node.id));
        let dx = conv2d_backward(parents, ops.state, &dy, gradients, checkpointer);
        add_maps!(gradients, ops.parents[0], dx);
    }
}

/// Registers the gradients of the parameters and returns that of the input.
fn conv2d_backward(
    [x_node, weight_node, bias_node]: [Option<NodeId>; 3],
    (x, weight, options): ConvState,
    dy: &FlexTensor,
    gradients: &mut Gradients,
    checkpointer: &mut Checkpointer,
) -> Option<FlexTensor> {
    let x = checkpointer.retrieve_node_output::<FlexTensor>(x);
    let weight = checkpointer.retrieve_node_output::<FlexTensor>(weight);
    let sizes = geometry(&x, &weight, &options);
    let (x, dy) = (Values::of(&x), Values::of(dy));
    let shape = weight.layout().shape().dims::<4>();
    let weight = Contiguous::of(&weight);
    let (of_x, of_dy) = (Source::Values(&x), Source::Values(&dy));
    let (dx, dw) = match (x_node, weight_node) {
        (Some(_), Some(_)) => {
            let both = conv::both_gradients::<()>(&of_x, &weight, &of_dy, &sizes, None, None);
            (both.input, Some(both.weight))
        }
        (Some(_), None) => (conv::input_gradient::<()>(&weight, &of_dy, &sizes, None, None).0, None),
        (None, Some(_)) => (None, Some(conv::weight_gradient(&of_x, &of_dy, &sizes))),
        (None, None) => (None, None),
    };
    if let Some((node, dw)) = weight_node.zip(dw) {
        gradients.register::<Flex>(node, contiguous_tensor(dw, shape));
    }
    if let Some(node) = bias_node {
        let sums = norm::column_sums(&dy, sizes.output.channels);
        gradients.register::<Flex>(node, vector(&sums));
    }
    dx.map(|dx| tensor(dx, sizes.input))
}

/// What the backward pass of a batch normalisation needs of its input's node and of its forward pass.
#[derive(Clone)]
struct NormState {
    x: NodeId,
    affine: Arc<Affine>,
    winners: Option<Arc<Winners>>,
    activation: Activation,
    /// False: the statistics were given and carry no gradient.
    batch_statistics: bool,
}

impl std::fmt::Debug for NormState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NormState").field("x", &self.x).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct BatchNorm;

impl Backward<Flex, 3> for BatchNorm {
    type State = NormState;

    fn backward(self, ops: Ops<Self::State, 3>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let [x_node, gamma_node, beta_node] = ops.parents;
        let dy = gradients.consume::<Flex>(&ops.node);
        let state = ops.state;
        let x = checkpointer.retrieve_node_output::<FlexTensor>(state.x);
        let maps = Maps::of(&x);
        let (x, dy) = (Values::of(&x), Values::of(&dy));
        let affine = &*state.affine;
        let sums = match &state.winners {
            Some(winners) => norm::pool_gradient_sums(winners, &dy, maps, affine),
            None => norm::gradient_sums(&x, &dy, affine, state.activation),
        };
        if x_node.is_some() {
            let dx = match &state.winners {
                Some(winners) => norm::pool_input_gradient(&x, maps, winners, &dy, affine, &sums),
                None => {
                    let sums = state.batch_statistics.then_some(&sums);
                    norm::input_gradient(&x, &dy, affine, sums, state.activation)
                }
            };
            add_maps!(gradients, x_node, Some(tensor(dx, maps)));
        }
        if let Some(node) = gamma_node {
            gradients.register::<Flex>(node.id, vector(&sums.gamma));
        }
        if let Some(node) = beta_node {
            gradients.register::<Flex>(node.id, vector(&sums.beta));
        }
    }
}

/// `N` parents: the input, the shortcut or the input once more, and weight, gamma and beta of every layer.
#[derive(Debug)]
struct ChainOf<const N: usize>;

impl<const N: usize> Backward<Flex, N> for ChainOf<N> {
    type State = ChainState;

    fn backward(self, ops: Ops<ChainState, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let mut gradient = gradients.consume::<Flex>(&ops.node);
        let ChainState { chain, x, y, input, shortcut, weight_shapes } = ops.state;
        // What other operations found for the input before.
        let mut earlier = ops.parents[0].as_ref().filter(|_| chain.adds()).and_then(|node| {
            let consume = |gradients: &mut Gradients| gradients.consume::<Flex>(node);
            shared::earlier(gradients, node.id, node.parents.is_empty(), consume)
        });
        let nodes = ops.parents.each_ref().map(|node| node.as_ref().map(|node| node.id));
        let (maps, parameters) = nodes.split_at(2);
        let wanted: Vec<Wanted> = parameters
            .chunks_exact(3)
            .map(|of| Wanted { weight: of[0].is_some(), affine: of[1].is_some() || of[2].is_some() })
            .collect();
        let of_last = wanted[wanted.len() - 1];
        let sums = match y {
            Some(y) => {
                let output = chain.output();
                if shared::values_mut(&mut gradient, output).is_none() {
                    let mut copy = Buffer::new(output.len());
                    copy.copy_from_slice(&Values::of(&gradient));
                    gradient = tensor(copy, output);
                }
                let dy = shared::values_mut(&mut gradient, output).expect("the copy is this function's own");
                chain.mask(&Values::of(&y), dy, of_last)
            }
            None => chain.sum(&Values::of(&gradient), of_last),
        };
        let dy = Values::of(&gradient);
        let sum = earlier.as_mut().and_then(|earlier| shared::values_mut(earlier, input));
        let found = chain.backward(&x, &dy, sums, maps[0].is_some(), sum, &wanted);
        if let Some((node, earlier)) = maps[0].zip(earlier) {
            shared::register(gradients, node, earlier);
        }
        add_maps!(gradients, ops.parents[0], found.x.map(|dx| tensor(dx, input)));
        if shortcut == Shortcut::Other {
            add_maps!(gradients, ops.parents[1], Some(gradient));
        }
        for ((nodes, of_layer), shape) in parameters.chunks_exact(3).zip(found.layers).zip(weight_shapes) {
            if let Some((node, weight)) = nodes[0].zip(of_layer.weight) {
                gradients.register::<Flex>(node, contiguous_tensor(weight, shape));
            }
            let Some(gamma_beta) = of_layer.gamma_beta else { continue };
            for (node, values) in nodes[1..].iter().zip(gamma_beta) {
                if let Some(node) = node {
                    gradients.register::<Flex>(*node, vector(&values));
                }
            }
        }
    }
}

/// Puts a chain with `N` parents into the gradient graph.
fn track_chain<C: CheckpointStrategy, const N: usize>(
    nodes: Vec<NodeGuard>,
    state: ChainState,
    y: FlexTensor,
) -> Tracked {
    let nodes: [NodeGuard; N] = nodes.try_into().expect("the caller has counted them");
    match ChainOf::<N>.prepare::<C>(nodes).compute_bound().stateful() {
        OpsKind::Tracked(preparation) => preparation.finish(state, y),
        OpsKind::UnTracked(preparation) => preparation.finish(y),
    }
}

/// Place of the largest value in every window.
#[derive(Clone)]
struct MaxPoolState {
    place: Arc<Vec<u8>>,
    windows: Windows,
}

impl std::fmt::Debug for MaxPoolState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MaxPoolState").field("windows", &self.windows).finish_non_exhaustive()
    }
}

#[derive(Debug)]
struct MaxPool2d;

impl Backward<Flex, 1> for MaxPool2d {
    type State = MaxPoolState;

    fn backward(self, ops: Ops<MaxPoolState, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let MaxPoolState { place, windows } = ops.state;
        let dy = gradients.consume::<Flex>(&ops.node);
        let dx = pool::max_gradient(&Values::of(&dy), &place, &windows);
        add_maps!(gradients, ops.parents[0], Some(tensor(dx, windows.input)));
    }
}

#[derive(Debug)]
struct AvgPool2d;

impl Backward<Flex, 1> for AvgPool2d {
    type State = Means;

    fn backward(self, ops: Ops<Means, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let means = ops.state;
        let dy = gradients.consume::<Flex>(&ops.node);
        let dx = pool::window_mean_gradient(&Values::of(&dy), &means);
        add_maps!(gradients, ops.parents[0], Some(tensor(dx, means.input)));
    }
}

/// `N` parts; the state is their channels.
#[derive(Debug)]
struct ConcatOf<const N: usize>;

impl<const N: usize> Backward<Flex, N> for ConcatOf<N> {
    type State = [usize; N];

    fn backward(self, ops: Ops<[usize; N], N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let dy = gradients.consume::<Flex>(&ops.node);
        let maps = Maps::of(&dy);
        let dy = Values::of(&dy);
        let mut from = 0;
        for (node, channels) in ops.parents.into_iter().zip(ops.state) {
            if node.is_some() {
                let dx = concat::part(&dy, maps.channels, from, channels);
                add_maps!(gradients, node, Some(tensor(dx, Maps { channels, ..maps })));
            }
            from += channels;
        }
    }
}

/// Puts a concatenation of `N` parts into the gradient graph.
fn track_concat<C: CheckpointStrategy, const N: usize>(parts: Vec<Tracked>) -> Tracked {
    let parts: [Tracked; N] = parts.try_into().expect("the caller has counted them");
    let y = concat(&parts.each_ref().map(|part| part.primitive()));
    match ConcatOf::<N>.prepare::<C>(parts.each_ref().map(|part| part.node())).compute_bound().stateful() {
        OpsKind::Tracked(preparation) => {
            preparation.finish(parts.each_ref().map(|part| Maps::of(part.primitive()).channels), y)
        }
        OpsKind::UnTracked(preparation) => preparation.finish(y),
    }
}

#[derive(Debug)]
struct GlobalAverage;

impl Backward<Flex, 1> for GlobalAverage {
    type State = Maps;

    fn backward(self, ops: Ops<Maps, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let maps = ops.state;
        let dy = gradients.consume::<Flex>(&ops.node);
        let dx = pool::mean_gradient(&Contiguous::of(&dy), maps);
        add_maps!(gradients, ops.parents[0], Some(tensor(dx, maps)));
    }
}

impl<C: CheckpointStrategy> KernelOps for Autodiff<Flex, C> {
    fn conv2d_kernel(x: Tracked, weight: Tracked, options: ConvOptions<2>) -> Tracked {
        let y = conv2d(x.primitive(), weight.primitive(), None, &options);
        match Conv2d.prepare::<C>([x.node(), weight.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut preparation) => {
                let (x, weight) = (preparation.checkpoint(&x), preparation.checkpoint(&weight));
                preparation.finish((x, weight, options), y)
            }
            OpsKind::UnTracked(preparation) => preparation.finish(y),
        }
    }

    fn conv2d_bias_kernel(x: Tracked, weight: Tracked, bias: Tracked, options: ConvOptions<2>) -> Tracked {
        let y = conv2d(x.primitive(), weight.primitive(), Some(bias.primitive()), &options);
        match Conv2dWithBias.prepare::<C>([x.node(), weight.node(), bias.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut preparation) => {
                let (x, weight) = (preparation.checkpoint(&x), preparation.checkpoint(&weight));
                preparation.finish((x, weight, options), y)
            }
            OpsKind::UnTracked(preparation) => preparation.finish(y),
        }
    }

    fn batch_norm_train_kernel(
        x: Tracked,
        gamma: Tracked,
        beta: Tracked,
        epsilon: f64,
        tail: Tail,
    ) -> (Tracked, Tracked, Tracked) {
        let result = batch_norm_train(x.primitive(), gamma.primitive(), beta.primitive(), epsilon, tail);
        let y = match BatchNorm.prepare::<C>([x.node(), gamma.node(), beta.node()]).compute_bound().stateful()
        {
            OpsKind::Tracked(mut preparation) => {
                let state = NormState {
                    x: preparation.checkpoint(&x),
                    affine: Arc::new(result.affine),
                    winners: result.winners.map(Arc::new),
                    activation: match tail {
                        Tail::Activation(activation) => activation,
                        Tail::ReluMaxPool2 => Activation::Relu,
                    },
                    batch_statistics: true,
                };
                preparation.finish(state, result.y)
            }
            OpsKind::UnTracked(preparation) => preparation.finish(result.y),
        };
        (y, Tracked::new(result.mean), Tracked::new(result.variance))
    }

    fn max_pool2d_kernel(x: Tracked, options: MaxPoolOptions<2>) -> Tracked {
        let (y, place, windows) = max_pool2d(x.primitive(), &options);
        match MaxPool2d.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(preparation) => {
                let place = Arc::new(place);
                preparation.finish(MaxPoolState { place, windows }, y)
            }
            OpsKind::UnTracked(preparation) => preparation.finish(y),
        }
    }

    fn avg_pool2d_kernel(x: Tracked, options: AvgPoolOptions<2>) -> Tracked {
        let (y, means) = avg_pool2d(x.primitive(), &options);
        match AvgPool2d.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(preparation) => preparation.finish(means, y),
            OpsKind::UnTracked(preparation) => preparation.finish(y),
        }
    }

    fn concat_kernel(parts: Tensors<Self>) -> Tracked {
        let parts = parts.0;
        match parts.len() {
            2 => track_concat::<C, 2>(parts),
            3 => track_concat::<C, 3>(parts),
            4 => track_concat::<C, 4>(parts),
            5 => track_concat::<C, 5>(parts),
            6 => track_concat::<C, 6>(parts),
            _ => unreachable!("a concatenation has 2 to {MOST_PARTS} parts"),
        }
    }

    fn global_average_kernel(x: Tracked) -> Tracked {
        let y = global_average(x.primitive());
        let maps = Maps::of(x.primitive());
        match GlobalAverage.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(preparation) => preparation.finish(maps, y),
            OpsKind::UnTracked(preparation) => preparation.finish(y),
        }
    }

    fn chain_kernel(tensors: Tensors<Self>, layers: Vec<LayerOptions>, shortcut: Shortcut) -> Vec<Tracked> {
        let tensors = tensors.0;
        let first = if shortcut == Shortcut::Other { 2 } else { 1 };
        let mut nodes = vec![tensors[0].node(), tensors[first - 1].node()];
        let mut at = first;
        for layer in &layers {
            nodes.extend(tensors[at..at + 3].iter().map(|tensor| tensor.node()));
            at += tensors_of(layer);
        }
        let primitives: Vec<FlexTensor> = tensors.iter().map(|tensor| tensor.primitive().clone()).collect();
        let (y, moments, state) = chain(&primitives, layers, shortcut, true);
        let y = match nodes.len() {
            5 => track_chain::<C, 5>(nodes, state, y),
            8 => track_chain::<C, 8>(nodes, state, y),
            11 => track_chain::<C, 11>(nodes, state, y),
            14 => track_chain::<C, 14>(nodes, state, y),
            _ => unreachable!("a chain has 1 to {LONGEST_CHAIN} layers"),
        };
        std::iter::once(y).chain(moments.into_iter().map(Tracked::new)).collect()
    }

    fn batch_norm_fixed_kernel(
        x: Tracked,
        gamma: Tracked,
        beta: Tracked,
        mean: Tracked,
        variance: Tracked,
        epsilon: f64,
        activation: Activation,
    ) -> Tracked {
        let affine = fixed_affine(
            gamma.primitive(),
            beta.primitive(),
            mean.primitive(),
            variance.primitive(),
            epsilon,
        );
        let maps = Maps::of(x.primitive());
        let y = tensor(norm::apply(&Values::of(x.primitive()), &affine, None, activation), maps);
        match BatchNorm.prepare::<C>([x.node(), gamma.node(), beta.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut preparation) => {
                let state = NormState {
                    x: preparation.checkpoint(&x),
                    affine: Arc::new(affine),
                    winners: None,
                    activation,
                    batch_statistics: false,
                };
                preparation.finish(state, y)
            }
            OpsKind::UnTracked(preparation) => preparation.finish(y),
        }
    }
}
