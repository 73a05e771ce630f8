//! The memory layout of the kernels: batch x height x width x channels, channels innermost.
//!
//! The shape of a tensor stays `[batch, channels, height, width]`; only its strides differ. With the channels innermost
//! a window of a convolution is a few contiguous runs, and an operation on each channel fills whole vectors.

use burn::backend::flex::{FlexTensor, Layout};
use burn::tensor::{DType, Shape};
use rayon::prelude::*;

use crate::buffer::Buffer;
use crate::maps::Maps;
use crate::profile;
use crate::transpose::transpose;

/// A tensor's values with the channels innermost: the tensor's own if they have that layout, otherwise a copy.
pub(crate) enum Values {
    Tensor(FlexTensor),
    Copy(Buffer),
}

impl Values {
    /// Reads a rank-4 tensor of `f32`.
    pub(crate) fn of(tensor: &FlexTensor) -> Self {
        let maps = Maps::of(tensor);
        if has_channels_innermost(tensor.layout()) {
            return Self::Tensor(tensor.clone());
        }
        let _measured = profile::scope("change of layout");
        let contiguous = tensor.to_contiguous();
        let source = stored(&contiguous);
        let area = maps.height * maps.width;
        let mut copy = Buffer::new(maps.len());
        copy.par_chunks_mut(area * maps.channels)
            .zip(source.par_chunks(area * maps.channels))
            .for_each(|(to, from)| transpose(from, maps.channels, area, to));
        Self::Copy(copy)
    }
}

impl std::ops::Deref for Values {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        match self {
            Self::Tensor(tensor) => stored(tensor),
            Self::Copy(copy) => copy,
        }
    }
}

pub(crate) fn has_channels_innermost(layout: &Layout) -> bool {
    let [_, channels, height, width] = layout.shape().dims();
    let wanted = [height * width * channels, 1, width * channels, channels];
    (0..4).all(|axis| layout.shape()[axis] == 1 || layout.strides()[axis] == wanted[axis] as isize)
}

/// Makes the tensor `[images, channels, height, width]` of values with the channels innermost.
pub(crate) fn tensor(values: Buffer, maps: Maps) -> FlexTensor {
    assert_eq!(
        values.len(),
        maps.len(),
        "{} values for feature maps of {} elements",
        values.len(),
        maps.len()
    );
    let Maps { images, height, width, channels } = maps;
    let layout = Layout::new(
        Shape::new([images, channels, height, width]),
        [height * width * channels, 1, width * channels, channels].map(|stride| stride as isize).to_vec(),
        0,
    );
    FlexTensor::new(values.into_bytes(), layout, DType::F32)
}

/// Makes a contiguous tensor.
pub(crate) fn contiguous_tensor<const D: usize>(values: Buffer, shape: [usize; D]) -> FlexTensor {
    FlexTensor::new(values.into_bytes(), Layout::contiguous(Shape::new(shape)), DType::F32)
}

/// The values of a tensor without gaps, in memory order.
pub(crate) fn stored(tensor: &FlexTensor) -> &[f32] {
    let start = tensor.layout().start_offset();
    &tensor.storage::<f32>()[start..start + tensor.layout().num_elements()]
}

/// The values of a tensor in the order of its dimensions: the tensor's own if it is contiguous, otherwise a copy.
pub(crate) struct Contiguous(FlexTensor);

impl Contiguous {
    /// Reads a tensor of `f32`.
    pub(crate) fn of(tensor: &FlexTensor) -> Self {
        Self(tensor.to_contiguous())
    }
}

impl std::ops::Deref for Contiguous {
    type Target = [f32];

    fn deref(&self) -> &[f32] {
        stored(&self.0)
    }
}
