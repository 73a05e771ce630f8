//! The convolutions of an inverted residual block (Sandler et al. 2018): expansion, depthwise convolution, projection. With
//! squeeze and excitation before the projection (Tan & Le 2019), the first two. In place of the expansion, the first block has
//! the convolution of the images.
//!
//! The maps between them have several times the channels of the block's input and result, and little is computed per
//! value. Some rows are computed at a time, from the input to the result, so that these maps stay in the cache and are
//! never written as a whole. The result has the bits of the three convolutions one after the other.

use std::ops::Range;

use rayon::prelude::*;

use super::order::Order;
use super::pack::{Panels, rows_of_taps};
use super::prepared::padded;
use super::source::Source;
use super::windows::{Tile, View, Windows};
use crate::buffer::{Buffer, LINE, with_scratch};
use crate::depthwise;
use crate::disjoint::Disjoint;
use crate::geometry::Geometry;
use crate::maps::Maps;
use crate::norm::Activation;
use crate::product::{self, Finish, Product, Products, Run, chunks};
use crate::profile;
use crate::shares::Shares;

/// Elements of the rows between the convolutions: half of a second-level cache of 1 MiB, or less.
const ROWS_ELEMENTS: usize = 96 * 1024;

/// Positions of the result of which a task takes no fewer at a time, so that the products have some whole blocks of rows.
const FEWEST_POSITIONS: usize = 24;

/// Most channels of images.
const MOST_OF_IMAGES: usize = 4;

/// A convolution of a block: a contiguous weight `[channels out, channels in / groups, height, width]`, a bias, and the
/// activation after them. `sizes` are those of one image.
pub(crate) struct Layer<'a> {
    pub(crate) weight: &'a [f32],
    pub(crate) bias: &'a [f32],
    pub(crate) sizes: Geometry,
    pub(crate) activation: Activation,
}

impl Layer<'_> {
    fn is_depthwise(&self) -> bool {
        self.sizes.is_depthwise() && self.sizes.dilation == [1, 1]
    }

    /// Whether it can be the convolution before the depthwise one.
    fn is_expansion(&self) -> bool {
        let Geometry { input, groups, dilation, .. } = &self.sizes;
        let of_images = *groups == 1 && *dilation == [1, 1] && input.channels <= MOST_OF_IMAGES;
        of_images || self.sizes.is_pointwise()
    }
}

/// The layers of a block. There is an expansion, a projection, or both.
#[derive(Clone, Copy)]
struct Parts<'a> {
    expansion: Option<&'a Layer<'a>>,
    depthwise: &'a Layer<'a>,
    projection: Option<&'a Layer<'a>>,
}

impl<'a> Parts<'a> {
    fn of(layers: &'a [Layer<'a>]) -> Option<Self> {
        let index = layers.iter().position(Layer::is_depthwise)?;
        let (expansion, depthwise, projection) = match (index, layers) {
            (0, [depthwise, projection]) => (None, depthwise, Some(projection)),
            (1, [expansion, depthwise]) => (Some(expansion), depthwise, None),
            (1, [expansion, depthwise, projection]) => (Some(expansion), depthwise, Some(projection)),
            _ => return None,
        };
        let fit = expansion.is_none_or(Layer::is_expansion)
            && projection.is_none_or(|layer| layer.sizes.is_pointwise());
        fit.then_some(Self { expansion, depthwise, projection })
    }
}

/// The convolutions, prepared.
pub(crate) struct InvertedResidual {
    /// Without it, the depthwise convolution reads the block's input.
    expansion: Option<Dense>,
    depthwise: Depthwise,
    /// Without it, the result is that of the depthwise convolution.
    projection: Option<Dense>,
}

impl InvertedResidual {
    /// Whether these convolutions, one after the other, are such a block, and it is faster to compute them together: where
    /// reading the weights for each image costs less than reading and writing the maps between the convolutions.
    pub(crate) fn fits(layers: &[Layer<'_>]) -> bool {
        Parts::of(layers).is_some_and(|Parts { expansion, depthwise, projection }| {
            let Maps { height, width, .. } = depthwise.sizes.input;
            let inputs = expansion.map_or(0, |expansion| expansion.sizes.input.channels);
            let outputs = projection.map_or(0, |projection| projection.sizes.output.channels);
            height * width >= inputs + outputs
        })
    }

    /// # Panics
    ///
    /// If the layers are not those of a block.
    pub(crate) fn new(layers: &[Layer<'_>], products: Products) -> Self {
        let Parts { expansion, depthwise, projection } = Parts::of(layers).expect("the layers of a block");
        Self {
            expansion: expansion.map(|layer| Dense::new(layer, products)),
            depthwise: Depthwise::new(depthwise),
            projection: projection.map(|layer| Dense::new(layer, products)),
        }
    }

    /// Whether it reads a copy of its input, so that this may be images with the channels outermost.
    pub(crate) fn reads_copy(&self) -> bool {
        self.expansion.as_ref().is_none_or(Dense::reads_copy)
    }

    /// Writes the result for `images` maps `x`, plus `add`, maps of the result's sizes. Without a projection, nothing is added.
    ///
    /// # Panics
    ///
    /// If `x` is not in memory with the channels innermost, unless it [`reads_copy`](Self::reads_copy).
    pub(crate) fn run(&self, x: Source<'_>, images: usize, add: Option<&[f32]>, y: &mut [f32]) {
        let sizes = &self.depthwise.sizes;
        let _measured =
            profile::sized("inverted residual", &self.described(images), images * self.multiply_adds());
        assert_eq!([x.len(), y.len()], [self.input(), self.output()].map(|maps| images * maps.len()));
        let height = sizes.output.height;
        let rows = images * height;
        if rows == 0 {
            return;
        }
        let tasks = rayon::current_num_threads().min(rows);
        let shares = Shares::new(rows, tasks);
        let at_a_time = at_a_time(rows.div_ceil(tasks), tasks).min(height);
        let layout = Layout::new(self, at_a_time);
        let places = Places::new(self, &layout);
        let pass = Pass { block: self, x, add, out: Disjoint::new(y), layout, places };
        (0..tasks).into_par_iter().with_max_len(1).for_each(|task| {
            // SAFETY: only these tasks access the result, each the rows that it gets of the shares.
            unsafe { pass.rows(&shares, task) };
        });
    }

    /// The maps of one image that it reads.
    fn input(&self) -> Maps {
        self.expansion.as_ref().map_or(self.depthwise.sizes.input, |layer| layer.sizes.input)
    }

    /// Those of the result.
    fn output(&self) -> Maps {
        self.projection.as_ref().map_or(self.depthwise.sizes.output, |layer| layer.sizes.output)
    }

    /// The block as one convolution, for the profile.
    fn described(&self, images: usize) -> Geometry {
        let [input, output] = [self.input(), self.output()].map(|maps| Maps { images, ..maps });
        Geometry { input, output, ..self.depthwise.sizes.clone() }
    }

    /// Of one image.
    fn multiply_adds(&self) -> usize {
        let all = [self.expansion.as_ref(), self.projection.as_ref()].into_iter().flatten();
        let all = all.map(|layer| &layer.sizes).chain([&self.depthwise.sizes]);
        all.map(|sizes| sizes.output.len() * sizes.taps() * sizes.channels_in_group()).sum()
    }
}

/// Rows of the result that a task takes at a time of those that it has left: half, so that another one can take the rest.
fn at_a_time(left: usize, tasks: usize) -> usize {
    if tasks > 1 { left.div_ceil(2) } else { left }
}

/// Rows of the result of a convolution of one image.
fn tile(image: usize, rows: Range<usize>) -> Tile {
    Tile { first_image: image, images: 1, first_row: rows.start, rows: rows.len() }
}

/// What the tasks of a block have in common.
struct Pass<'a> {
    block: &'a InvertedResidual,
    x: Source<'a>,
    add: Option<&'a [f32]>,
    out: Disjoint<'a>,
    layout: Layout,
    places: Places,
}

impl Pass<'_> {
    /// The rows that a task gets, of those of all images one after the other.
    ///
    /// # Safety
    ///
    /// Nothing else accesses these rows of `out` during the call.
    unsafe fn rows(&self, shares: &Shares, task: usize) {
        let Self { layout, .. } = self;
        let Maps { height, width, .. } = self.block.depthwise.sizes.output;
        let fewest = FEWEST_POSITIONS.div_ceil(width);
        let some = |left: Range<usize>| {
            let of_image = height - left.start % height;
            at_a_time(left.len(), shares.tasks()).max(fewest).min(layout.step).min(of_image)
        };
        let Some(first) = shares.take(task, some) else { return };
        with_scratch(0, layout.wide(), |wide| {
            with_scratch(1, layout.narrow, |narrow| {
                layout.clear_border(wide);
                // The end of the rows before.
                let mut end = None;
                let all = std::iter::once(first).chain(std::iter::from_fn(|| shares.take(task, some)));
                for rows in all {
                    let follows = end == Some(rows.start) && !rows.start.is_multiple_of(height);
                    end = Some(rows.end);
                    // SAFETY: the caller's promise.
                    unsafe { self.some_rows(rows, follows, wide, narrow) };
                }
            });
        });
    }

    /// Rows of one image. If they follow the rows before, what these needed of the expanded maps is in the ring.
    ///
    /// # Safety
    ///
    /// As [`rows`](Self::rows).
    unsafe fn some_rows(&self, rows: Range<usize>, follows: bool, wide: &mut [f32], narrow: &mut [f32]) {
        let Self { block, add, out, layout, places, .. } = self;
        let InvertedResidual { depthwise, projection, .. } = block;
        let Maps { height, width, .. } = depthwise.sizes.output;
        let image = rows.start / height;
        let some = rows.start % height..rows.start % height + rows.len();
        let mut read = depthwise.rows_read(some.start).start..depthwise.rows_read(some.end - 1).end;
        if follows {
            let done = depthwise.rows_read(some.start - 1).end;
            read = read.start.max(done)..read.end.max(done);
        }
        self.expand(image, read, wide, narrow);

        let channels = block.output().channels;
        let first = rows.start * width * channels;
        let (result, to) = (out.starting_at(first), &places.result[..rows.len() * width]);
        let Some(projection) = projection else {
            // SAFETY: the caller's promise.
            return unsafe { depthwise.run(wide, some, layout, &places.windows, result, to) };
        };
        let from = &places.narrow[..rows.len() * width];
        let add = add.map(|values| (&values[first..], to));
        // SAFETY: `narrow` is borrowed mutably; the caller's promise.
        unsafe {
            depthwise.run(wide, some, layout, &places.windows, Disjoint::new(narrow), from);
            projection.run(narrow, from, result, to, add);
        }
    }

    /// Writes the rows `read` of an image's expanded maps to their places in `wide`; `copy` is memory for rows of the image.
    fn expand(&self, image: usize, read: Range<usize>, wide: &mut [f32], copy: &mut [f32]) {
        if read.is_empty() {
            return;
        }
        let Self { block, layout, places, .. } = self;
        let (x, width) = (block.input(), block.depthwise.sizes.input.width);
        let first = |row: usize| (image * x.height + row) * x.width * x.channels;
        let Some(expansion) = &block.expansion else {
            for row in read {
                let to = &mut wide[layout.row(row) + layout.left * layout.pitch..];
                let to = &mut to[..(width - 1) * layout.pitch + x.channels];
                self.x.copy_with_pitch(first(row), x.channels, layout.pitch, to);
            }
            return;
        };
        let count = read.len() * width;
        let to = &places.wide[read.start % layout.ring * width..][..count];
        let from = match expansion.reads_copy() {
            true => expansion.windows.copy(&self.x, tile(image, read), copy).values,
            false => self.x.values(first(read.start)).expect("maps with the channels innermost"),
        };
        // SAFETY: `wide` is borrowed mutably.
        unsafe { expansion.run(from, &places.input[..count], Disjoint::new(wide), to, None) };
    }
}

/// The first elements of positions.
struct Places {
    /// Of the block's input, or of the copy of its rows, from a row on.
    input: Vec<usize>,
    /// Of the ring, twice: rows of it that follow each other are also here one after the other. None without an expansion.
    wide: Vec<usize>,
    /// The windows of a row, from that of the first one on.
    windows: Vec<usize>,
    /// Of the depthwise convolution's result before a projection.
    narrow: Vec<usize>,
    /// Of the block's result, from a row on.
    result: Vec<usize>,
}

impl Places {
    fn new(block: &InvertedResidual, layout: &Layout) -> Self {
        let Geometry { input, output, stride, .. } = &block.depthwise.sizes;
        let list = |count: usize, step: usize| (0..count).map(|i| i * step).collect();
        let place = |i: usize| layout.row(i / input.width) + (layout.left + i % input.width) * layout.pitch;
        let results = layout.step * output.width;
        let projected = if block.projection.is_some() { results } else { 0 };
        let expanded = if block.expansion.is_some() { layout.ring * input.width } else { 0 };
        Self {
            input: match &block.expansion {
                Some(expansion) => {
                    expansion.windows.positions(tile(0, 0..layout.ring), &expansion.view(layout.ring))
                }
                None => Vec::new(),
            },
            wide: (0..2 * expanded).map(place).collect(),
            windows: list(output.width, stride[1] * layout.pitch),
            narrow: list(projected, layout.pitch),
            result: list(results, block.output().channels),
        }
    }
}

/// A convolution of all channels: a 1 x 1 one, or that of images.
struct Dense {
    panels: Panels,
    /// [`padded`].
    bias: Vec<f32>,
    activation: Activation,
    /// Those of one image.
    sizes: Geometry,
    windows: Windows,
    /// The terms of the product.
    terms: Vec<(usize, Vec<Run>)>,
}

impl Dense {
    fn new(layer: &Layer<'_>, products: Products) -> Self {
        let Layer { weight, bias, sizes, activation } = layer;
        let precision = products.choice(sizes.is_of_rows()).precision;
        let mut dense = Self {
            panels: Panels::pack(weight, &Order::of_forward(sizes), precision),
            bias: padded(bias),
            activation: *activation,
            sizes: sizes.clone(),
            windows: Windows::forward(sizes),
            terms: Vec::new(),
        };
        let runs = dense.windows.runs(0, sizes.input.channels, &dense.view(1));
        dense.terms = chunks(&runs, 1, precision);
        dense
    }

    /// Whether its windows are those of a copy with a border of zeros.
    fn reads_copy(&self) -> bool {
        !self.sizes.is_pointwise()
    }

    /// Elements of the copy for so many rows of the result, at least one.
    fn copied(&self, rows: usize) -> usize {
        if self.reads_copy() { self.windows.copy_len(tile(0, 0..rows)) } else { 0 }
    }

    /// The sizes of what it reads for so many rows of the result: of the image, or of the copy.
    fn view(&self, rows: usize) -> View<'static> {
        let Maps { height, width, channels, .. } = self.sizes.input;
        match self.reads_copy() {
            true => self.windows.view_of_copy(tile(0, 0..rows), &[]),
            false => View { values: &[], next: &[], image_rows: height, row_pixels: width, pitch: channels },
        }
    }

    /// The result for the positions that start at `from` is written from `to` on, plus the values from each of `add`'s.
    ///
    /// # Safety
    ///
    /// Nothing else accesses the channels from `to` on during the call.
    unsafe fn run(
        &self,
        x: &[f32],
        from: &[usize],
        out: Disjoint<'_>,
        to: &[usize],
        add: Option<(&[f32], &[usize])>,
    ) {
        let product = Product {
            a: x,
            rows_a: from,
            step: 1,
            chunks: &self.terms,
            right: self.panels.right(0, 0),
            precision: self.panels.precision,
            c: out,
            rows_c: to,
            columns: self.sizes.output.channels,
            accumulate: false,
            prefetch: &[],
            finish: Some(Finish { bias: &self.bias, add, activation: self.activation }),
        };
        // SAFETY: the caller's promise.
        unsafe { product::multiply(product) };
    }
}

struct Depthwise {
    /// A row of all channels per tap.
    weights: Buffer,
    bias: Vec<f32>,
    activation: Activation,
    /// Those of one image.
    sizes: Geometry,
}

impl Depthwise {
    fn new(layer: &Layer<'_>) -> Self {
        let Layer { weight, bias, sizes, activation } = layer;
        let weights = rows_of_taps(weight, &Order::of_forward(sizes));
        Self { weights, bias: bias.to_vec(), activation: *activation, sizes: sizes.clone() }
    }

    /// The rows of the input that row `row` of the result reads; others in its window are outside.
    fn rows_read(&self, row: usize) -> Range<usize> {
        let Geometry { input, kernel, stride, padding, .. } = &self.sizes;
        let end = (row * stride[0] + kernel[0]).saturating_sub(padding[0]).min(input.height);
        (row * stride[0]).saturating_sub(padding[0]).min(end)..end
    }

    /// Writes some rows of the result to `out`, each position from one of `to` on: the same places of every row but for where it
    /// begins. `windows` are those of a row, from that of the first one on.
    ///
    /// # Safety
    ///
    /// Nothing else accesses the channels from `to` on during the call.
    unsafe fn run(
        &self,
        wide: &[f32],
        rows: Range<usize>,
        layout: &Layout,
        windows: &[usize],
        out: Disjoint<'_>,
        to: &[usize],
    ) {
        let Geometry { input, output, kernel, stride, padding, .. } = &self.sizes;
        let first_of_row = |row: usize| match row.checked_sub(padding[0]) {
            Some(row) if row < input.height => layout.row(row),
            _ => layout.zeros(),
        };
        let taps: Vec<usize> = rows
            .flat_map(|row| (0..kernel[0]).map(move |a| row * stride[0] + a))
            .map(first_of_row)
            .flat_map(|first| (0..kernel[1]).map(move |b| first + b * layout.pitch))
            .collect();
        let rows: Vec<_> = taps
            .chunks_exact(kernel[0] * kernel[1])
            .zip(to.iter().step_by(output.width))
            .map(|(taps, begins)| depthwise::Row { taps, out: begins - to[0] })
            .collect();
        let product = depthwise::Product {
            x: wide,
            positions: windows,
            out_positions: &to[..output.width],
            rows: &rows,
            weights: &self.weights,
            channels: output.channels,
            out,
            finish: Some((&self.bias, self.activation)),
        };
        // SAFETY: the caller's promise.
        unsafe { product.compute() };
    }
}

/// Where the rows between the convolutions are. Those that the depthwise convolution reads are in a ring; after them comes
/// a row of zeros.
struct Layout {
    /// Rows of the result that are computed at a time.
    step: usize,
    /// Rows of the ring.
    ring: usize,
    /// Elements of a row of the ring, with zeros on both sides.
    row: usize,
    /// Columns of zeros before a row.
    left: usize,
    width: usize,
    /// Elements from a position to the next: an odd number of cache lines, so that the same channel of different positions
    /// falls into all sets of the first-level cache.
    pitch: usize,
    /// Elements of the rows of the depthwise convolution's result before a projection, or of the copy that an expansion reads.
    narrow: usize,
}

impl Layout {
    /// For at most `rows` rows of the result.
    fn new(block: &InvertedResidual, rows: usize) -> Self {
        let Geometry { input, output, kernel, stride, padding, .. } = &block.depthwise.sizes;
        let pitch = (input.channels.div_ceil(LINE) | 1) * LINE;
        let reach = (output.width - 1) * stride[1] + kernel[1];
        let row = reach.max(padding[1] + input.width) * pitch;
        let ring = |step: usize| (step - 1) * stride[0] + kernel[0];
        let narrow = |step: usize| {
            let projected = if block.projection.is_some() { step * output.width * pitch } else { 0 };
            projected.max(block.expansion.as_ref().map_or(0, |layer| layer.copied(ring(step))))
        };
        let elements = |step: usize| (ring(step) + 1) * row + narrow(step);
        let most = (1..=rows).rev().find(|&step| elements(step) <= ROWS_ELEMENTS).unwrap_or(1);
        // Nearly equal numbers of rows.
        let step = rows.div_ceil(rows.div_ceil(most));
        let [left, width] = [padding[1], input.width];
        Self { step, ring: ring(step), row, left, width, pitch, narrow: narrow(step) }
    }

    /// Elements of the ring and the zeros.
    fn wide(&self) -> usize {
        (self.ring + 1) * self.row
    }

    /// The first element of a row of the maps.
    fn row(&self, row: usize) -> usize {
        row % self.ring * self.row
    }

    /// The first element of the row of zeros.
    fn zeros(&self) -> usize {
        self.ring * self.row
    }

    fn clear_border(&self, wide: &mut [f32]) {
        let (rows, zeros) = wide.split_at_mut(self.zeros());
        zeros.fill(0.0);
        for row in rows.chunks_exact_mut(self.row) {
            row[..self.left * self.pitch].fill(0.0);
            row[(self.left + self.width) * self.pitch..].fill(0.0);
        }
    }
}
