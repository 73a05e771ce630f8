//! What the backward nodes have in common.

use burn::backend::flex::FlexTensor;
use burn::backend::tensor::FloatTensor;
use burn::backend::{Autodiff, Flex};

use crate::buffer::Buffer;
use crate::nhwc::contiguous_tensor;

/// A tensor of the CPU backend with gradients.
pub(super) type Tracked = FloatTensor<Autodiff<Flex>>;

/// Accumulates a gradient of maps for a parent. A macro, because the engine does not export the type of a node.
macro_rules! add_maps {
    ($gradients:expr, $parent:expr, $dx:expr) => {
        if let (Some(node), Some(dx)) = ($parent.as_ref(), $dx) {
            let consume = |gradients: &mut Gradients| gradients.consume::<Flex>(node);
            crate::gradient_sums::add($gradients, node.id, node.parents.is_empty(), consume, dx);
        }
    };
}
pub(super) use add_maps;

/// A parameter gradient as a tensor of rank 1.
pub(super) fn vector(values: &[f32]) -> FlexTensor {
    let mut buffer = Buffer::new(values.len());
    buffer.copy_from_slice(values);
    contiguous_tensor(buffer, [values.len()])
}
