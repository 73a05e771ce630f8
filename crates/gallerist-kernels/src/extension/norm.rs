//! Batch normalisation.

use std::sync::Arc;

use burn::backend::Flex;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops};
use burn::backend::flex::FlexTensor;

use super::gradients::{add_maps, vector};
use super::operations::Tail;
use crate::maps::Maps;
use crate::nhwc::{Contiguous, Values, tensor};
use crate::norm::{self, Activation, Affine, Winners};

/// The result of a batch normalisation and the values that its backward pass needs.
pub(super) struct Normalised {
    pub(super) y: FlexTensor,
    pub(super) mean: FlexTensor,
    pub(super) variance: FlexTensor,
    pub(super) affine: Affine,
    pub(super) winners: Option<Winners>,
}

pub(super) fn batch_norm_train(
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
        Affine::new(&Contiguous::of(gamma), &Contiguous::of(beta), &moments.mean, &moments.variance, epsilon)
            .over(moments.ranks.clone());
    let (y, winners) = match tail {
        Tail::Activation(activation) => (tensor(norm::apply(&values, &affine, None, activation), maps), None),
        Tail::ReluMaxPool2 => {
            let (y, winners) = norm::pool_forward(&values, maps, &affine);
            (tensor(y, norm::pooled(maps)), Some(winners))
        }
    };
    Normalised { y, mean: vector(&moments.mean), variance: vector(&moments.variance), affine, winners }
}

pub(super) fn fixed_affine(
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

/// The values that the backward pass of a batch normalisation needs.
#[derive(Clone)]
pub(super) struct NormState {
    pub(super) x: NodeId,
    pub(super) affine: Arc<Affine>,
    pub(super) winners: Option<Arc<Winners>>,
    pub(super) activation: Activation,
    /// False: the statistics were given and carry no gradient.
    pub(super) batch_statistics: bool,
}

impl std::fmt::Debug for NormState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NormState").field("x", &self.x).finish_non_exhaustive()
    }
}

#[derive(Debug)]
pub(super) struct BatchNorm;

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
