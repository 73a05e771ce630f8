//! Gradients of feature maps that several operations read, accumulated in place.
//!
//! The engine sums the gradients that are registered for a node, and would read and write the sum once more for each of
//! them. It does not tell whether a gradient is registered yet. So this module remembers the nodes for which this crate's
//! operations have registered gradients. A registered gradient stays until the operation that made the maps consumes it,
//! after all operations that read the maps; the engine refuses to walk a graph twice.

use std::cell::RefCell;
use std::collections::VecDeque;

use burn::backend::Flex;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::flex::FlexTensor;
use burn::tensor::DType;
use rayon::prelude::*;

use crate::maps::Maps;
use crate::nhwc::{Values, has_channels_innermost};
use crate::norm;

/// Elements of a task.
const PART: usize = 32 * 1024;

/// Most nodes that are remembered, enough for those between the operations that read the same maps.
const REMEMBERED: usize = 32;

thread_local! {
    /// Per thread, because a backward pass runs on one thread.
    static REGISTERED: RefCell<VecDeque<NodeId>> = const { RefCell::new(VecDeque::new()) };
}

/// Accumulates `gradient` into the gradient of the maps of `node`. Gradients of other backends are left to the engine.
///
/// `consume` takes out the registered gradient. It is called if `is_leaf` is false and an operation of this crate has
/// registered one.
pub(crate) fn add(
    gradients: &mut Gradients,
    node: NodeId,
    is_leaf: bool,
    consume: impl FnOnce(&mut Gradients) -> FlexTensor,
    mut gradient: FlexTensor,
) {
    if let Some(mut earlier) = earlier(gradients, node, is_leaf, consume) {
        if let Some(sum) = values_mut(&mut earlier, Maps::of(&gradient)) {
            let found = Values::of(&gradient);
            let parts = sum.par_chunks_mut(PART).zip(found.par_chunks(PART));
            parts.for_each(|(sum, found)| norm::add(found, sum));
            gradient = earlier;
        } else {
            gradients.register::<Flex>(node, earlier);
        }
    }
    register(gradients, node, gradient);
}

/// Registers a gradient of maps.
pub(crate) fn register(gradients: &mut Gradients, node: NodeId, gradient: FlexTensor) {
    REGISTERED.with_borrow_mut(|registered| {
        if !registered.contains(&node) {
            registered.truncate(REMEMBERED - 1);
            registered.push_front(node);
        }
    });
    gradients.register::<Flex>(node, gradient);
}

/// The gradient that operations of this crate have registered for `node`, taken out by `consume`.
pub(crate) fn earlier(
    gradients: &mut Gradients,
    node: NodeId,
    is_leaf: bool,
    consume: impl FnOnce(&mut Gradients) -> FlexTensor,
) -> Option<FlexTensor> {
    // `consume` does not take out the gradient of a leaf.
    let there = !is_leaf && REGISTERED.with_borrow(|registered| registered.contains(&node));
    there.then(|| consume(gradients))
}

/// The values of a gradient of `maps`, to accumulate into. `None` if they are shared or have another layout.
pub(crate) fn values_mut(gradient: &mut FlexTensor, maps: Maps) -> Option<&mut [f32]> {
    let layout = gradient.layout();
    let fits = gradient.dtype() == DType::F32
        && gradient.is_unique()
        && layout.start_offset() == 0
        && layout.num_elements() == maps.len()
        && has_channels_innermost(layout);
    fits.then(|| &mut gradient.storage_mut::<f32>()[..maps.len()])
}
