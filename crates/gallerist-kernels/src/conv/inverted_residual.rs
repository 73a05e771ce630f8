//! The convolutions of an inverted residual block (Sandler et al. 2018): expansion, depthwise convolution, projection.
//!
//! The maps between them have several times the channels of the block's input and result, and little is computed per
//! value. Some rows are computed at a time, from the input to the result, so that these maps stay in the cache and are
//! never written as a whole. The result has the bits of the three convolutions one after the other.

use std::ops::Range;

use rayon::prelude::*;

use super::order::Order;
use super::pack::{Panels, rows_of_taps};
use super::prepared::padded;
use crate::buffer::{Buffer, LINE, with_scratch};
use crate::depthwise;
use crate::disjoint::Disjoint;
use crate::geometry::Geometry;
use crate::maps::Maps;
use crate::norm::Activation;
use crate::product::{self, Finish, Product, Products, Run, chunks};
use crate::profile;

/// Elements of the rows between the convolutions: half of a second-level cache of 1 MiB, or less.
const ROWS_ELEMENTS: usize = 96 * 1024;

/// A convolution of a block: a contiguous weight `[channels out, channels in / groups, height, width]`, a bias, and the
/// activation after them. `sizes` are those of one image.
pub(crate) struct Layer<'a> {
    pub(crate) weight: &'a [f32],
    pub(crate) bias: &'a [f32],
    pub(crate) sizes: Geometry,
    pub(crate) activation: Activation,
}

/// Expansion, if there is one, depthwise convolution and projection.
fn parts<'a>(layers: &'a [Layer<'a>]) -> Option<(Option<&'a Layer<'a>>, &'a Layer<'a>, &'a Layer<'a>)> {
    match layers {
        [depthwise, projection] => Some((None, depthwise, projection)),
        [expansion, depthwise, projection] => Some((Some(expansion), depthwise, projection)),
        _ => None,
    }
}

/// The convolutions, prepared.
pub(crate) struct InvertedResidual {
    /// Without it, the depthwise convolution reads the block's input.
    expansion: Option<Pointwise>,
    depthwise: Depthwise,
    projection: Pointwise,
}

impl InvertedResidual {
    /// Whether these convolutions, one after the other, are such a block, and it is faster to compute them together: where
    /// reading the weights for each image costs less than reading and writing the maps between the convolutions.
    pub(crate) fn fits(layers: &[Layer<'_>]) -> bool {
        let Some((expansion, depthwise, projection)) = parts(layers) else { return false };
        let Geometry { input, dilation, .. } = depthwise.sizes;
        let inputs = expansion.map_or(0, |expansion| expansion.sizes.input.channels);
        depthwise.sizes.is_depthwise()
            && dilation == [1, 1]
            && projection.sizes.is_pointwise()
            && expansion.is_none_or(|layer| layer.sizes.is_pointwise())
            && input.height * input.width >= inputs + projection.sizes.output.channels
    }

    /// # Panics
    ///
    /// If there are not two layers, or three.
    pub(crate) fn new(layers: &[Layer<'_>], products: Products) -> Self {
        let (expansion, depthwise, projection) = parts(layers).expect("two layers or three");
        Self {
            expansion: expansion.map(|layer| Pointwise::new(layer, products)),
            depthwise: Depthwise::new(depthwise),
            projection: Pointwise::new(projection, products),
        }
    }

    /// Writes the result for `images` maps `x`, plus `add`, maps of the result's sizes.
    pub(crate) fn run(&self, x: &[f32], images: usize, add: Option<&[f32]>, y: &mut [f32]) {
        let sizes = &self.depthwise.sizes;
        let _measured =
            profile::sized("inverted residual", &self.described(images), images * self.multiply_adds());
        assert_eq!(x.len(), images * sizes.input.height * sizes.input.width * self.inputs());
        let height = sizes.output.height;
        // An image belongs to one task, unless there are few.
        let threads = rayon::current_num_threads();
        let wanted = if images.is_multiple_of(threads) || images >= 4 * threads { 1 } else { threads };
        let rows = height.div_ceil(wanted.min(height));
        let parts = height.div_ceil(rows);
        let out = Disjoint::new(y);
        (0..images * parts).into_par_iter().with_max_len(1).for_each(|task| {
            let (image, first) = (task / parts, task % parts * rows);
            // SAFETY: the rows of different tasks do not overlap.
            unsafe { self.rows(x, image, first..height.min(first + rows), add, out) };
        });
    }

    fn inputs(&self) -> usize {
        self.expansion.as_ref().map_or(self.depthwise.sizes.input.channels, |layer| layer.channels[0])
    }

    /// The block as one convolution, for the profile.
    fn described(&self, images: usize) -> Geometry {
        let sizes = self.depthwise.sizes.clone();
        let input = Maps { images, channels: self.inputs(), ..sizes.input };
        let output = Maps { images, channels: self.projection.channels[1], ..sizes.output };
        Geometry { input, output, ..sizes }
    }

    /// Of one image.
    fn multiply_adds(&self) -> usize {
        let Geometry { input, output, .. } = &self.depthwise.sizes;
        let expansion = self.expansion.as_ref().map_or(0, |layer| input.len() * layer.channels[0]);
        let projection = self.projection.channels[1];
        expansion + output.len() * (self.depthwise.sizes.taps() + projection)
    }

    /// Rows of the result of one image.
    ///
    /// # Safety
    ///
    /// Nothing else accesses these rows of `out` during the call.
    unsafe fn rows(
        &self,
        x: &[f32],
        image: usize,
        rows: Range<usize>,
        add: Option<&[f32]>,
        out: Disjoint<'_>,
    ) {
        let output = self.depthwise.sizes.output;
        let layout = Layout::new(&self.depthwise.sizes, rows.len());
        let places = Places::new(self, &layout);
        let channels = self.projection.channels[1];
        with_scratch(0, layout.wide(), |wide| {
            with_scratch(1, layout.narrow(), |narrow| {
                layout.clear_border(wide);
                let mut next = 0;
                for first in rows.clone().step_by(layout.step) {
                    let some = first..rows.end.min(first + layout.step);
                    let read = self.depthwise.rows_read(some.start).start.max(next)
                        ..self.depthwise.rows_read(some.end - 1).end.max(next);
                    next = read.end;
                    self.expand(x, image, read, &layout, &places, wide);
                    self.depthwise.run(wide, some.clone(), &layout, &places, narrow);
                    let count = some.len() * output.width;
                    let first = (image * output.height + some.start) * output.width * channels;
                    let (from, to) = (&places.narrow[..count], &places.result[..count]);
                    let add = add.map(|values| (&values[first..], to));
                    // SAFETY: the caller's promise.
                    unsafe { self.projection.run(narrow, from, out.starting_at(first), to, add) };
                }
            });
        });
    }

    /// Writes the rows `read` of an image's expanded maps to their places in `wide`.
    fn expand(
        &self,
        x: &[f32],
        image: usize,
        read: Range<usize>,
        layout: &Layout,
        places: &Places,
        wide: &mut [f32],
    ) {
        let Maps { height, width, .. } = self.depthwise.sizes.input;
        let channels = self.inputs();
        let x = &x[(image * height + read.start) * width * channels..];
        let count = read.len() * width;
        let to = &places.wide[read.start % layout.ring * width..][..count];
        match &self.expansion {
            // SAFETY: `wide` is borrowed mutably.
            Some(expansion) => unsafe {
                expansion.run(x, &places.input[..count], Disjoint::new(wide), to, None);
            },
            None => {
                for (&to, from) in to.iter().zip(x.chunks_exact(channels)) {
                    wide[to..][..channels].copy_from_slice(from);
                }
            }
        }
    }
}

/// The first elements of positions.
struct Places {
    /// Of the block's input, from a row on.
    input: Vec<usize>,
    /// Of the ring, twice: rows of it that follow each other are also here one after the other.
    wide: Vec<usize>,
    /// The windows of a row, from that of the first one on.
    windows: Vec<usize>,
    /// Of the depthwise convolution's result.
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
        Self {
            input: list(layout.ring * input.width, block.inputs()),
            wide: (0..2 * layout.ring * input.width).map(place).collect(),
            windows: list(output.width, stride[1] * layout.pitch),
            narrow: list(results, layout.pitch),
            result: list(results, block.projection.channels[1]),
        }
    }
}

/// A 1 x 1 convolution.
struct Pointwise {
    panels: Panels,
    /// [`padded`].
    bias: Vec<f32>,
    activation: Activation,
    /// In and out.
    channels: [usize; 2],
    /// The terms of the product.
    terms: Vec<(usize, Vec<Run>)>,
}

impl Pointwise {
    fn new(layer: &Layer<'_>, products: Products) -> Self {
        let Layer { weight, bias, sizes, activation } = layer;
        let precision = products.choice(sizes.is_of_rows()).precision;
        Self {
            panels: Panels::pack(weight, &Order::of_forward(sizes), precision),
            bias: padded(bias),
            activation: *activation,
            channels: [sizes.input.channels, sizes.output.channels],
            terms: chunks(&[Run { offset: 0, len: sizes.input.channels }], 1, precision),
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
            columns: self.channels[1],
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

    /// Writes some rows of the result to `to`, positions of `layout.pitch` elements.
    fn run(&self, wide: &[f32], rows: Range<usize>, layout: &Layout, places: &Places, to: &mut [f32]) {
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
        let windows: Vec<_> = taps
            .chunks_exact(kernel[0] * kernel[1])
            .zip(places.narrow.chunks_exact(output.width))
            .map(|(taps, out_positions)| depthwise::Windows {
                positions: &places.windows,
                taps,
                out_positions,
            })
            .collect();
        let product = depthwise::Product {
            x: wide,
            windows: &windows,
            weights: &self.weights,
            channels: output.channels,
            out: Disjoint::new(to),
            finish: Some((&self.bias, self.activation)),
        };
        // SAFETY: `to` is borrowed mutably.
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
    /// Columns of the result.
    columns: usize,
}

impl Layout {
    /// For `rows` rows of the result.
    fn new(sizes: &Geometry, rows: usize) -> Self {
        let Geometry { input, output, kernel, stride, padding, .. } = sizes;
        let pitch = (input.channels.div_ceil(LINE) | 1) * LINE;
        let reach = (output.width - 1) * stride[1] + kernel[1];
        let row = reach.max(padding[1] + input.width) * pitch;
        let ring = |step: usize| (step - 1) * stride[0] + kernel[0];
        let elements = |step: usize| (ring(step) + 1) * row + step * output.width * pitch;
        let most = (1..=rows).rev().find(|&step| elements(step) <= ROWS_ELEMENTS).unwrap_or(1);
        // Nearly equal numbers of rows.
        let step = rows.div_ceil(rows.div_ceil(most));
        let [left, width, columns] = [padding[1], input.width, output.width];
        Self { step, ring: ring(step), row, left, width, pitch, columns }
    }

    /// Elements of the ring and the zeros.
    fn wide(&self) -> usize {
        (self.ring + 1) * self.row
    }

    /// Elements of the rows of the depthwise convolution's result.
    fn narrow(&self) -> usize {
        self.step * self.columns * self.pitch
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
