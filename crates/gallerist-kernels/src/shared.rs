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

use crate::nhwc::{Maps, has_channels_innermost};

/// Most nodes that are remembered: those between the operations that read the same maps.
const REMEMBERED: usize = 32;

thread_local! {
    /// A backward pass is one thread's.
    static REGISTERED: RefCell<VecDeque<NodeId>> = const { RefCell::new(VecDeque::new()) };
}

/// Remembers that a gradient is registered for `node`.
pub(crate) fn remember(node: NodeId) {
    REGISTERED.with_borrow_mut(|registered| {
        if !registered.contains(&node) {
            registered.truncate(REMEMBERED - 1);
            registered.push_front(node);
        }
    });
}

/// Registers a gradient of maps.
pub(crate) fn register(gradients: &mut Gradients, node: NodeId, gradient: FlexTensor) {
    remember(node);
    gradients.register::<Flex>(node, gradient);
}

/// Whether a gradient for `node` waits to be consumed.
pub(crate) fn is_waiting(node: NodeId) -> bool {
    REGISTERED.with_borrow(|registered| registered.contains(&node))
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
