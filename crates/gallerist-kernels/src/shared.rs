//! Gradients of maps that several operations read: each adds its part where the others' sum lies.
//!
//! The engine keeps the sum of what was registered for a node, and would read and write it once more for every part.
//! It does not say whether there is one yet; so the nodes for which this crate's operations registered gradients are
//! remembered here. What was registered stays until the operation that made the maps consumes it, and that comes
//! after all that read them; the engine refuses to go through a graph twice.

use std::cell::RefCell;
use std::collections::VecDeque;

use burn::backend::Flex;
use burn::backend::autodiff::NodeId;
use burn::backend::autodiff::grads::Gradients;
use burn::backend::flex::FlexTensor;
use burn::tensor::DType;
use rayon::prelude::*;

use crate::nhwc::{Maps, Values, has_channels_innermost};
use crate::norm;

/// Elements of a task.
const PART: usize = 32 * 1024;

/// Most nodes that are remembered: those between the operations that read the same maps.
const REMEMBERED: usize = 32;

thread_local! {
    /// A backward pass is one thread's.
    static REGISTERED: RefCell<VecDeque<NodeId>> = const { RefCell::new(VecDeque::new()) };
}

/// Adds to the gradient of the maps of `node`; the sum of what other backends' operations find is the engine's to make.
///
/// `consume` takes out what is there; it is called if `is_leaf` is false and an operation of this crate has been here.
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

/// What operations of this crate have registered for `node`, taken out by `consume`.
pub(crate) fn earlier(
    gradients: &mut Gradients,
    node: NodeId,
    is_leaf: bool,
    consume: impl FnOnce(&mut Gradients) -> FlexTensor,
) -> Option<FlexTensor> {
    // The gradient of a leaf is not taken out by being consumed.
    let there = !is_leaf && REGISTERED.with_borrow(|registered| registered.contains(&node));
    there.then(|| consume(gradients))
}

/// The values of a gradient of `maps` that nothing else holds, to be added to.
pub(crate) fn values_mut(gradient: &mut FlexTensor, maps: Maps) -> Option<&mut [f32]> {
    let layout = gradient.layout();
    let fits = gradient.dtype() == DType::F32
        && gradient.is_unique()
        && layout.start_offset() == 0
        && layout.num_elements() == maps.len()
        && has_channels_innermost(layout);
    fits.then(|| &mut gradient.storage_mut::<f32>()[..maps.len()])
}
