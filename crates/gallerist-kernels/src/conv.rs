//! Convolution and its two gradients, over values with the channels innermost.
//!
//! All three are one product ([`crate::simd::Product`]) whose left factor is read where it lies:
//!
//! * forward: a row is an output position, its terms are the window (taps x input channels), the
//!   right factor is the weight;
//! * input gradient: the same with output gradient and mirrored weight. A stride splits the input
//!   positions into `stride x stride` interleaved grids, each of which meets its own taps;
//! * weight gradient: a row is an element of the window, its terms are the output positions, the
//!   right factor is the output gradient.
//!
//! A window that leaves the image is served by a copy of a few images, or of some rows of one, with
//! a border of zeros. It is small enough to stay in the second-level cache.

use burn::tensor::ops::ConvOptions;
use rayon::prelude::*;

use crate::buffer::{Buffer, with_scratch};
use crate::nhwc::Maps;
use crate::simd::{BLOCK_ROWS, Product, Run, chunks, lanes, panel_width, vectorized};

/// Elements of an input tile; its copy with a border stays in the second-level cache.
const TILE_ELEMENTS: usize = 32 * 1024;

/// Positions of a tile that repay reading the whole weight, even if its copy is larger.
const TILE_POSITIONS: usize = 192;

/// Channels of a weight that are packed at a time.
const PACKED_CHANNELS: usize = 8;

/// Most partial sums of a weight gradient.
const MOST_PARTS: usize = 16;

/// Most elements of all partial sums of a weight gradient together, unless one has more.
const PARTS_ELEMENTS: usize = 512 * 1024;

/// Sizes of a convolution.
#[derive(Clone, Debug)]
pub(crate) struct Geometry {
    pub(crate) input: Maps,
    pub(crate) output: Maps,
    pub(crate) kernel: [usize; 2],
    pub(crate) stride: [usize; 2],
    /// Zeros before the first row and column.
    pub(crate) padding: [usize; 2],
    pub(crate) dilation: [usize; 2],
    pub(crate) groups: usize,
}

impl Geometry {
    /// The sizes of the convolution of `x` with a weight `[channels out, channels in / groups,
    /// height, width]`, or none if they do not fit together or the result is empty.
    pub(crate) fn new(input: Maps, weight: [usize; 4], options: &ConvOptions<2>) -> Option<Self> {
        let [channels_out, channels, height, width] = weight;
        let groups = options.groups;
        let fits = channels * groups == input.channels && channels_out.is_multiple_of(groups);
        let [height_out, width_out] = [0, 1].map(|axis| {
            let reach = options.dilation[axis] * ([height, width][axis].max(1) - 1) + 1;
            let (before, after) = options.padding[axis];
            let size = [input.height, input.width][axis] + before + after;
            (size >= reach).then(|| (size - reach) / options.stride[axis] + 1)
        });
        let output =
            Maps { images: input.images, height: height_out?, width: width_out?, channels: channels_out };
        (fits && input.len() > 0 && output.len() > 0 && height * width > 0).then(|| Self {
            input,
            output,
            kernel: [height, width],
            stride: options.stride,
            padding: options.padding_begin(),
            dilation: options.dilation,
            groups,
        })
    }

    fn channels_in_group(&self) -> usize {
        self.input.channels / self.groups
    }

    fn channels_out_group(&self) -> usize {
        self.output.channels / self.groups
    }

    fn taps(&self) -> usize {
        self.kernel[0] * self.kernel[1]
    }

    /// Elements of a window of one group.
    fn window(&self) -> usize {
        self.taps() * self.channels_in_group()
    }

    /// The windows of the forward pass.
    fn windows(&self) -> Windows {
        let offsets = [0, 1].map(|axis| {
            (0..self.kernel[axis])
                .map(|tap| (tap * self.dilation[axis]).cast_signed() - self.padding[axis].cast_signed())
                .collect()
        });
        Windows {
            source: self.input,
            offsets,
            step: self.stride,
            grid: [self.output.height, self.output.width],
        }
    }
}

/// A grid of windows over feature maps: the window of position `(i, j)` has the elements
/// `(i * step[0] + offsets[0][a], j * step[1] + offsets[1][b])`, zero outside the map.
struct Windows {
    source: Maps,
    offsets: [Vec<isize>; 2],
    step: [usize; 2],
    grid: [usize; 2],
}

/// Some whole images, or some rows of the grid of one image.
#[derive(Clone, Copy)]
struct Tile {
    first_image: usize,
    images: usize,
    first_row: usize,
    rows: usize,
}

impl Windows {
    fn lowest(&self, axis: usize) -> isize {
        self.offsets[axis].iter().copied().min().unwrap_or(0)
    }

    /// Rows (`axis` 0) or columns (1) of the source that `count` grid positions in a row cover.
    fn extent(&self, axis: usize, count: usize) -> usize {
        let highest = self.offsets[axis].iter().copied().max().unwrap_or(0);
        (count - 1) * self.step[axis] + (highest - self.lowest(axis)).cast_unsigned() + 1
    }

    /// True if no window leaves its image.
    fn inside(&self) -> bool {
        (0..2).all(|axis| {
            let size = [self.source.height, self.source.width][axis];
            let lowest = self.lowest(axis);
            lowest >= 0 && lowest.cast_unsigned() + self.extent(axis, self.grid[axis]) <= size
        })
    }

    fn tiles(&self) -> Vec<Tile> {
        let row = self.step[0] * self.source.width * self.source.channels;
        let most_rows = (TILE_ELEMENTS / row).max(TILE_POSITIONS / self.grid[1]);
        let rows = most_rows.clamp(1, self.grid[0]);
        if rows < self.grid[0] {
            // Rows of nearly equal number, so that no tile is a mere remainder.
            let parts = self.grid[0].div_ceil(rows);
            let rows = self.grid[0].div_ceil(parts);
            (0..self.source.images)
                .flat_map(|first_image| {
                    (0..self.grid[0]).step_by(rows).map(move |first_row| Tile {
                        first_image,
                        images: 1,
                        first_row,
                        rows: rows.min(self.grid[0] - first_row),
                    })
                })
                .collect()
        } else {
            let images = (most_rows / self.grid[0]).clamp(1, self.source.images);
            (0..self.source.images)
                .step_by(images)
                .map(|first_image| Tile {
                    first_image,
                    images: images.min(self.source.images - first_image),
                    first_row: 0,
                    rows: self.grid[0],
                })
                .collect()
        }
    }

    /// Calls `work` with the values from the tile's first window element on and the sizes of the rows
    /// there: those of the source itself, or those of a copy with a border of zeros.
    fn with_view<R>(&self, source: &[f32], tile: Tile, work: impl FnOnce(View<'_>) -> R) -> R {
        let Maps { height, width, channels, .. } = self.source;
        if self.inside() {
            let row = tile.first_row * self.step[0] + self.lowest(0).cast_unsigned();
            let column = self.lowest(1).cast_unsigned();
            let first = ((tile.first_image * height + row) * width + column) * channels;
            return work(View { values: &source[first..], image_rows: height, row_pixels: width, channels });
        }
        let image_rows = self.extent(0, tile.rows);
        let row_pixels = self.extent(1, self.grid[1]);
        let row = row_pixels * channels;
        // Columns [left, right) of the copy are columns of the source.
        let left = (-self.lowest(1)).clamp(0, row_pixels.cast_signed()).cast_unsigned();
        let right = (width.cast_signed() - self.lowest(1))
            .clamp(left.cast_signed(), row_pixels.cast_signed())
            .cast_unsigned();
        let first_column = (self.lowest(1) + left.cast_signed()).cast_unsigned();
        with_scratch(0, tile.images * image_rows * row, |copy| {
            for image in 0..tile.images {
                for r in 0..image_rows {
                    let to = &mut copy[(image * image_rows + r) * row..][..row];
                    let y = (tile.first_row * self.step[0] + r).cast_signed() + self.lowest(0);
                    if y < 0 || y >= height.cast_signed() {
                        to.fill(0.0);
                        continue;
                    }
                    to[..left * channels].fill(0.0);
                    to[right * channels..].fill(0.0);
                    if left < right {
                        let from =
                            ((tile.first_image + image) * height + y.cast_unsigned()) * width + first_column;
                        to[left * channels..right * channels]
                            .copy_from_slice(&source[from * channels..][..(right - left) * channels]);
                    }
                }
            }
            work(View { values: copy, image_rows, row_pixels, channels })
        })
    }

    /// The offsets of the first elements of the tile's windows behind the view's base.
    fn positions(&self, tile: Tile, view: &View<'_>) -> Vec<usize> {
        let mut positions = Vec::with_capacity(tile.images * tile.rows * self.grid[1]);
        for image in 0..tile.images {
            for i in 0..tile.rows {
                let row = (image * view.image_rows + i * self.step[0]) * view.row_pixels;
                for j in 0..self.grid[1] {
                    positions.push((row + j * self.step[1]) * view.channels);
                }
            }
        }
        positions
    }

    /// The offset of window element `(a, b)`, channel 0, behind the window's first element.
    fn tap(&self, a: usize, b: usize, view: &View<'_>) -> usize {
        let row = (self.offsets[0][a] - self.lowest(0)).cast_unsigned();
        let column = (self.offsets[1][b] - self.lowest(1)).cast_unsigned();
        (row * view.row_pixels + column) * view.channels
    }

    /// The offsets of all window elements, channel 0, row by row.
    fn taps(&self, view: &View<'_>) -> Vec<usize> {
        let columns = self.offsets[1].len();
        (0..self.offsets[0].len() * columns).map(|tap| self.tap(tap / columns, tap % columns, view)).collect()
    }

    /// The runs of a window's elements in the order (row, column, channel), of the `channels`
    /// channels from `first_channel`.
    fn runs(&self, first_channel: usize, channels: usize, view: &View<'_>) -> Vec<Run> {
        let mut runs: Vec<Run> = vec![];
        for a in 0..self.offsets[0].len() {
            for b in 0..self.offsets[1].len() {
                let offset = self.tap(a, b, view) + first_channel;
                match runs.last_mut() {
                    Some(last) if last.offset + last.len == offset => last.len += channels,
                    _ => runs.push(Run { offset, len: channels }),
                }
            }
        }
        runs
    }
}

/// Where the windows of a tile lie.
struct View<'a> {
    values: &'a [f32],
    image_rows: usize,
    row_pixels: usize,
    channels: usize,
}

/// A result that several threads write at places of their own.
#[derive(Clone, Copy)]
struct Shared(*mut f32);

// SAFETY: every use writes elements that no other thread touches; see there.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    /// Taking the whole value keeps closures from capturing the bare pointer.
    fn address(self) -> *mut f32 {
        self.0
    }
}

/// The weight in the order in which [`correlate`] reads it.
enum Weights {
    Panels(Panels),
    /// Depthwise: one row of all channels per tap.
    Rows(Buffer),
}

impl Weights {
    /// `element(group, a, b, channel, column)` is the index into `weight` of a window element of a
    /// column; a group has `channels` of the one and `columns` of the other.
    fn pack(
        weight: &[f32],
        groups: usize,
        taps: [&[usize]; 2],
        channels: usize,
        columns: usize,
        element: impl Fn(usize, usize, usize, usize, usize) -> usize + Sync,
    ) -> Self {
        if !(channels == 1 && columns == 1 && groups > 1) {
            return Self::Panels(Panels::pack(weight, groups, taps, channels, columns, element));
        }
        let mut rows = Buffer::new(taps[0].len() * taps[1].len() * groups);
        let mut taps_rows = rows.chunks_exact_mut(groups);
        for a in taps[0] {
            for b in taps[1] {
                for (group, value) in taps_rows.by_ref().take(1).flatten().enumerate() {
                    *value = weight[element(group, *a, *b, 0, 0)];
                }
            }
        }
        Self::Rows(rows)
    }
}

/// The weight as the right factor of a product: for every group panels of [`panel_width`] columns,
/// zero behind the last column, each with one row per window element.
struct Panels {
    values: Buffer,
    group: usize,
    panel: usize,
}

impl Panels {
    /// As [`Weights::pack`].
    fn pack(
        weight: &[f32],
        groups: usize,
        taps: [&[usize]; 2],
        channels: usize,
        columns: usize,
        element: impl Fn(usize, usize, usize, usize, usize) -> usize + Sync,
    ) -> Self {
        let width = panel_width();
        let panels = columns.div_ceil(width);
        let panel = taps[0].len() * taps[1].len() * channels * width;
        let mut values = Buffer::new(groups * panels * panel);
        if panel > 0 {
            values.par_chunks_mut(panel).enumerate().for_each(|(index, panel)| {
                let (group, first) = (index / panels, index % panels * width);
                let count = width.min(columns - first);
                let of_row = |a: usize| taps[1].iter().map(move |b| (a, *b));
                let taps: Vec<(usize, usize)> = taps[0].iter().flat_map(|a| of_row(*a)).collect();
                // A column's elements lie together in the weight, a row's in the panel: some
                // channels at a time keep both in the first-level cache.
                for some in (0..channels).step_by(PACKED_CHANNELS) {
                    for column in 0..count {
                        for (tap, (a, b)) in taps.iter().enumerate() {
                            for channel in some..channels.min(some + PACKED_CHANNELS) {
                                panel[(tap * channels + channel) * width + column] =
                                    weight[element(group, *a, *b, channel, first + column)];
                            }
                        }
                    }
                }
                for row in panel.chunks_exact_mut(width) {
                    row[count..].fill(0.0);
                }
            });
        }
        Self { values, group: panels * panel, panel }
    }
}

/// Where the positions of a grid lie in the result: position `(i, j)` of the grid is position
/// `(first + i * step)` of the maps.
struct Target {
    maps: Maps,
    first: [usize; 2],
    step: [usize; 2],
}

/// Sets every position of `target`'s grid in `out` to the product of its window with the weights.
fn correlate(
    windows: &Windows,
    groups: usize,
    source: &[f32],
    weights: &Weights,
    target: &Target,
    out: &mut [f32],
) {
    assert_eq!(out.len(), target.maps.len());
    assert_eq!(source.len(), windows.source.len());
    let channels = windows.source.channels / groups;
    let columns = target.maps.channels / groups;
    let shared = Shared(out.as_mut_ptr());
    windows.tiles().into_par_iter().with_max_len(1).for_each(|tile| {
        windows.with_view(source, tile, |view| {
            let rows_a = windows.positions(tile, &view);
            let pixel = |image: usize, i: usize, j: usize| {
                let y = target.first[0] + (tile.first_row + i) * target.step[0];
                let x = target.first[1] + j * target.step[1];
                (((tile.first_image + image) * target.maps.height + y) * target.maps.width + x)
                    * target.maps.channels
            };
            let mut rows_c = Vec::with_capacity(rows_a.len());
            for image in 0..tile.images {
                for i in 0..tile.rows {
                    rows_c.extend((0..windows.grid[1]).map(|j| pixel(image, i, j)));
                }
            }
            let panels = match weights {
                Weights::Panels(panels) => panels,
                Weights::Rows(rows) => {
                    let taps = windows.taps(&view);
                    let mut pixels: Vec<&mut [f32]> = rows_c
                        .iter()
                        .map(|c| {
                            let first = shared.address().wrapping_add(*c);
                            // SAFETY: positions of `out` lie inside it and belong to one tile only.
                            unsafe { std::slice::from_raw_parts_mut(first, target.maps.channels) }
                        })
                        .collect();
                    depthwise(view.values, &rows_a, &taps, rows, &mut pixels);
                    return;
                }
            };
            for group in 0..groups {
                let runs = windows.runs(group * channels, channels, &view);
                let product = Product {
                    a: view.values.as_ptr(),
                    rows_a: &rows_a,
                    step: 1,
                    chunks: &chunks(&runs, 1),
                    b: panels.values[group * panels.group..].as_ptr(),
                    stride_b: panel_width(),
                    panel_stride: panels.panel,
                    c: shared.address().wrapping_add(group * columns),
                    rows_c: &rows_c,
                    columns,
                    accumulate: false,
                };
                // SAFETY: the view holds every window of the tile; the panels hold one row of whole
                // vectors per window element; positions of `out` belong to one tile only, and a
                // position's channels to one group only.
                unsafe { product.compute() };
            }
        });
    });
}

/// The convolution `y[n, o, i, j] = sum over taps and channels of x * weight (+ bias[o])`.
///
/// `weight` is `[channels out, channels in / groups, height, width]` in this order; `x` and the
/// result have the channels innermost.
pub(crate) fn forward(x: &[f32], weight: &[f32], bias: Option<&[f32]>, sizes: &Geometry) -> Buffer {
    let (channels, taps) = (sizes.channels_in_group(), sizes.taps());
    let columns = sizes.channels_out_group();
    let width = sizes.kernel[1];
    let all_taps = [0, 1].map(|axis| (0..sizes.kernel[axis]).collect::<Vec<_>>());
    let weights = Weights::pack(
        weight,
        sizes.groups,
        [&all_taps[0], &all_taps[1]],
        channels,
        columns,
        |group, a, b, channel, column| {
            ((group * columns + column) * channels + channel) * taps + a * width + b
        },
    );
    let mut y = Buffer::new(sizes.output.len());
    let target = Target { maps: sizes.output, first: [0, 0], step: [1, 1] };
    correlate(&sizes.windows(), sizes.groups, x, &weights, &target, &mut y);
    if let Some(bias) = bias {
        y.par_chunks_mut(bias.len() * 256).for_each(|pixels| {
            for pixel in pixels.chunks_exact_mut(bias.len()) {
                for (value, bias) in pixel.iter_mut().zip(bias) {
                    *value += bias;
                }
            }
        });
    }
    y
}

/// The gradient with respect to `x`.
pub(crate) fn input_gradient(weight: &[f32], dy: &[f32], sizes: &Geometry) -> Buffer {
    let (columns, taps) = (sizes.channels_in_group(), sizes.taps());
    let channels = sizes.channels_out_group();
    let width = sizes.kernel[1];
    let size = [sizes.input.height, sizes.input.width];
    let mut dx = Buffer::new(sizes.input.len());
    // Input position `first + i * stride` meets output position
    // `i + (first + padding - tap * dilation) / stride` for the taps that divide evenly.
    let grids = [0, 1].map(|axis| {
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
                let count = (size[axis] - first).div_ceil(sizes.stride[axis]);
                (first, count, taps)
            })
            .collect::<Vec<_>>()
    });
    if grids.iter().flatten().any(|(_, _, taps)| taps.is_empty()) {
        // Some positions are in no window.
        dx.fill(0.0);
    }
    for (first_row, rows, row_taps) in &grids[0] {
        for (first_column, row_columns, column_taps) in &grids[1] {
            if row_taps.is_empty() || column_taps.is_empty() {
                continue;
            }
            let split =
                |taps: &[(isize, usize)]| -> (Vec<isize>, Vec<usize>) { taps.iter().copied().unzip() };
            let (row_offsets, row_taps) = split(row_taps);
            let (column_offsets, column_taps) = split(column_taps);
            let weights = Weights::pack(
                weight,
                sizes.groups,
                [&row_taps, &column_taps],
                channels,
                columns,
                |group, a, b, channel, column| {
                    ((group * channels + channel) * columns + column) * taps + a * width + b
                },
            );
            let windows = Windows {
                source: sizes.output,
                offsets: [row_offsets, column_offsets],
                step: [1, 1],
                grid: [*rows, *row_columns],
            };
            let target = Target { maps: sizes.input, first: [*first_row, *first_column], step: sizes.stride };
            correlate(&windows, sizes.groups, dy, &weights, &target, &mut dx);
        }
    }
    dx
}

/// The gradient with respect to the weight, in the weight's order.
///
/// Images are summed in up to [`MOST_PARTS`] runs of neighbours, fewer for larger weights, and the
/// runs in order: the bits do not depend on the number of threads.
pub(crate) fn weight_gradient(x: &[f32], dy: &[f32], sizes: &Geometry) -> Buffer {
    assert_eq!(x.len(), sizes.input.len());
    assert_eq!(dy.len(), sizes.output.len());
    let windows = sizes.windows();
    let (channels, columns) = (sizes.channels_in_group(), sizes.channels_out_group());
    let (window, groups) = (sizes.window(), sizes.groups);
    let part_len = groups * window * columns;
    let images = sizes.input.images;
    let per_part = images.div_ceil((PARTS_ELEMENTS / part_len).clamp(1, MOST_PARTS));
    let parts = images.div_ceil(per_part);
    let tiles = windows.tiles();
    // Depthwise sums are kept as one row of channels per tap, the transpose of the usual order.
    let depthwise = channels == 1 && columns == 1 && groups > 1;
    // A part's window elements are split further so that all threads have work.
    let blocks = window.div_ceil(BLOCK_ROWS);
    let splits = (2 * rayon::current_num_threads()).div_ceil(parts);
    let splits = if depthwise { 1 } else { splits.clamp(1, blocks) };
    let split_rows = blocks.div_ceil(splits) * BLOCK_ROWS;
    let splits = window.div_ceil(split_rows);

    let mut sums = Buffer::zeros(parts * part_len);
    let shared = Shared(sums.as_mut_ptr());
    (0..parts * splits).into_par_iter().with_max_len(1).for_each(|task| {
        let (part, split) = (task / splits, task % splits);
        let first_image = part * per_part;
        let last_image = images.min(first_image + per_part);
        let rows = split * split_rows..window.min((split + 1) * split_rows);
        let rows_c: Vec<usize> = rows.clone().map(|row| row * columns).collect();
        for tile in tiles.iter().flat_map(|tile| clip(*tile, first_image, last_image)) {
            windows.with_view(x, tile, |view| {
                if depthwise {
                    // SAFETY: the sums of this part, which is one task, are this task's own.
                    let sums = unsafe {
                        std::slice::from_raw_parts_mut(
                            shared.address().wrapping_add(part * part_len),
                            part_len,
                        )
                    };
                    let positions = windows.positions(tile, &view);
                    let dy = tile_values(dy, tile, sizes.output);
                    depthwise_sums(view.values, &positions, &windows.taps(&view), dy, sums);
                    return;
                }
                let positions = tile_runs(&windows, tile, &view);
                let terms = chunks(&positions, sizes.stride[1] * view.channels);
                for group in 0..groups {
                    let rows_a: Vec<usize> = rows
                        .clone()
                        .map(|row| {
                            let (tap, channel) = (row / channels, row % channels);
                            let (a, b) = (tap / sizes.kernel[1], tap % sizes.kernel[1]);
                            windows.tap(a, b, &view) + group * channels + channel
                        })
                        .collect();
                    with_right_factor(dy, tile, sizes, group, |b, stride_b| {
                        let product = Product {
                            a: view.values.as_ptr(),
                            rows_a: &rows_a,
                            step: sizes.stride[1] * view.channels,
                            chunks: &terms,
                            b,
                            stride_b,
                            panel_stride: panel_width(),
                            c: shared.address().wrapping_add(part * part_len + group * window * columns),
                            rows_c: &rows_c,
                            columns,
                            accumulate: true,
                        };
                        // SAFETY: the view holds every window of the tile; the right factor has
                        // one row of whole vectors per position; the rows of this part and
                        // split are this task's own.
                        unsafe { product.compute() };
                    });
                }
            });
        }
    });

    // The parts in order, a stretch of elements per task.
    const STRETCH: usize = 4096;
    let (first, others) = sums.split_at_mut(part_len);
    first.par_chunks_mut(STRETCH).enumerate().for_each(|(index, total)| {
        for part in others.chunks_exact(part_len) {
            let part = &part[index * STRETCH..][..total.len()];
            for (total, part) in total.iter_mut().zip(part) {
                *total += part;
            }
        }
    });
    let mut gradient = Buffer::new(part_len);
    let taps = sizes.taps();
    gradient.par_chunks_mut(window).enumerate().for_each(|(column, of_column)| {
        let (group, column) = (column / columns, column % columns);
        for channel in 0..channels {
            for tap in 0..taps {
                let row = group * window + tap * channels + channel;
                of_column[channel * taps + tap] =
                    if depthwise { first[tap * groups + group] } else { first[row * columns + column] };
            }
        }
    });
    gradient
}

/// The part of `tile` that belongs to the images `[first, last)`.
fn clip(tile: Tile, first: usize, last: usize) -> Option<Tile> {
    let from = tile.first_image.max(first);
    let to = (tile.first_image + tile.images).min(last);
    (from < to).then(|| Tile { first_image: from, images: to - from, ..tile })
}

/// The grid positions of a tile as runs of terms, one per row of the grid.
fn tile_runs(windows: &Windows, tile: Tile, view: &View<'_>) -> Vec<Run> {
    let mut runs = Vec::with_capacity(tile.images * tile.rows);
    for image in 0..tile.images {
        for i in 0..tile.rows {
            let row = image * view.image_rows + i * windows.step[0];
            runs.push(Run { offset: row * view.row_pixels * view.channels, len: windows.grid[1] });
        }
    }
    runs
}

/// The values of `maps` at a tile's grid positions, which are consecutive.
fn tile_values(values: &[f32], tile: Tile, maps: Maps) -> &[f32] {
    let row = maps.width * maps.channels;
    &values[(tile.first_image * maps.height + tile.first_row) * row..][..tile.images * tile.rows * row]
}

vectorized! {
    /// `out[i][c] = sum over taps of x[positions[i] + tap + c] * rows[tap][c]`.
    fn depthwise<'a>(
        x: &'a [f32],
        positions: &'a [usize],
        taps: &'a [usize],
        rows: &'a [f32],
        out: &'a mut [&'a mut [f32]],
    ) -> () {
        let channels = rows.len() / taps.len();
        for (position, out) in positions.iter().zip(out) {
            out.fill(0.0);
            let x = &x[*position..];
            // Three taps at a time: each pass over `out` costs a load and a store.
            for (taps, rows) in taps.chunks(3).zip(rows.chunks(3 * channels)) {
                if let [a, b, c] = taps {
                    add_three_products([&x[*a..], &x[*b..], &x[*c..]], rows, out);
                } else {
                    for (tap, row) in taps.iter().zip(rows.chunks_exact(channels)) {
                        add_product(&x[*tap..], row, out);
                    }
                }
            }
        }
    }
}

/// `out[c] += x[c] * row[c]`.
#[inline(always)]
fn add_product(x: &[f32], row: &[f32], out: &mut [f32]) {
    let channels = out.len();
    let (x, row) = (&x[..channels], &row[..channels]);
    for c in 0..channels {
        out[c] += x[c] * row[c];
    }
}

/// [`add_product`] three times.
#[inline(always)]
fn add_three_products(x: [&[f32]; 3], rows: &[f32], out: &mut [f32]) {
    let channels = out.len();
    let [x_a, x_b, x_c] = x;
    let (x_a, x_b, x_c) = (&x_a[..channels], &x_b[..channels], &x_c[..channels]);
    let (row_a, rows) = rows.split_at(channels);
    let (row_b, row_c) = rows.split_at(channels);
    let row_c = &row_c[..channels];
    for c in 0..channels {
        out[c] = ((out[c] + x_a[c] * row_a[c]) + x_b[c] * row_b[c]) + x_c[c] * row_c[c];
    }
}

vectorized! {
    /// Adds `sum over positions of x[position + tap + c] * dy[position][c]` to `sums[tap][c]`.
    fn depthwise_sums<'a>(
        x: &'a [f32],
        positions: &'a [usize],
        taps: &'a [usize],
        dy: &'a [f32],
        sums: &'a mut [f32],
    ) -> () {
        let channels = sums.len() / taps.len();
        // A tile's own sum first: fewer roundings of a long sum.
        let mut of_tile = vec![0f32; sums.len()];
        for (position, dy) in positions.iter().zip(dy.chunks_exact(channels)) {
            for (tap, sums) in taps.iter().zip(of_tile.chunks_exact_mut(channels)) {
                add_product(&x[position + tap..], dy, sums);
            }
        }
        for (sum, of_tile) in sums.iter_mut().zip(&of_tile) {
            *sum += of_tile;
        }
    }
}

/// Calls `work` with the address and row stride of the output gradient of a tile and group. Its
/// rows are where they lie if a row of the group is a whole number of vectors, else in a copy that
/// rounds them up.
fn with_right_factor<R>(
    dy: &[f32],
    tile: Tile,
    sizes: &Geometry,
    group: usize,
    work: impl FnOnce(*const f32, usize) -> R,
) -> R {
    let columns = sizes.channels_out_group();
    let channels = sizes.output.channels;
    let dy = tile_values(dy, tile, sizes.output);
    let pixels = dy.len() / channels;
    if columns.is_multiple_of(lanes()) {
        return work(dy[group * columns..].as_ptr(), channels);
    }
    let rounded = columns.next_multiple_of(lanes());
    with_scratch(1, pixels * rounded, |copy| {
        for (to, from) in copy.chunks_exact_mut(rounded).zip(dy.chunks_exact(channels)) {
            to[..columns].copy_from_slice(&from[group * columns..][..columns]);
            to[columns..].fill(0.0);
        }
        work(copy.as_ptr(), rounded)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small(i: usize) -> f32 {
        (i * 7 % 11) as f32 - 5.0
    }

    /// Small whole numbers: every sum is exact, so that no tolerance hides a wrong term. Sizes are
    /// small enough for Miri, which checks the addresses.
    #[test]
    fn small_convolutions_equal_the_definition() {
        let cases = [
            // images, height, width, groups, channels in and out of a group, kernel, stride, padding
            (2, 4, 5, 1, [2, 3], [3, 3], [1, 1], [1, 1]),
            (1, 5, 4, 1, [1, 2], [3, 2], [2, 3], [0, 2]),
            (2, 3, 3, 2, [2, 1], [1, 1], [1, 1], [0, 0]),
            (1, 4, 4, 3, [1, 1], [3, 3], [2, 1], [1, 1]),
            (1, 2, 2, 1, [1, 1], [1, 1], [3, 3], [0, 0]),
        ];
        for (images, height, width, groups, [channels_in, channels_out], kernel, stride, padding) in cases {
            let input = Maps { images, height, width, channels: groups * channels_in };
            let weight_shape = [groups * channels_out, channels_in, kernel[0], kernel[1]];
            let options = ConvOptions::new(stride, padding, [1, 1], groups);
            let sizes = Geometry::new(input, weight_shape, &options).unwrap();
            let output = sizes.output;
            let x: Vec<f32> = (0..input.len()).map(small).collect();
            let weight: Vec<f32> = (0..weight_shape.iter().product()).map(|i| small(i + 3)).collect();
            let dy: Vec<f32> = (0..output.len()).map(|i| small(i + 5)).collect();
            let (mut y, mut dx) = (vec![0.0; dy.len()], vec![0.0; x.len()]);
            let mut dw = vec![0.0; weight.len()];
            for iy in 0..dy.len() {
                let (pixel, o) = (iy / output.channels, iy % output.channels);
                let (n, position) =
                    (pixel / (output.height * output.width), pixel % (output.height * output.width));
                let (i, j) = (position / output.width, position % output.width);
                for tap in 0..kernel[0] * kernel[1] {
                    let (a, b) = (tap / kernel[1], tap % kernel[1]);
                    let row = (i * stride[0] + a).wrapping_sub(padding[0]);
                    let column = (j * stride[1] + b).wrapping_sub(padding[1]);
                    if row >= height || column >= width {
                        continue;
                    }
                    for c in 0..channels_in {
                        let channel = o / channels_out * channels_in + c;
                        let ix = ((n * height + row) * width + column) * input.channels + channel;
                        let iw = (o * channels_in + c) * kernel[0] * kernel[1] + tap;
                        y[iy] += x[ix] * weight[iw];
                        dx[ix] += dy[iy] * weight[iw];
                        dw[iw] += dy[iy] * x[ix];
                    }
                }
            }
            assert_eq!(forward(&x, &weight, None, &sizes)[..], y, "{sizes:?}");
            assert_eq!(input_gradient(&weight, &dy, &sizes)[..], dx, "{sizes:?}");
            assert_eq!(weight_gradient(&x, &dy, &sizes)[..], dw, "{sizes:?}");
        }
    }
}
