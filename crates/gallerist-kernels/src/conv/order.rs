//! The order of a weight's elements in memory.

use rayon::prelude::*;

use crate::geometry::Geometry;
use crate::transpose;

/// The strides of a weight: the element of a tap, a channel and a column of a group is at
/// `tap + channel * channel_step + column * column_step + group * group_step`.
pub(super) struct Order {
    pub(super) groups: usize,
    pub(super) channels: usize,
    pub(super) columns: usize,
    pub(super) taps: Vec<usize>,
    pub(super) channel_step: usize,
    pub(super) column_step: usize,
    pub(super) group_step: usize,
}

impl Order {
    /// The order of the contiguous weight `[channels out, channels in / groups, height, width]` of a forward pass, or of that
    /// of a linear layer.
    pub(super) fn of_forward(sizes: &Geometry) -> Self {
        let (channels, taps) = (sizes.channels_in_group(), sizes.taps());
        let columns = sizes.channels_out_group();
        let (channel_step, column_step) =
            if sizes.weight_by_input { (columns, 1) } else { (taps, channels * taps) };
        Order {
            groups: sizes.groups,
            channels,
            columns,
            taps: (0..taps).collect(),
            channel_step,
            column_step,
            group_step: columns * channels * taps,
        }
    }

    /// Whether a column's elements are contiguous, channel by channel, as in a weight's own order.
    fn has_columns_together(&self) -> bool {
        self.channel_step == self.taps.len() && self.taps.iter().copied().eq(0..self.taps.len())
    }

    /// Writes `count` columns of a group, the first of which starts `weight`, to a panel of `width` columns: one row per tap
    /// and channel.
    pub(super) fn pack_panel(&self, weight: &[f32], [count, width]: [usize; 2], panel: &mut [f32]) {
        let Order { channels, channel_step, column_step, .. } = *self;
        if self.has_columns_together() {
            let rows = Elements { taps: self.taps.len(), channels, pitch: width };
            for first in (0..count).step_by(transpose::SIDE) {
                let columns = transpose::SIDE.min(count - first);
                rows.for_blocks(first, |element, rows| {
                    let sources = transpose::starts(first * column_step + element, column_step);
                    transpose::block(weight, &sources[..columns], panel, rows);
                });
            }
        } else {
            for (tap, at) in self.taps.iter().enumerate() {
                for channel in 0..channels {
                    let row = &mut panel[(tap * channels + channel) * width..][..count];
                    let values = &weight[channel * channel_step + at..];
                    if column_step == 1 {
                        row.copy_from_slice(&values[..count]);
                        continue;
                    }
                    for (to, value) in row.iter_mut().zip(values.iter().step_by(column_step)) {
                        *to = *value;
                    }
                }
            }
        }
    }
}

/// Rows of a matrix, one for every tap and channel, `pitch` elements apart.
struct Elements {
    taps: usize,
    channels: usize,
    pitch: usize,
}

impl Elements {
    /// Calls `work` with the first of some elements that are contiguous in a weight's own order, channel by channel, and
    /// with the positions of column `first` of their rows.
    fn for_blocks(&self, first: usize, mut work: impl FnMut(usize, &[usize])) {
        let count = self.taps * self.channels;
        let mut rows = [0; transpose::SIDE];
        for element in (0..count).step_by(transpose::SIDE) {
            let some = transpose::SIDE.min(count - element);
            for (i, row) in rows[..some].iter_mut().enumerate() {
                let (channel, tap) = ((element + i) / self.taps, (element + i) % self.taps);
                *row = (tap * self.channels + channel) * self.pitch + first;
            }
            work(element, &rows[..some]);
        }
    }
}

/// Writes sums with one row of `columns` per window element (tap, channel) to `weight` in the order of a weight: by
/// column, channel and tap.
pub(super) fn by_column(sums: &[f32], [taps, channels]: [usize; 2], columns: usize, weight: &mut [f32]) {
    let window = taps * channels;
    let rows = Elements { taps, channels, pitch: columns };
    weight.par_chunks_mut(window * transpose::SIDE).enumerate().for_each(|(block, weight)| {
        let columns = weight.len() / window;
        rows.for_blocks(block * transpose::SIDE, |element, sources| {
            transpose::block(sums, sources, weight, &transpose::starts(element, window)[..columns]);
        });
    });
}
