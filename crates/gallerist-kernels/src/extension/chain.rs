//! A chain of convolutions with batch norm.

use std::sync::Arc;

use burn::backend::Flex;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, NodeGuard, Ops, OpsKind};
use burn::backend::flex::FlexTensor;

use super::gradients::{Tracked, add_maps, vector};
use crate::buffer::Buffer;
use crate::chain::{Chain, LastSums, LayerOptions, LayerValues, Shortcut, Wanted};
use crate::gradient_sums;
use crate::maps::Maps;
use crate::nhwc::{Contiguous, Values, contiguous_tensor, tensor};

/// The values that the backward pass of a chain needs.
#[derive(Clone)]
pub(super) struct ChainState {
    pub(super) chain: Arc<Chain>,
    pub(super) x: Arc<Values>,
    /// The result, if [`Chain::mask`] needs it.
    pub(super) y: Option<FlexTensor>,
    pub(super) input: Maps,
    pub(super) shortcut: Shortcut,
    pub(super) weight_shapes: Vec<[usize; 4]>,
}

impl std::fmt::Debug for ChainState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChainState").field("weight_shapes", &self.weight_shapes).finish_non_exhaustive()
    }
}

/// Tensors of a layer: weight, gamma, beta, and mean and variance if they are given.
pub(super) fn tensors_of(layer: &LayerOptions) -> usize {
    if layer.batch_statistics { 3 } else { 5 }
}

/// The result, the statistics of the batch, and the values that the backward pass needs, which are kept with `keep` only.
pub(super) fn chain(
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
    let of_state = chain.needs_result().then(|| y.clone());
    let state =
        ChainState { chain: Arc::new(chain), x: Arc::new(x), y: of_state, input, shortcut, weight_shapes };
    (y, moments, state)
}

/// `N` parents: the input, the shortcut or the input once more, and weight, gamma and beta of every layer.
#[derive(Debug)]
struct ChainOf<const N: usize>;

impl<const N: usize> Backward<Flex, N> for ChainOf<N> {
    type State = ChainState;

    fn backward(self, ops: Ops<ChainState, N>, gradients: &mut Gradients, _: &mut Checkpointer) {
        let gradient = gradients.consume::<Flex>(&ops.node);
        let ChainState { chain, x, y, input, shortcut, weight_shapes } = ops.state;
        // The gradient that other operations have found for the input.
        let mut earlier = ops.parents[0].as_ref().filter(|_| chain.accumulates()).and_then(|node| {
            let consume = |gradients: &mut Gradients| gradients.consume::<Flex>(node);
            gradient_sums::earlier(gradients, node.id, node.parents.is_empty(), consume)
        });
        let nodes = ops.parents.each_ref().map(|node| node.as_ref().map(|node| node.id));
        let (maps, parameters) = nodes.split_at(2);
        let wanted: Vec<Wanted> = parameters
            .chunks_exact(3)
            .map(|of| Wanted { weight: of[0].is_some(), affine: of[1].is_some() || of[2].is_some() })
            .collect();
        let (gradient, sums) = last_sums(&chain, y.as_ref(), gradient, wanted[wanted.len() - 1]);
        let dy = Values::of(&gradient);
        let sum = earlier.as_mut().and_then(|earlier| gradient_sums::values_mut(earlier, input));
        let found = chain.backward(&x, &dy, sums, maps[0].is_some(), sum, &wanted);
        if let Some((node, earlier)) = maps[0].zip(earlier) {
            gradient_sums::register(gradients, node, earlier);
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

/// The gradient of the last maps before their activation, and its sums, from the gradient of the result `y`.
fn last_sums(
    chain: &Chain,
    y: Option<&FlexTensor>,
    mut gradient: FlexTensor,
    wanted: Wanted,
) -> (FlexTensor, LastSums) {
    if !chain.masks() {
        let sums = chain.sum(&Values::of(&gradient), wanted);
        return (gradient, sums);
    }
    let output = chain.output();
    if gradient_sums::values_mut(&mut gradient, output).is_none() {
        let mut copy = Buffer::new(output.len());
        copy.copy_from_slice(&Values::of(&gradient));
        gradient = tensor(copy, output);
    }
    let dy = gradient_sums::values_mut(&mut gradient, output).expect("nothing else holds the copy");
    let y = y.map(Values::of);
    let sums = chain.mask(y.as_deref(), dy, wanted);
    (gradient, sums)
}

/// Adds a chain with `N` parents to the gradient graph.
pub(super) fn track_chain<C: CheckpointStrategy, const N: usize>(
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
