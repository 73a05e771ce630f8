//! The samples of a component.

/// Largest coefficient, before quantisation. The transform of 8 x 8 samples from -128 to 127 stays
/// within 1,024; encoders that let white overshoot go a quarter beyond, and rounding adds half a step.
pub(crate) const LARGEST: i32 = 1400;

/// Samples of one component: whole blocks, some of them beyond the picture's right and lower edge.
pub(crate) struct Plane {
    /// Samples along the side of a block: 8, or fewer where the picture is decoded at a reduced size.
    pub(crate) side: usize,
    pub(crate) stride: usize,
    pub(crate) samples: Vec<u8>,
}

impl Plane {
    /// Blocks across and down.
    pub(crate) fn new(side: usize, across: usize, down: usize) -> Plane {
        Plane { side, stride: across * side, samples: vec![0; across * down * side * side] }
    }

    pub(crate) fn rows(&self) -> usize {
        self.samples.len() / self.stride
    }

    pub(crate) fn row(&self, y: usize) -> &[u8] {
        &self.samples[y * self.stride..][..self.stride]
    }
}
