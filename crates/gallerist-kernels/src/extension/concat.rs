//! Concatenation along the channels.

use burn::backend::Flex;
use burn::backend::autodiff::checkpoint::base::Checkpointer;
use burn::backend::autodiff::checkpoint::strategy::CheckpointStrategy;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::autodiff::ops::{Backward, Ops, OpsKind};
use burn::backend::flex::FlexTensor;

use super::gradients::{Tracked, add_maps};
use crate::concat;
use crate::maps::Maps;
use crate::nhwc::{Values, tensor};

pub(super) fn join(parts: &[&FlexTensor]) -> FlexTensor {
    let values: Vec<Values> = parts.iter().map(|part| Values::of(part)).collect();
    let channels = || parts.iter().map(|part| Maps::of(part).channels);
    let first = Maps::of(parts[0]);
    let slices: Vec<(&[f32], usize)> = values.iter().map(|values| &**values).zip(channels()).collect();
    tensor(concat::forward(&slices, first.pixels()), Maps { channels: channels().sum(), ..first })
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

/// Adds a concatenation of `N` parts to the gradient graph.
pub(super) fn track_concat<C: CheckpointStrategy, const N: usize>(parts: Vec<Tracked>) -> Tracked {
    let parts: [Tracked; N] = parts.try_into().expect("the caller has counted them");
    let y = join(&parts.each_ref().map(|part| part.primitive()));
    match ConcatOf::<N>.prepare::<C>(parts.each_ref().map(|part| part.node())).compute_bound().stateful() {
        OpsKind::Tracked(preparation) => {
            preparation.finish(parts.each_ref().map(|part| Maps::of(part.primitive()).channels), y)
        }
        OpsKind::UnTracked(preparation) => preparation.finish(y),
    }
}
