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

use crate::bf16::{Factors, Tiles};
use crate::buffer::{Buffer, with_scratch};
use crate::depthwise;
use crate::nhwc::Maps;
use crate::norm::{Activation, Affine, Linear, apply_rows, gradient_rows, scale_rows};
use crate::profile;
use crate::simd::{BLOCK_ROWS, MAX_PANEL, Product, Right, Run, chunks, panel_width};
use crate::transpose::{self, transpose};

/// Elements of an input tile; its copy with a border stays in the second-level cache.
const TILE_ELEMENTS: usize = 32 * 1024;

/// Positions of a tile that repay reading the whole weight, even if its copy is larger.
const TILE_POSITIONS: usize = 192;

/// Positions of a tile of a weight gradient that repay fetching and storing all its sums.
const GRADIENT_POSITIONS: usize = 448;

/// Most partial sums of a weight gradient.
const MOST_PARTS: usize = 16;

/// Fewest partial sums where the input gradient is computed in the same pass.
const FEWEST_PARTS: usize = 8;

/// Most elements of all partial sums of a weight gradient together, unless one has more.
const PARTS_ELEMENTS: usize = 1024 * 1024;

/// Feature maps that a convolution or its gradients read: as they lie in memory, or as a function of
/// maps that is computed for a tile when it is needed, so that its result is never written.
#[derive(Clone, Copy)]
pub(crate) enum Source<'a> {
    /// The values themselves.
    Values(&'a [f32]),
    /// `activation(affine(x))`.
    Activated { x: &'a [f32], affine: &'a Affine, activation: Activation },
    /// The gradient of `x` from the gradient `dy` of `activation(affine(x))`; `linear` is that of the affine map.
    Gradient { x: &'a [f32], dy: &'a [f32], linear: &'a Linear<'a>, activation: Activation },
    /// The same for fixed statistics, without activation.
    Scaled { dy: &'a [f32], affine: &'a Affine },
}

impl<'a> Source<'a> {
    fn len(&self) -> usize {
        match self {
            Source::Values(x) | Source::Activated { x, .. } => x.len(),
            Source::Gradient { dy, .. } | Source::Scaled { dy, .. } => dy.len(),
        }
    }

    /// The elements from `first` on, if they are in memory.
    fn values(&self, first: usize) -> Option<&'a [f32]> {
        match self {
            Source::Values(x) => Some(&x[first..]),
            _ => None,
        }
    }

    /// Writes positions of `channels` elements, from element `first` on, to `to`, where they lie `pitch` apart.
    fn copy_apart(&self, first: usize, channels: usize, pitch: usize, to: &mut [f32]) {
        if pitch == channels {
            return self.copy(first, to);
        }
        for (position, to) in to.chunks_mut(pitch).enumerate() {
            self.copy(first + position * channels, &mut to[..channels]);
        }
    }

    /// Writes the elements from `first` on, whole positions, to `to`.
    fn copy(&self, first: usize, to: &mut [f32]) {
        let count = to.len();
        match *self {
            Source::Values(x) => to.copy_from_slice(&x[first..][..count]),
            Source::Activated { x, affine, activation } => {
                apply_rows(&x[first..][..count], affine, activation, to);
            }
            Source::Gradient { x, dy, linear, activation } => {
                gradient_rows(linear, &x[first..][..count], &dy[first..][..count], activation, to);
            }
            Source::Scaled { dy, affine } => scale_rows(affine, &dy[first..][..count], to),
        }
    }
}

/// What is done with a part of a result while it is in the cache: its first element's index and its
/// values, whole positions.
pub(crate) type After<'a, T> = &'a (dyn Fn(usize, &mut [f32]) -> T + Sync);

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

    /// True if every channel is convolved for itself, with one kernel.
    pub(crate) fn is_depthwise(&self) -> bool {
        self.groups > 1 && self.channels_in_group() == 1 && self.channels_out_group() == 1
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
        self.tiles_of(self.source.channels, TILE_POSITIONS)
    }

    /// Tiles of a size that suits maps of `channels`, or of `positions` if these are more.
    fn tiles_of(&self, channels: usize, positions: usize) -> Vec<Tile> {
        let row = self.step[0] * self.source.width * channels;
        let most_rows = (TILE_ELEMENTS / row).max(positions / self.grid[1]);
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
    fn with_view<R>(&self, source: &Source<'_>, tile: Tile, work: impl FnOnce(View<'_>) -> R) -> R {
        let Maps { height, width, channels, .. } = self.source;
        if self.inside() {
            let row = tile.first_row * self.step[0] + self.lowest(0).cast_unsigned();
            let column = self.lowest(1).cast_unsigned();
            let first = ((tile.first_image * height + row) * width + column) * channels;
            if let Some(values) = source.values(first) {
                let count = tile.images * tile.rows * self.step[0] * width * channels;
                let next = behind(values, count);
                return work(View { values, next, image_rows: height, row_pixels: width, pitch: channels });
            }
        }
        let pitch = pitch(channels);
        let image_rows = self.extent(0, tile.rows);
        let row_pixels = self.extent(1, self.grid[1]);
        let row = row_pixels * pitch;
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
                    to[..left * pitch].fill(0.0);
                    to[right * pitch..].fill(0.0);
                    if left < right {
                        let from =
                            ((tile.first_image + image) * height + y.cast_unsigned()) * width + first_column;
                        source.copy_apart(
                            from * channels,
                            channels,
                            pitch,
                            &mut to[left * pitch..right * pitch],
                        );
                    }
                }
            }
            work(View { values: copy, next: &[], image_rows, row_pixels, pitch })
        })
    }

    /// The offsets of the first elements of the tile's windows behind the view's base.
    fn positions(&self, tile: Tile, view: &View<'_>) -> Vec<usize> {
        let mut positions = Vec::with_capacity(tile.images * tile.rows * self.grid[1]);
        for image in 0..tile.images {
            for i in 0..tile.rows {
                let row = (image * view.image_rows + i * self.step[0]) * view.row_pixels;
                for j in 0..self.grid[1] {
                    positions.push((row + j * self.step[1]) * view.pitch);
                }
            }
        }
        positions
    }

    /// The offset of window element `(a, b)`, channel 0, behind the window's first element.
    fn tap(&self, a: usize, b: usize, view: &View<'_>) -> usize {
        let row = (self.offsets[0][a] - self.lowest(0)).cast_unsigned();
        let column = (self.offsets[1][b] - self.lowest(1)).cast_unsigned();
        (row * view.row_pixels + column) * view.pitch
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
    /// What the next tile reads, if it lies behind these.
    next: &'a [f32],
    image_rows: usize,
    row_pixels: usize,
    /// Elements from a position to the next.
    pitch: usize,
}

/// As many values as a tile's own `count`, behind these, as far as there are so many.
fn behind(values: &[f32], count: usize) -> &[f32] {
    &values[count.min(values.len())..(2 * count).min(values.len())]
}

/// How far apart the positions of a copy are put. Positions half a kilobyte or a multiple of it apart fall
/// into few sets of the first-level cache, and a column of them drives itself out.
fn pitch(channels: usize) -> usize {
    if channels.is_multiple_of(128) { channels + 16 } else { channels }
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
    fn pack(weight: &[f32], order: &Order, factors: Factors) -> Self {
        let Order { groups, channels, columns, .. } = *order;
        if !(channels == 1 && columns == 1 && groups > 1) {
            return Self::Panels(Panels::pack(weight, order, factors));
        }
        let mut rows = Buffer::new(order.taps.len() * groups);
        for (row, tap) in rows.chunks_exact_mut(groups).zip(&order.taps) {
            for (group, value) in row.iter_mut().enumerate() {
                *value = weight[group * order.group_step + tap];
            }
        }
        Self::Rows(rows)
    }
}

/// Where [`correlate`] finds the elements of a weight: the element of a tap, a channel and a column of a group is
/// at `tap + channel * channel_step + column * column_step + group * group_step`.
struct Order {
    groups: usize,
    channels: usize,
    columns: usize,
    taps: Vec<usize>,
    channel_step: usize,
    column_step: usize,
    group_step: usize,
}

impl Order {
    /// Whether a column's elements lie next to each other, channel by channel, as in a weight's own order.
    fn has_columns_together(&self) -> bool {
        self.channel_step == self.taps.len() && self.taps.iter().copied().eq(0..self.taps.len())
    }
}

/// Rows of a matrix, one for every tap and channel, `pitch` elements apart.
struct Elements {
    taps: usize,
    channels: usize,
    pitch: usize,
}

impl Elements {
    /// Calls `work` with the first of some elements that follow each other in a weight's own order, channel by channel,
    /// and with the places of column `first` of their rows.
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

/// The weight as the right factor of a product.
struct Panels {
    values: PanelValues,
    /// Columns of a panel.
    width: usize,
    factors: Factors,
}

enum PanelValues {
    /// For every group panels of [`panel_width`] columns, zero behind the last column, each with one row per window
    /// element.
    Rows { values: Buffer, group: usize, panel: usize },
    /// Rounded, for every group.
    Tiles(Vec<Tiles>),
}

impl Panels {
    /// As [`Weights::pack`].
    fn pack(weight: &[f32], order: &Order, factors: Factors) -> Self {
        let Order { groups, channels, columns, channel_step, column_step, group_step, .. } = *order;
        let width = match factors {
            Factors::F32 => panel_width(),
            Factors::Bf16(_) => MAX_PANEL,
        };
        let panels = columns.div_ceil(width);
        let panel = order.taps.len() * channels * width;
        let mut values = Buffer::new(groups * panels * panel);
        if panel > 0 {
            values.par_chunks_mut(panel).enumerate().for_each(|(index, panel)| {
                let (group, first) = (index / panels, index % panels * width);
                let count = width.min(columns - first);
                let weight = &weight[group * group_step + first * column_step..];
                if order.has_columns_together() {
                    let rows = Elements { taps: order.taps.len(), channels, pitch: width };
                    for first in (0..count).step_by(transpose::SIDE) {
                        let columns = transpose::SIDE.min(count - first);
                        rows.for_blocks(first, |element, rows| {
                            let sources = transpose::starts(first * column_step + element, column_step);
                            transpose::block(weight, &sources[..columns], panel, rows);
                        });
                    }
                } else {
                    for (tap, at) in order.taps.iter().enumerate() {
                        for channel in 0..channels {
                            let row = &mut panel[(tap * channels + channel) * width..][..count];
                            let values = weight[channel * channel_step + at..].iter().step_by(column_step);
                            for (to, value) in row.iter_mut().zip(values) {
                                *to = *value;
                            }
                        }
                    }
                }
                for row in panel.chunks_exact_mut(width) {
                    row[count..].fill(0.0);
                }
            });
        }
        let group = panels * panel;
        let values = match factors {
            Factors::F32 => PanelValues::Rows { values, group, panel },
            Factors::Bf16(unit) => {
                let sizes = [order.taps.len() * channels, columns, width];
                let of_group =
                    |index: usize| Tiles::of_panels(&values[index * group..][..group], sizes, panel, unit);
                PanelValues::Tiles((0..groups).map(of_group).collect())
            }
        };
        Self { values, width, factors }
    }

    /// Of a group's columns those from `first` on, the first of a panel.
    fn right(&self, group: usize, first: usize) -> Right<'_> {
        match &self.values {
            PanelValues::Rows { values, group: of_group, panel } => Right::Rows {
                b: values[group * of_group + first / self.width * panel..].as_ptr(),
                stride: self.width,
                panel_stride: *panel,
            },
            PanelValues::Tiles(groups) => Right::Tiles(groups[group].columns_from(first)),
        }
    }
}

/// Where the positions of a grid lie in the result: position `(i, j)` of the grid is position
/// `(first + i * step)` of the maps.
struct Target {
    maps: Maps,
    first: [usize; 2],
    step: [usize; 2],
}

/// Sets every position of `target`'s grid in `out` to the product of its window with the weights; or adds it to what
/// is there, which only the depthwise kernel cannot.
///
/// `after` is called for every tile of a result whose grid is all its positions; what it returns comes in
/// the order of the tiles.
fn correlate<T: Send>(
    windows: &Windows,
    groups: usize,
    source: &Source<'_>,
    weights: &Weights,
    target: &Target,
    out: &mut [f32],
    add: bool,
    after: Option<After<'_, T>>,
) -> Vec<T> {
    assert_eq!(out.len(), target.maps.len());
    assert_eq!(source.len(), windows.source.len());
    assert!(
        after.is_none() || target.step == [1, 1] && windows.grid == [target.maps.height, target.maps.width]
    );
    let channels = windows.source.channels / groups;
    let columns = target.maps.channels / groups;
    let shared = Shared(out.as_mut_ptr());
    let tiles = windows.tiles();
    // Where there are too few tiles for all threads, as with a single image, the columns are split, too. Every
    // element is computed alike, however they are.
    let (columns_of_split, splits) = match weights {
        Weights::Panels(panels) if after.is_none() => {
            let count = columns.div_ceil(panels.width);
            let splits = (2 * rayon::current_num_threads()).div_ceil(tiles.len());
            let of_split = count.div_ceil(splits).max(1);
            (of_split * panels.width, count.div_ceil(of_split).max(1))
        }
        _ => (columns, 1),
    };
    let work = |task: usize| {
        let (tile, first_column) = (tiles[task / splits], task % splits * columns_of_split);
        windows.with_view(source, tile, |view| {
            let pixel = |image: usize, i: usize, j: usize| {
                let y = target.first[0] + (tile.first_row + i) * target.step[0];
                let x = target.first[1] + j * target.step[1];
                (((tile.first_image + image) * target.maps.height + y) * target.maps.width + x)
                    * target.maps.channels
            };
            let rows_a = windows.positions(tile, &view);
            let mut rows_c = Vec::with_capacity(rows_a.len());
            for image in 0..tile.images {
                for i in 0..tile.rows {
                    rows_c.extend((0..windows.grid[1]).map(|j| pixel(image, i, j)));
                }
            }
            match weights {
                Weights::Rows(rows) => {
                    assert!(!add, "the depthwise kernel does not add");
                    let product = depthwise::Product {
                        x: view.values,
                        positions: &rows_a,
                        taps: &windows.taps(&view),
                        weights: rows,
                        channels: target.maps.channels,
                        out: shared.address(),
                        out_positions: &rows_c,
                    };
                    // SAFETY: positions of `out` lie inside it and belong to one tile only.
                    unsafe { product.compute() };
                }
                Weights::Panels(panels) => {
                    let factors = panels.factors;
                    for group in 0..groups {
                        let runs = windows.runs(group * channels, channels, &view);
                        let product = Product {
                            a: view.values.as_ptr(),
                            rows_a: &rows_a,
                            step: 1,
                            chunks: &chunks(&runs, 1, factors),
                            right: panels.right(group, first_column),
                            factors,
                            c: shared.address().wrapping_add(group * columns + first_column),
                            rows_c: &rows_c,
                            columns: columns_of_split.min(columns - first_column),
                            accumulate: add,
                            ahead: if group == 0 { view.next } else { &[] },
                        };
                        // SAFETY: the view holds every window of the tile; the panels hold one row of whole
                        // vectors per window element; positions of `out` belong to one tile only, and a
                        // position's channels to one group and split only.
                        unsafe { product.compute() };
                    }
                }
            }
            after.map(|after| {
                let positions = tile.images * tile.rows * windows.grid[1];
                // SAFETY: the tile's positions are consecutive in `out` and belong to it alone.
                let values = unsafe {
                    std::slice::from_raw_parts_mut(
                        shared.address().wrapping_add(rows_c[0]),
                        positions * target.maps.channels,
                    )
                };
                after(rows_c[0], values)
            })
        })
    };
    (0..tiles.len() * splits).into_par_iter().with_max_len(1).filter_map(work).collect()
}

/// The convolution `y[n, o, i, j] = sum over taps and channels of x * weight (+ bias[o])`, and what
/// `after` returned for its parts.
///
/// `weight` is `[channels out, channels in / groups, height, width]` in this order; `x` and the
/// result have the channels innermost.
pub(crate) fn forward<T: Send>(
    x: &Source<'_>,
    weight: &[f32],
    bias: Option<&[f32]>,
    sizes: &Geometry,
    after: Option<After<'_, T>>,
) -> (Buffer, Vec<T>) {
    let _measured = profile::convolution("convolution", sizes, 1);
    let (channels, taps) = (sizes.channels_in_group(), sizes.taps());
    let columns = sizes.channels_out_group();
    let weights = Weights::pack(
        weight,
        &Order {
            groups: sizes.groups,
            channels,
            columns,
            taps: (0..taps).collect(),
            channel_step: taps,
            column_step: channels * taps,
            group_step: columns * channels * taps,
        },
        Factors::current(),
    );
    let mut y = Buffer::new(sizes.output.len());
    let target = Target { maps: sizes.output, first: [0, 0], step: [1, 1] };
    let parts = correlate(&sizes.windows(), sizes.groups, x, &weights, &target, &mut y, false, after);
    if let Some(bias) = bias {
        y.par_chunks_mut(bias.len() * 256).for_each(|pixels| {
            for pixel in pixels.chunks_exact_mut(bias.len()) {
                for (value, bias) in pixel.iter_mut().zip(bias) {
                    *value += bias;
                }
            }
        });
    }
    (y, parts)
}

/// One of the interleaved grids of input positions that a stride makes: which windows over the output
/// gradient its positions meet, by which taps of the kernel.
struct Grid {
    windows: Windows,
    taps: [Vec<usize>; 2],
    target: Target,
}

impl Grid {
    /// Input position `first + i * stride` meets output position
    /// `i + (first + padding - tap * dilation) / stride` for the taps that divide evenly.
    fn all(sizes: &Geometry) -> Vec<Grid> {
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
                    },
                });
            }
        }
        grids
    }

    fn is_empty(&self) -> bool {
        self.taps.iter().any(Vec::is_empty)
    }

    fn pack(&self, weight: &[f32], sizes: &Geometry) -> Weights {
        let (channels, columns, taps) = (sizes.channels_out_group(), sizes.channels_in_group(), sizes.taps());
        let [rows, row_taps] = &self.taps;
        let of_row = |a: &usize| {
            let first = a * sizes.kernel[1];
            row_taps.iter().map(move |b| first + b)
        };
        Weights::pack(
            weight,
            &Order {
                groups: sizes.groups,
                channels,
                columns,
                taps: rows.iter().flat_map(of_row).collect(),
                channel_step: columns * taps,
                column_step: taps,
                group_step: channels * columns * taps,
            },
            Factors::current(),
        )
    }
}

/// The gradient with respect to `x`, and what `after` returned for its parts.
///
/// It is added to `earlier`, and none is returned, if that is given, which it cannot be for a depthwise
/// convolution.
pub(crate) fn input_gradient<T: Send>(
    weight: &[f32],
    dy: &Source<'_>,
    sizes: &Geometry,
    earlier: Option<&mut [f32]>,
    after: Option<After<'_, T>>,
) -> (Option<Buffer>, Vec<T>) {
    let _measured = profile::convolution("convolution, input gradient", sizes, 1);
    let add = earlier.is_some();
    let mut own = Buffer::unless(add, sizes.input.len());
    let dx = earlier.or(own.as_deref_mut()).expect("one of the two");
    let grids = Grid::all(sizes);
    if let [grid] = &grids[..]
        && sizes.stride == [1, 1]
    {
        let weights = grid.pack(weight, sizes);
        let parts = correlate(&grid.windows, sizes.groups, dy, &weights, &grid.target, dx, add, after);
        return (own, parts);
    }
    if !add && grids.iter().any(Grid::is_empty) {
        // Some positions are in no window.
        dx.fill(0.0);
    }
    for grid in grids.iter().filter(|grid| !grid.is_empty()) {
        let weights = grid.pack(weight, sizes);
        correlate::<()>(&grid.windows, sizes.groups, dy, &weights, &grid.target, dx, add, None);
    }
    let row = sizes.input.width * sizes.input.channels;
    let part = row * (TILE_ELEMENTS / row).max(1);
    let parts = after.map_or(vec![], |after| {
        dx.par_chunks_mut(part).enumerate().map(|(index, dx)| after(index * part, dx)).collect()
    });
    (own, parts)
}

/// Both gradients of a convolution.
pub(crate) struct BothGradients<T> {
    /// None if it was added to an earlier one.
    pub(crate) input: Option<Buffer>,
    /// What was returned for the parts of `input`.
    pub(crate) parts: Vec<T>,
    pub(crate) weight: Buffer,
}

/// [`input_gradient`] and [`weight_gradient`]; in one pass over the maps where a convolution does little with
/// each value: if it is pointwise or depthwise, of stride 1.
pub(crate) fn both_gradients<T: Send>(
    x: &Source<'_>,
    weight: &[f32],
    dy: &Source<'_>,
    sizes: &Geometry,
    earlier: Option<&mut [f32]>,
    after: Option<After<'_, T>>,
) -> BothGradients<T> {
    let pointwise = sizes.groups == 1 && sizes.taps() == 1 && sizes.padding == [0, 0];
    let in_one_pass = sizes.stride == [1, 1]
        && sizes.input.height == sizes.output.height
        && sizes.input.width == sizes.output.width
        && (pointwise || sizes.is_depthwise());
    if !in_one_pass {
        let (input, parts) = input_gradient(weight, dy, sizes, earlier, after);
        return BothGradients { input, parts, weight: weight_gradient(x, dy, sizes) };
    }
    let _measured = profile::convolution("convolution, both gradients", sizes, 2);
    let grids = Grid::all(sizes);
    let [grid] = &grids[..] else { unreachable!("stride 1 makes one grid") };
    let weights = grid.pack(weight, sizes);
    let (inputs, outputs) = (sizes.input.channels, sizes.output.channels);
    // The longer rows are the right factor of the weight gradient's product: they fill the vectors.
    let (short, long) = (inputs.min(outputs), inputs.max(outputs));
    let input_is_long = inputs > outputs;
    let part_len = weight.len();
    let tiles = grid.windows.tiles_of(long, TILE_POSITIONS);
    let parts = tiles.len().min((PARTS_ELEMENTS / part_len).clamp(FEWEST_PARTS, MOST_PARTS));
    let per_part = tiles.len().div_ceil(parts);
    let parts = tiles.len().div_ceil(per_part);
    let mut sums = match &weights {
        Weights::Rows(_) => Buffer::zeros(parts * part_len),
        Weights::Panels(_) => Buffer::new(parts * part_len),
    };
    let add = earlier.is_some();
    assert!(!(add && sizes.is_depthwise()), "the depthwise kernel does not add");
    let mut own = Buffer::unless(add, sizes.input.len());
    let dx = earlier.or(own.as_deref_mut()).expect("one of the two");
    assert_eq!(dx.len(), sizes.input.len());
    let shared = Shared(dx.as_mut_ptr());
    let of_tile = |index: usize, tile: Tile, sums: &mut [f32]| {
        let first_position = (tile.first_image * sizes.input.height + tile.first_row) * sizes.input.width;
        let positions = tile.images * tile.rows * sizes.input.width;
        // SAFETY: the tile's positions are consecutive in `dx` and belong to it alone.
        let dx = unsafe {
            std::slice::from_raw_parts_mut(
                shared.address().wrapping_add(first_position * inputs),
                positions * inputs,
            )
        };
        let dx_positions: Vec<usize> = (0..positions).map(|position| position * inputs).collect();
        with_tile(x, 1, first_position * inputs, [positions, inputs], |x, x_pitch| match &weights {
            Weights::Rows(rows) => grid.windows.with_view(dy, tile, |view| {
                let (at, taps) = (grid.windows.positions(tile, &view), grid.windows.taps(&view));
                let product = depthwise::Product {
                    x: view.values,
                    positions: &at,
                    taps: &taps,
                    weights: rows,
                    channels: inputs,
                    out: dx.as_mut_ptr(),
                    out_positions: &dx_positions,
                };
                // SAFETY: the positions of `dx` are those of the tile.
                unsafe { product.compute() };
                depthwise::add_sums(view.values, &at, &taps, x, x_pitch, sums);
            }),
            Weights::Panels(panels) => {
                with_tile(dy, 0, first_position * outputs, [positions, outputs], |dy, dy_pitch| {
                    let dy_positions: Vec<usize> =
                        (0..positions).map(|position| position * dy_pitch).collect();
                    let of_input = Product {
                        a: dy.as_ptr(),
                        rows_a: &dy_positions,
                        step: 1,
                        chunks: &chunks(&[Run { offset: 0, len: outputs }], 1, panels.factors),
                        right: panels.right(0, 0),
                        factors: panels.factors,
                        c: dx.as_mut_ptr(),
                        rows_c: &dx_positions,
                        columns: inputs,
                        accumulate: add,
                        ahead: &[],
                    };
                    // SAFETY: `dy` has a row of `outputs` values for every position, the panels one row of
                    // whole vectors for each of these, `dx` a row of `inputs` values for every position.
                    unsafe { of_input.compute() };
                    let next = behind(x, positions * x_pitch);
                    let (dy, x) = ((dy, dy_pitch), (x, x_pitch));
                    let ((left, step), (right, stride)) = if input_is_long { (dy, x) } else { (x, dy) };
                    let of_weight = Product {
                        a: left.as_ptr(),
                        rows_a: &(0..short).collect::<Vec<_>>(),
                        step,
                        chunks: &chunks(&[Run { offset: 0, len: positions }], step, panels.factors),
                        right: Right::Rows { b: right.as_ptr(), stride, panel_stride: panel_width() },
                        factors: panels.factors,
                        c: sums.as_mut_ptr(),
                        rows_c: &(0..short).map(|row| row * long).collect::<Vec<_>>(),
                        columns: long,
                        accumulate: index > 0,
                        // Behind a copy lies one vector, which does no harm.
                        ahead: next,
                    };
                    // SAFETY: the left factor has a row of `short` values for every position, the right one a row
                    // of `long` values, readable up to a whole vector behind the last one (`with_tile`); `sums`
                    // is `short` rows of `long` values and this part's own.
                    unsafe { of_weight.compute() };
                })
            }
        });
        after.map(|after| after(first_position * inputs, dx))
    };
    let of_parts: Vec<Vec<T>> = sums
        .par_chunks_mut(part_len)
        .zip(tiles.par_chunks(per_part))
        .with_max_len(1)
        .map(|(sums, tiles)| {
            tiles.iter().enumerate().filter_map(|(index, tile)| of_tile(index, *tile, sums)).collect()
        })
        .collect();
    let total = join_parts(&mut sums, part_len);
    let mut gradient = Buffer::new(part_len);
    match &weights {
        Weights::Rows(_) => {
            let taps = sizes.taps();
            let [row_taps, column_taps] = &grid.taps;
            let order =
                row_taps.iter().flat_map(|a| column_taps.iter().map(move |b| a * sizes.kernel[1] + b));
            for (of_tap, tap) in total.chunks_exact(inputs).zip(order) {
                for (channel, value) in of_tap.iter().enumerate() {
                    gradient[channel * taps + tap] = *value;
                }
            }
        }
        Weights::Panels(_) if input_is_long => gradient.copy_from_slice(total),
        Weights::Panels(_) => by_column(total, [1, inputs], outputs, &mut gradient),
    }
    BothGradients { input: own, parts: of_parts.into_iter().flatten().collect(), weight: gradient }
}

/// Calls `work` with `positions` of `channels` elements of `source`, from element `first` on, and how far apart
/// they are: where they lie or in scratch memory `slot`. One vector more than these may be read.
fn with_tile<R>(
    source: &Source<'_>,
    slot: usize,
    first: usize,
    [positions, channels]: [usize; 2],
    work: impl FnOnce(&[f32], usize) -> R,
) -> R {
    let pitch = pitch(channels);
    if let Some(values) = source.values(first)
        && pitch == channels
        && values.len() >= positions * channels + MAX_PANEL
    {
        return work(values, channels);
    }
    with_scratch(slot, positions * pitch + MAX_PANEL, |copy| {
        source.copy_apart(first, channels, pitch, &mut copy[..positions * pitch]);
        work(copy, pitch)
    })
}

/// Adds all parts of `sums`, `len` elements each, in their order, and returns the total.
fn join_parts(sums: &mut [f32], len: usize) -> &[f32] {
    const STRETCH: usize = 4096;
    let (first, others) = sums.split_at_mut(len);
    first.par_chunks_mut(STRETCH).enumerate().for_each(|(index, total)| {
        for part in others.chunks_exact(len) {
            let part = &part[index * STRETCH..][..total.len()];
            for (total, part) in total.iter_mut().zip(part) {
                *total += part;
            }
        }
    });
    first
}
/// The gradient with respect to the weight, in the weight's order.
///
/// Images are summed in up to [`MOST_PARTS`] runs of neighbours, fewer for larger weights, and the
/// runs in order: the bits do not depend on the number of threads.
pub(crate) fn weight_gradient(x: &Source<'_>, dy: &Source<'_>, sizes: &Geometry) -> Buffer {
    let _measured = profile::convolution("convolution, weight gradient", sizes, 1);
    assert_eq!(x.len(), sizes.input.len());
    assert_eq!(dy.len(), sizes.output.len());
    let factors = Factors::current();
    let windows = sizes.windows();
    let (channels, columns) = (sizes.channels_in_group(), sizes.channels_out_group());
    let (window, groups) = (sizes.window(), sizes.groups);
    let part_len = groups * window * columns;
    let images = sizes.input.images;
    let per_part = images.div_ceil((PARTS_ELEMENTS / part_len).clamp(1, MOST_PARTS));
    let parts = images.div_ceil(per_part);
    let tiles = windows.tiles_of(sizes.input.channels, GRADIENT_POSITIONS);
    // Depthwise sums are kept as one row of channels per tap, the transpose of the usual order.
    let depthwise = sizes.is_depthwise();
    // A part's window elements are split further so that all threads have work.
    let blocks = window.div_ceil(BLOCK_ROWS);
    let splits = (2 * rayon::current_num_threads()).div_ceil(parts);
    let splits = if depthwise { 1 } else { splits.clamp(1, blocks) };
    let split_rows = blocks.div_ceil(splits) * BLOCK_ROWS;
    let splits = window.div_ceil(split_rows);

    let mut sums = if depthwise { Buffer::zeros(parts * part_len) } else { Buffer::new(parts * part_len) };
    let shared = Shared(sums.as_mut_ptr());
    (0..parts * splits).into_par_iter().with_max_len(1).for_each(|task| {
        let (part, split) = (task / splits, task % splits);
        let first_image = part * per_part;
        let last_image = images.min(first_image + per_part);
        let rows = split * split_rows..window.min((split + 1) * split_rows);
        let rows_c: Vec<usize> = rows.clone().map(|row| row * columns).collect();
        let tiles = tiles.iter().filter_map(|tile| clip(*tile, first_image, last_image));
        for (index, tile) in tiles.enumerate() {
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
                    let (first, per_position) = tile_positions(tile, sizes.output);
                    with_tile(dy, 1, first, per_position, |dy, pitch| {
                        let taps = windows.taps(&view);
                        depthwise::add_sums(view.values, &positions, &taps, dy, pitch, sums);
                    });
                    return;
                }
                let positions = tile_runs(&windows, tile, &view);
                let terms = chunks(&positions, sizes.stride[1] * view.pitch, factors);
                let (first, per_position) = tile_positions(tile, sizes.output);
                with_tile(dy, 1, first, per_position, |dy, pitch| {
                    for group in 0..groups {
                        let rows_a: Vec<usize> = rows
                            .clone()
                            .map(|row| {
                                let (tap, channel) = (row / channels, row % channels);
                                let (a, b) = (tap / sizes.kernel[1], tap % sizes.kernel[1]);
                                windows.tap(a, b, &view) + group * channels + channel
                            })
                            .collect();
                        let product = Product {
                            a: view.values.as_ptr(),
                            rows_a: &rows_a,
                            step: sizes.stride[1] * view.pitch,
                            chunks: &terms,
                            right: Right::Rows {
                                b: dy[group * columns..].as_ptr(),
                                stride: pitch,
                                panel_stride: panel_width(),
                            },
                            factors,
                            c: shared.address().wrapping_add(part * part_len + group * window * columns),
                            rows_c: &rows_c,
                            columns,
                            accumulate: index > 0,
                            ahead: &[],
                        };
                        // SAFETY: the view holds every window of the tile; the right factor has one row per
                        // position and whole vectors behind its last one can be read (`with_tile`); the rows
                        // of this part and split are this task's own.
                        unsafe { product.compute() };
                    }
                });
            });
        }
    });

    let total = join_parts(&mut sums, part_len);
    let mut gradient = Buffer::new(part_len);
    let taps = sizes.taps();
    if depthwise {
        transpose(total, taps, groups, &mut gradient);
    } else {
        let of_group = window * columns;
        for (total, gradient) in total.chunks_exact(of_group).zip(gradient.chunks_exact_mut(of_group)) {
            by_column(total, [taps, channels], columns, gradient);
        }
    }
    gradient
}

/// Sums with one row of `columns` per window element (tap, channel) in the order of a weight: by column,
/// channel and tap.
fn by_column(sums: &[f32], [taps, channels]: [usize; 2], columns: usize, weight: &mut [f32]) {
    let window = taps * channels;
    let rows = Elements { taps, channels, pitch: columns };
    weight.par_chunks_mut(window * transpose::SIDE).enumerate().for_each(|(block, weight)| {
        let columns = weight.len() / window;
        rows.for_blocks(block * transpose::SIDE, |element, sources| {
            transpose::block(sums, sources, weight, &transpose::starts(element, window)[..columns]);
        });
    });
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
            runs.push(Run { offset: row * view.row_pixels * view.pitch, len: windows.grid[1] });
        }
    }
    runs
}

/// The first element of `maps` at a tile's grid positions, which are consecutive; their number and the elements
/// of each.
fn tile_positions(tile: Tile, maps: Maps) -> (usize, [usize; 2]) {
    let first = (tile.first_image * maps.height + tile.first_row) * maps.width;
    (first * maps.channels, [tile.images * tile.rows * maps.width, maps.channels])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bf16::{self, Unit};

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
            (2, 3, 4, 3, [1, 1], [3, 3], [1, 1], [1, 1]),
            (2, 3, 3, 1, [2, 5], [1, 1], [1, 1], [0, 0]),
            (2, 3, 3, 1, [3, 1], [1, 1], [1, 1], [0, 0]),
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
            let (of_x, of_dy) = (Source::Values(&x), Source::Values(&dy));
            let check = || {
                assert_eq!(forward::<()>(&of_x, &weight, None, &sizes, None).0[..], y, "{sizes:?}");
                let of_input = input_gradient::<()>(&weight, &of_dy, &sizes, None, None).0.unwrap();
                assert_eq!(of_input[..], dx, "{sizes:?}");
                assert_eq!(weight_gradient(&of_x, &of_dy, &sizes)[..], dw, "{sizes:?}");
                let both = both_gradients::<()>(&of_x, &weight, &of_dy, &sizes, None, None);
                assert_eq!(both.input.unwrap()[..], dx, "{sizes:?}");
                assert_eq!(both.weight[..], dw, "{sizes:?}");
                if sizes.is_depthwise() {
                    return;
                }
                // Added to what is there, twice.
                let mut sum: Vec<f32> = (0..dx.len()).map(|i| small(i + 1)).collect();
                let wanted: Vec<f32> = sum.iter().zip(&dx).map(|(sum, dx)| sum + 2.0 * dx).collect();
                let none = input_gradient::<()>(&weight, &of_dy, &sizes, Some(&mut sum), None).0;
                assert!(none.is_none());
                both_gradients::<()>(&of_x, &weight, &of_dy, &sizes, Some(&mut sum), None);
                assert_eq!(sum, wanted, "{sizes:?}");
            };
            check();
            // Miri takes minutes for all of them.
            let units = [Unit::Plain].into_iter().chain(bf16::units());
            for unit in units.filter(|_| !cfg!(miri) || kernel == [1, 1]) {
                Factors::Bf16(unit).scope(check);
            }
        }
    }
}
