//! The transformed weight.

use rayon::prelude::*;

use super::transforms::{Apply, OfKernel};
use super::{ELEMENTS, IN, SIDE};
use crate::buffer::{Buffer, with_scratch};
use crate::conv::order::Order;
use crate::product::panel_width;

/// `G g G^T` of all kernels of a convolution, or of its input gradient.
pub(in crate::conv) struct Transformed {
    /// For each panel of columns and each element one row of `width` per channel.
    values: Buffer,
    pub(super) channels: usize,
    pub(super) columns: usize,
    /// Columns of a panel.
    pub(super) width: usize,
}

impl Transformed {
    /// Transforms a weight of which `order` says where the kernel of a channel and a column is.
    pub(in crate::conv) fn new(weight: &[f32], order: &Order) -> Self {
        let Order { channels, columns, column_step, .. } = *order;
        assert_eq!((order.groups, order.taps.len()), (1, SIDE * SIDE));
        let width = panel_width();
        let (row, panel) = (channels * width, ELEMENTS * channels * width);
        let mut values = Buffer::new(columns.div_ceil(width) * panel);
        values.par_chunks_mut(panel).enumerate().for_each(|(index, panel)| {
            let first = index * width;
            let count = width.min(columns - first);
            with_scratch(0, SIDE * SIDE * row, |kernels| {
                order.pack_panel(&weight[first * column_step..], [count, width], kernels);
                let mut elements: Vec<&mut [f32]> = panel.chunks_exact_mut(row).collect();
                for channel in 0..channels {
                    let from: [[&[f32]; SIDE]; SIDE] = std::array::from_fn(|i| {
                        std::array::from_fn(|j| &kernels[(i * SIDE + j) * row + channel * width..][..count])
                    });
                    let mut elements = elements.iter_mut();
                    let mut next = || &mut elements.next().expect("36 elements")[channel * width..][..width];
                    let mut to: [[&mut [f32]; IN]; IN] =
                        std::array::from_fn(|_| std::array::from_fn(|_| next()));
                    for to in to.as_flattened_mut() {
                        to[count..].fill(0.0);
                    }
                    gallerist_util::simd::run(Apply::new(OfKernel, &from, &mut to, count));
                }
            });
        });
        Self { values, channels, columns, width }
    }

    /// The rows of an element of a panel.
    pub(super) fn rows(&self, panel: usize, element: usize) -> &[f32] {
        let row = self.channels * self.width;
        &self.values[(panel * ELEMENTS + element) * row..][..row]
    }

    pub(super) fn panels(&self) -> usize {
        self.columns.div_ceil(self.width)
    }
}
