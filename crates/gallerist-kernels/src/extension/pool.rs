//! Pooling.

use std::sync::Arc;

use burn::backend::Flex;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::flex::FlexTensor;
use burn::tensor::ops::{AvgPoolOptions, MaxPoolOptions};

use super::gradients::add_maps;
use crate::maps::Maps;
use crate::nhwc::{Contiguous, Values, contiguous_tensor, tensor};
use crate::pool::{self, Means, Windows};

pub(super) fn max_pool2d(x: &FlexTensor, options: &MaxPoolOptions<2>) -> (FlexTensor, Vec<u8>, Windows) {
    let windows =
        Windows::of_max(Maps::of(x), options).expect("the caller of the operation has checked the sizes");
    let (y, place) = pool::max_forward(&Values::of(x), &windows);
    (tensor(y, windows.output), place, windows)
}

pub(super) fn avg_pool2d(x: &FlexTensor, options: &AvgPoolOptions<2>) -> (FlexTensor, Means) {
    let means = Means::new(Maps::of(x), options).expect("the caller of the operation has checked the sizes");
    let y = pool::window_mean_forward(&Values::of(x), &means);
    (tensor(y, means.output), means)
}

pub(super) fn global_average(x: &FlexTensor) -> FlexTensor {
    let maps = Maps::of(x);
    let mean = pool::mean_forward(&Values::of(x), maps);
    contiguous_tensor(mean, [maps.images, maps.channels])
}

/// Place of the largest value in every window.
#[derive(Clone)]
pub(super) struct MaxPoolState {
    pub(super) place: Arc<Vec<u8>>,
    pub(super) windows: Windows,
}

impl std::fmt::Debug for MaxPoolState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MaxPoolState").field("windows", &self.windows).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) struct MaxPool2d;

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
pub(super) struct AvgPool2d;

impl Backward<Flex, 1> for AvgPool2d {
    type State = Means;

    fn backward(self, ops: Ops<Means, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let means = ops.state;
        let dy = gradients.consume::<Flex>(&ops.node);
        let dx = pool::window_mean_gradient(&Values::of(&dy), &means);
        add_maps!(gradients, ops.parents[0], Some(tensor(dx, means.input)));
    }
}

#[derive(Debug)]
pub(super) struct GlobalAverage;

impl Backward<Flex, 1> for GlobalAverage {
    type State = Maps;

    fn backward(self, ops: Ops<Maps, 1>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let maps = ops.state;
        let dy = gradients.consume::<Flex>(&ops.node);
        let dx = pool::mean_gradient(&Contiguous::of(&dy), maps);
        add_maps!(gradients, ops.parents[0], Some(tensor(dx, maps)));
    }
}
