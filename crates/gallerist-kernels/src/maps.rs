//! The shape of a batch of feature maps.

use burn::backend::flex::FlexTensor;

/// Sizes of a batch of feature maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Maps {
    pub(crate) images: usize,
    pub(crate) height: usize,
    pub(crate) width: usize,
    pub(crate) channels: usize,
}

impl Maps {
    /// The sizes of a tensor of rank 4.
    pub(crate) fn of(tensor: &FlexTensor) -> Self {
        let [images, channels, height, width] = tensor.layout().shape().dims();
        Self { images, height, width, channels }
    }

    /// Positions of all images together.
    pub(crate) fn pixels(&self) -> usize {
        self.images * self.height * self.width
    }

    /// Number of elements.
    pub(crate) fn len(&self) -> usize {
        self.pixels() * self.channels
    }
}
