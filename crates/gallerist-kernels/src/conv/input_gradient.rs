//! The gradient with respect to the input.

use rayon::prelude::*;

use super::correlate::{After, Target, correlate};
use super::order::Order;
use super::pack::{Packed, Weights};
use super::source::Source;
use super::windows::{TILE_ELEMENTS, Windows};
use crate::buffer::Buffer;
use crate::geometry::Geometry;
use crate::product::Choice;
use crate::profile;

/// One of the interleaved grids of input positions that a stride makes: the windows over the output gradient that its
/// positions meet, and the taps of the kernel by which they do.
pub(super) struct Grid {
    pub(super) windows: Windows,
    pub(super) taps: [Vec<usize>; 2],
    target: Target,
}

impl Grid {
    /// Input position `first + i * stride` meets output position
    /// `i + (first + padding - tap * dilation) / stride` for the taps that divide evenly.
    pub(super) fn all(sizes: &Geometry) -> Vec<Grid> {
        let size = [sizes.input.height, sizes.input.width];
        let axes = [0, 1].map(|axis| {
            (0..sizes.stride[axis].min(size[axis]))
                .map(|first| {
                    let mut taps: Vec<(isize, usize)> = (0..sizes.kernel[axis])
                        .filter_map(|tap| {
                            let distance = (first + sizes.padding[axis]).cast_signed()
                                - (tap * sizes.dilation[axis]).cast_signed();
                            let stride = sizes.stride[axis].cast_signed();
                            (distance % stride == 0).then(|| (distance / stride, tap))
                        })
                        .collect();
                    taps.sort_unstable();
                    let (offsets, taps): (Vec<isize>, Vec<usize>) = taps.into_iter().unzip();
                    (first, (size[axis] - first).div_ceil(sizes.stride[axis]), offsets, taps)
                })
                .collect::<Vec<_>>()
        });
        let mut grids = Vec::new();
        for (first_row, rows, row_offsets, row_taps) in &axes[0] {
            for (first_column, columns, column_offsets, column_taps) in &axes[1] {
                grids.push(Grid {
                    windows: Windows {
                        source: sizes.output,
                        offsets: [row_offsets.clone(), column_offsets.clone()],
                        step: [1, 1],
                        grid: [*rows, *columns],
                    },
                    taps: [row_taps.clone(), column_taps.clone()],
                    target: Target {
                        maps: sizes.input,
                        first: [*first_row, *first_column],
                        step: sizes.stride,
                        channels: 0..sizes.input.channels,
                    },
                });
            }
        }
        grids
    }

    fn is_empty(&self) -> bool {
        self.taps.iter().any(Vec::is_empty)
    }

    pub(super) fn order(&self, sizes: &Geometry) -> Order {
        let (channels, columns, taps) = (sizes.channels_out_group(), sizes.channels_in_group(), sizes.taps());
        let (channel_step, column_step) =
            if sizes.weight_by_input { (1, channels) } else { (columns * taps, taps) };
        let [rows, row_taps] = &self.taps;
        let of_row = |a: &usize| {
            let first = a * sizes.kernel[1];
            row_taps.iter().map(move |b| first + b)
        };
        Order {
            groups: sizes.groups,
            channels,
            columns,
            taps: rows.iter().flat_map(of_row).collect(),
            channel_step,
            column_step,
            group_step: channels * columns * taps,
        }
    }
}

/// The gradient with respect to `x`, and the results of `after` for its parts.
///
/// With `earlier` the gradient is accumulated there and not returned. A depthwise convolution does not support this.
pub(crate) fn input_gradient<T: Send>(
    weight: &[f32],
    dy: &Source<'_>,
    sizes: &Geometry,
    earlier: Option<&mut [f32]>,
    after: Option<After<'_, T>>,
) -> (Option<Buffer>, Vec<T>) {
    let _measured = profile::convolution("convolution, input gradient", sizes, 1);
    let accumulate = earlier.is_some();
    let mut own = (!accumulate).then(|| Buffer::new(sizes.input.len()));
    let dx = earlier.or(own.as_deref_mut()).expect("one of the two");
    let grids = Grid::all(sizes);
    if let [grid] = &grids[..]
        && sizes.stride == [1, 1]
    {
        let weights = Weights::of_step(weight, &grid.order(sizes), sizes);
        let parts =
            correlate(&grid.windows, sizes.groups, dy, &weights, &grid.target, dx, accumulate, None, after);
        return (own, parts);
    }
    if !accumulate && grids.iter().any(Grid::is_empty) {
        // Some positions are in no window.
        dx.fill(0.0);
    }
    for grid in grids.iter().filter(|grid| !grid.is_empty()) {
        let weights = Weights::Packed(Packed::pack(weight, &grid.order(sizes), Choice::current().precision));
        correlate::<()>(&grid.windows, sizes.groups, dy, &weights, &grid.target, dx, accumulate, None, None);
    }
    let row = sizes.input.width * sizes.input.channels;
    let part = row * (TILE_ELEMENTS / row).max(1);
    let parts = after.map_or(vec![], |after| {
        dx.par_chunks_mut(part).enumerate().map(|(index, dx)| after(index * part, dx)).collect()
    });
    (own, parts)
}
