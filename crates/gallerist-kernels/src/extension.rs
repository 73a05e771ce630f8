//! The kernels as operations of the engine: their implementation for the CPU backend and their
//! place in its gradient graph.

use std::sync::Arc;

use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind, unary};
use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Backend, Flex, backend_extension};
use burn::tensor::ops::{ConvOptions, MaxPoolOptions};

use crate::buffer::Buffer;
use crate::conv::{self, Geometry};
use crate::nhwc::{Maps, Values, contiguous_tensor, contiguous_values, tensor};
use crate::norm::{self, Affine, Winners};
use crate::pool::{self, Windows};

/// What follows the normalisation in the same operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tail {
    /// Nothing.
    None,
    /// ReLU.
    Relu,
    /// ReLU, then the maximum over 2 x 2 windows with stride 2.
    ReluMaxPool2,
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

    /// Mean over all positions, `[batch, channels]`.
    fn global_average_kernel(x: FloatTensor<Self>) -> FloatTensor<Self>;

    /// Batch normalisation by given statistics, then ReLU if `relu`.
    fn batch_norm_fixed_kernel(
        x: FloatTensor<Self>,
        gamma: FloatTensor<Self>,
        beta: FloatTensor<Self>,
        mean: FloatTensor<Self>,
        variance: FloatTensor<Self>,
        epsilon: f64,
        relu: bool,
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
    let bias = bias.map(contiguous_values);
    let y = conv::forward(&Values::of(x), &contiguous_values(weight), bias.as_deref(), &sizes);
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
    let affine = Affine::new(
        &contiguous_values(gamma),
        &contiguous_values(beta),
        &moments.mean,
        &moments.variance,
        epsilon,
    );
    let (y, winners) = match tail {
        Tail::None => (tensor(norm::apply(&values, &affine, false), maps), None),
        Tail::Relu => (tensor(norm::apply(&values, &affine, true), maps), None),
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

    fn global_average_kernel(x: FlexTensor) -> FlexTensor {
        global_average(&x)
    }

    fn batch_norm_fixed_kernel(
        x: FlexTensor,
        gamma: FlexTensor,
        beta: FlexTensor,
        mean: FlexTensor,
        variance: FlexTensor,
        epsilon: f64,
        relu: bool,
    ) -> FlexTensor {
        let affine = fixed_affine(&gamma, &beta, &mean, &variance, epsilon);
        tensor(norm::apply(&Values::of(&x), &affine, relu), Maps::of(&x))
    }
}

fn max_pool2d(x: &FlexTensor, options: &MaxPoolOptions<2>) -> (FlexTensor, Vec<u8>, Windows) {
    let windows = Windows::new(Maps::of(x), options)
        .expect("the door of the crate forwards what the kernels do not cover");
    let (y, place) = pool::max_forward(&Values::of(x), &windows);
    (tensor(y, windows.output), place, windows)
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
        &contiguous_values(gamma),
        &contiguous_values(beta),
        &contiguous_values(mean),
        &contiguous_values(variance),
        epsilon,
    )
}

type Tracked = FloatTensor<Autodiff<Flex>>;

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
        let [x, weight] = ops.parents.map(|node| node.map(|node| node.id));
        conv2d_backward([x, weight, None], ops.state, &dy, gradients, checkpointer);
    }
}

impl Backward<Flex, 3> for Conv2dWithBias {
    type State = ConvState;

    fn backward(self, ops: Ops<ConvState, 3>, gradients: &mut Gradients, checkpointer: &mut Checkpointer) {
        let dy = gradients.consume::<Flex>(&ops.node);
        let parents = ops.parents.map(|node| node.map(|node| node.id));
        conv2d_backward(parents, ops.state, &dy, gradients, checkpointer);
    }
}

fn conv2d_backward(
    [x_node, weight_node, bias_node]: [Option<NodeId>; 3],
    (x, weight, options): ConvState,
    dy: &FlexTensor,
    gradients: &mut Gradients,
    checkpointer: &mut Checkpointer,
) {
    let x = checkpointer.retrieve_node_output::<FlexTensor>(x);
    let weight = checkpointer.retrieve_node_output::<FlexTensor>(weight);
    let sizes = geometry(&x, &weight, &options);
    let dy = Values::of(dy);
    if let Some(node) = x_node {
        let dx = conv::input_gradient(&contiguous_values(&weight), &dy, &sizes);
        gradients.register::<Flex>(node, tensor(dx, sizes.input));
    }
    if let Some(node) = weight_node {
        let gradient = conv::weight_gradient(&Values::of(&x), &dy, &sizes);
        let shape = weight.layout().shape().dims::<4>();
        gradients.register::<Flex>(node, contiguous_tensor(gradient, shape));
    }
    if let Some(node) = bias_node {
        let sums = norm::column_sums(&dy, sizes.output.channels);
        gradients.register::<Flex>(node, vector(&sums));
    }
}

/// What the backward pass of a batch normalisation needs of its input's node and of its forward pass.
#[derive(Clone)]
struct NormState {
    x: NodeId,
    affine: Arc<Affine>,
    winners: Option<Arc<Winners>>,
    relu: bool,
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
            None => norm::gradient_sums(&x, &dy, affine, state.relu),
        };
        if let Some(node) = x_node {
            let dx = match &state.winners {
                Some(winners) => norm::pool_input_gradient(&x, maps, winners, &dy, affine, &sums),
                None => {
                    let sums = state.batch_statistics.then_some(&sums);
                    norm::input_gradient(&x, &dy, affine, sums, state.relu)
                }
            };
            gradients.register::<Flex>(node.id, tensor(dx, maps));
        }
        if let Some(node) = gamma_node {
            gradients.register::<Flex>(node.id, vector(&sums.gamma));
        }
        if let Some(node) = beta_node {
            gradients.register::<Flex>(node.id, vector(&sums.beta));
        }
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
        unary::<Flex, _>(ops.parents, ops.node, gradients, |dy| {
            let dx = pool::max_gradient(&Values::of(&dy), &place, &windows);
            tensor(dx, windows.input)
        });
    }
}

#[derive(Debug)]
struct GlobalAverage;

impl Backward<Flex, 1> for GlobalAverage {
    type State = Maps;

    fn backward(self, ops: Ops<Maps, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let maps = ops.state;
        unary::<Flex, _>(ops.parents, ops.node, gradients, |dy| {
            tensor(pool::mean_gradient(&contiguous_values(&dy), maps), maps)
        });
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
                    relu: tail != Tail::None,
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

    fn global_average_kernel(x: Tracked) -> Tracked {
        let y = global_average(x.primitive());
        let maps = Maps::of(x.primitive());
        match GlobalAverage.prepare::<C>([x.node()]).compute_bound().stateful() {
            OpsKind::Tracked(preparation) => preparation.finish(maps, y),
            OpsKind::UnTracked(preparation) => preparation.finish(y),
        }
    }

    fn batch_norm_fixed_kernel(
        x: Tracked,
        gamma: Tracked,
        beta: Tracked,
        mean: Tracked,
        variance: Tracked,
        epsilon: f64,
        relu: bool,
    ) -> Tracked {
        let affine = fixed_affine(
            gamma.primitive(),
            beta.primitive(),
            mean.primitive(),
            variance.primitive(),
            epsilon,
        );
        let maps = Maps::of(x.primitive());
        let y = tensor(norm::apply(&Values::of(x.primitive()), &affine, relu), maps);
        match BatchNorm.prepare::<C>([x.node(), gamma.node(), beta.node()]).compute_bound().stateful() {
            OpsKind::Tracked(mut preparation) => {
                let state = NormState {
                    x: preparation.checkpoint(&x),
                    affine: Arc::new(affine),
                    winners: None,
                    relu,
                    batch_statistics: false,
                };
                preparation.finish(state, y)
            }
            OpsKind::UnTracked(preparation) => preparation.finish(y),
        }
    }
}
