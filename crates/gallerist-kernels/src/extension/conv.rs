//! Convolution.

use burn::backend::Flex;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::flex::FlexTensor;
use burn::tensor::ops::ConvOptions;

use super::gradients::{add_maps, vector};
use crate::buffer::Buffer;
use crate::conv::{self, Source};
use crate::geometry::Geometry;
use crate::maps::Maps;
use crate::nhwc::{Contiguous, Values, contiguous_tensor, tensor};
use crate::norm;

fn geometry(x: &FlexTensor, weight: &FlexTensor, options: &ConvOptions<2>) -> Geometry {
    Geometry::new(Maps::of(x), weight.layout().shape().dims(), options)
        .expect("the caller of the operation has checked the sizes")
}

pub(super) fn conv2d(
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

#[derive(Debug)]
pub(super) struct Conv2d;

#[derive(Debug)]
pub(super) struct Conv2dWithBias;

/// Nodes whose outputs the gradients of a convolution need, and its options.
pub(super) type ConvState = (NodeId, NodeId, ConvOptions<2>);

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
    let (dx, dw) = gradients_of(&x, &weight, &dy, &sizes, [x_node.is_some(), weight_node.is_some()]);
    if let Some((node, dw)) = weight_node.zip(dw) {
        gradients.register::<Flex>(node, contiguous_tensor(dw, shape));
    }
    if let Some(node) = bias_node {
        let sums = norm::column_sums(&dy, sizes.output.channels);
        gradients.register::<Flex>(node, vector(&sums));
    }
    dx.map(|dx| tensor(dx, sizes.input))
}

/// The gradients of input and weight, if they are wanted.
pub(super) fn gradients_of(
    x: &[f32],
    weight: &[f32],
    dy: &[f32],
    sizes: &Geometry,
    wanted: [bool; 2],
) -> (Option<Buffer>, Option<Buffer>) {
    let (x, dy) = (Source::Values(x), Source::Values(dy));
    match wanted {
        [true, true] => {
            let both = conv::both_gradients::<()>(&x, weight, &dy, sizes, None, None);
            (both.input, Some(both.weight))
        }
        [true, false] => (conv::input_gradient::<()>(weight, &dy, sizes, None, None).0, None),
        [false, true] => (None, Some(conv::weight_gradient(&x, &dy, sizes))),
        [false, false] => (None, None),
    }
}
