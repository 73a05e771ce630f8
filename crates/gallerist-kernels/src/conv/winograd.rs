//! 3 x 3 convolutions of stride 1 with a quarter of the multiplications: F(4 x 4, 3 x 3) of Lavin and Gray (2016), after
//! Winograd.
//!
//! A tile of 6 x 6 inputs `d` gives 4 x 4 outputs `A^T [(G g G^T) (B^T d B)] A`, where the product in brackets is one for each
//! of the 36 elements: 36 multiplications instead of 144. Over all channels, each element is a matrix product of tiles by
//! input channels with input by output channels. The weights `G g G^T` are computed once, in f64.
//!
//! The rounding errors are larger than those of the definition, by a factor that the tests bound.

use gallerist_util::simd::run;
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::correlate::{Ending, Place};
use crate::buffer::{Buffer, with_scratch};
use crate::disjoint::Disjoint;
use crate::geometry::Geometry;
use crate::norm::Bounds;
use crate::product::{Left, Precision, Run, chunks, multiply_rows, panel_width};

/// Side of a tile of the output.
const OUT: usize = 4;

/// Side of a tile of the input.
const IN: usize = OUT + 2;

/// Elements of a tile of the input: matrix products.
const ELEMENTS: usize = IN * IN;

/// Channels are whole vectors of any instruction set.
const LANES: usize = 16;

/// Tiles of a task.
const TILES: usize = 48;

/// Fewest tiles of an image for which reading the larger weights pays.
const FEWEST: usize = 12;

/// `G`, by the points 0, 1, -1, 2, -2 and infinity.
const G: [[f64; 3]; IN] = [
    [1.0 / 4.0, 0.0, 0.0],
    [-1.0 / 6.0, -1.0 / 6.0, -1.0 / 6.0],
    [-1.0 / 6.0, 1.0 / 6.0, -1.0 / 6.0],
    [1.0 / 24.0, 1.0 / 12.0, 1.0 / 6.0],
    [1.0 / 24.0, -1.0 / 12.0, 1.0 / 6.0],
    [0.0, 0.0, 1.0],
];

/// The transformed weight of a convolution.
pub(super) struct Winograd {
    /// For each panel of output channels and each element one row of `width` per input channel.
    panels: Buffer,
    inputs: usize,
    outputs: usize,
    /// Columns of a panel.
    width: usize,
}

impl Winograd {
    /// Transforms a contiguous weight. `None` for a convolution that cannot be computed this way.
    pub(super) fn new(weight: &[f32], sizes: &Geometry) -> Option<Self> {
        let (inputs, outputs) = (sizes.input.channels, sizes.output.channels);
        let width = panel_width();
        let fits = sizes.kernel == [3, 3]
            && sizes.stride == [1, 1]
            && sizes.dilation == [1, 1]
            && sizes.groups == 1
            && inputs.is_multiple_of(LANES)
            && outputs.is_multiple_of(LANES)
            // Without vectors, panels are narrower.
            && width.is_multiple_of(LANES)
            && sizes.output.height.min(sizes.output.width) >= OUT;
        if !fits {
            return None;
        }
        let mut panels = Buffer::zeros(outputs.div_ceil(width) * ELEMENTS * inputs * width);
        panels.par_chunks_mut(ELEMENTS * inputs * width).enumerate().for_each(|(panel, values)| {
            for column in 0..width.min(outputs - panel * width) {
                for input in 0..inputs {
                    let kernel = &weight[((panel * width + column) * inputs + input) * 9..][..9];
                    for (element, value) in transformed(kernel).into_iter().enumerate() {
                        values[(element * inputs + input) * width + column] = value;
                    }
                }
            }
        });
        Some(Self { panels, inputs, outputs, width })
    }

    /// Whether this way is faster than the definition, for one image.
    ///
    /// The number of images does not count: the embedding of an image must not depend on the others in its batch.
    pub(super) fn suits(&self, sizes: &Geometry) -> bool {
        let Tiles { rows, columns, .. } = Tiles::new(sizes);
        rows * columns >= FEWEST
    }

    /// Writes the result for `x`.
    pub(super) fn run(&self, x: &[f32], sizes: &Geometry, ending: &Ending<'_>, place: Place<'_>) {
        let Place { values, pitch, channel } = place;
        assert_eq!(x.len(), sizes.input.len());
        assert_eq!([sizes.input.channels, sizes.output.channels], [self.inputs, self.outputs]);
        assert_eq!(values.len(), sizes.output.pixels() * pitch);
        assert!(channel + self.outputs <= pitch && self.outputs <= ending.bias.len());
        assert!(ending.add.is_none_or(|add| add.len() == sizes.output.len()));
        let tiles = Tiles::new(sizes);
        let blocks = tiles.count().div_ceil(TILES);
        let tiles_of_block = tiles.count().div_ceil(blocks);
        let panels = self.outputs.div_ceil(self.width);
        let splits = (2 * rayon::current_num_threads()).div_ceil(blocks).min(panels);
        let of_split = panels.div_ceil(splits);
        let task = Task { of: self, x, sizes, tiles, ending, out: Disjoint::new(values), pitch, channel };
        (0..blocks * splits).into_par_iter().with_max_len(1).for_each(|index| {
            let first = index / splits * tiles_of_block;
            let last = (first + tiles_of_block).min(task.tiles.count());
            let first_panel = index % splits * of_split;
            let last_panel = (first_panel + of_split).min(panels);
            // SAFETY: the tiles of different blocks have different positions, and different splits different channels.
            unsafe { task.block(first..last, first_panel..last_panel) };
        });
    }
}

/// `G g G^T`.
fn transformed(kernel: &[f32]) -> [f32; ELEMENTS] {
    std::array::from_fn(|element| {
        let (row, column) = (G[element / IN], G[element % IN]);
        let term = |tap: usize| row[tap / 3] * column[tap % 3] * f64::from(kernel[tap]);
        (0..9).map(term).sum::<f64>() as f32
    })
}

/// The tiles of the outputs of all images.
struct Tiles {
    images: usize,
    rows: usize,
    columns: usize,
}

impl Tiles {
    fn new(sizes: &Geometry) -> Self {
        let side = |side: usize| side.div_ceil(OUT);
        let output = sizes.output;
        Self { images: output.images, rows: side(output.height), columns: side(output.width) }
    }

    fn count(&self) -> usize {
        self.images * self.rows * self.columns
    }

    /// The image and the first row and column of a tile.
    fn place(&self, tile: usize) -> [usize; 3] {
        let (image, rest) = (tile / (self.rows * self.columns), tile % (self.rows * self.columns));
        [image, rest / self.columns * OUT, rest % self.columns * OUT]
    }
}

struct Task<'a> {
    of: &'a Winograd,
    x: &'a [f32],
    sizes: &'a Geometry,
    tiles: Tiles,
    ending: &'a Ending<'a>,
    out: Disjoint<'a>,
    pitch: usize,
    channel: usize,
}

impl Task<'_> {
    /// Some tiles and panels.
    ///
    /// # Safety
    ///
    /// Nothing else accesses the channels of the panels at the positions of the tiles during the call.
    unsafe fn block(&self, tiles: std::ops::Range<usize>, panels: std::ops::Range<usize>) {
        let Winograd { inputs, outputs, width, .. } = *self.of;
        let count = tiles.len();
        // Rows a multiple of half a kilobyte apart would fall into few sets of the cache.
        let row = inputs + LANES;
        let runs = chunks(&[Run { offset: 0, len: inputs }], 1, Precision::F32);
        let rows: Vec<usize> = (0..count).map(|tile| tile * row).collect();
        let rows_of_products: Vec<usize> = (0..count).map(|tile| tile * width).collect();
        let zeros = vec![0.0; inputs];
        with_scratch(0, ELEMENTS * count * row, |transformed| {
            for (index, tile) in tiles.clone().enumerate() {
                let sources = self.sources(tile, &zeros);
                let to = &mut transformed[index * row..];
                run(Input::new(&sources, inputs, to, count * row));
            }
            with_scratch(1, ELEMENTS * count * width, |products| {
                for panel in panels {
                    let columns = width.min(outputs - panel * width);
                    let weights = &self.of.panels[panel * ELEMENTS * inputs * width..];
                    for element in 0..ELEMENTS {
                        let left = Left {
                            values: &transformed[element * count * row..][..count * row],
                            rows: &rows,
                            step: 1,
                            chunks: &runs,
                        };
                        let right = &weights[element * inputs * width..][..inputs * width];
                        let products = &mut products[element * count * width..][..count * width];
                        multiply_rows(&left, (right, width), products, &rows_of_products, columns);
                    }
                    for (index, tile) in tiles.clone().enumerate() {
                        let products = &products[index * width..];
                        // SAFETY: the caller's promise.
                        unsafe { self.output(tile, products, count * width, panel * width, columns) };
                    }
                }
            });
        });
    }

    /// The channels of every position of a tile's input; zeros outside the image.
    fn sources<'b>(&'b self, tile: usize, zeros: &'b [f32]) -> [&'b [f32]; ELEMENTS] {
        let [image, row, column] = self.tiles.place(tile);
        let input = self.sizes.input;
        std::array::from_fn(|element| {
            let at = |first: usize, i: usize, axis: usize| (first + i).checked_sub(self.sizes.padding[axis]);
            match (at(row, element / IN, 0), at(column, element % IN, 1)) {
                (Some(i), Some(j)) if i < input.height && j < input.width => {
                    let position = (image * input.height + i) * input.width + j;
                    &self.x[position * input.channels..][..input.channels]
                }
                _ => zeros,
            }
        })
    }

    /// Writes a tile's output channels from `first` on.
    ///
    /// # Safety
    ///
    /// Nothing else accesses these channels at the tile's positions during the call.
    unsafe fn output(&self, tile: usize, products: &[f32], stride: usize, first: usize, columns: usize) {
        let [image, row, column] = self.tiles.place(tile);
        let output = self.sizes.output;
        let mut targets: [&mut [f32]; OUT * OUT] = Default::default();
        let mut added: [&[f32]; OUT * OUT] = [&[]; OUT * OUT];
        for (index, (target, added)) in targets.iter_mut().zip(&mut added).enumerate() {
            let (i, j) = (row + index / OUT, column + index % OUT);
            if i < output.height && j < output.width {
                let position = (image * output.height + i) * output.width + j;
                // SAFETY: the positions of a tile differ; the caller's promise.
                *target = unsafe { self.out.slice(position * self.pitch + self.channel + first, columns) };
                if let Some(add) = self.ending.add {
                    *added = &add[position * output.channels + first..][..columns];
                }
            }
        }
        let bias = &self.ending.bias[first..];
        run(Output::new(products, stride, &mut targets, &added, bias, columns, self.ending.bounds));
    }
}

/// `B^T d B` for the channels of a tile: [`Input::new`] checks the sizes and is the only way to make one.
struct Input<'a> {
    sources: &'a [&'a [f32]; ELEMENTS],
    channels: usize,
    to: &'a mut [f32],
    stride: usize,
}

impl<'a> Input<'a> {
    /// Element `e` of channel `c` is written to `to[e * stride + c]`.
    fn new(sources: &'a [&'a [f32]; ELEMENTS], channels: usize, to: &'a mut [f32], stride: usize) -> Self {
        assert!(channels.is_multiple_of(LANES) && sources.iter().all(|source| source.len() >= channels));
        assert!((ELEMENTS - 1) * stride + channels <= to.len());
        Self { sources, channels, to, stride }
    }
}

impl WithSimd for Input<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { sources, channels, to, stride } = self;
        let to = to.as_mut_ptr();
        for channel in (0..channels).step_by(S::F32_LANES) {
            let mut half = [[simd.splat_f32s(0.0); IN]; IN];
            for j in 0..IN {
                let mut d = [simd.splat_f32s(0.0); IN];
                for i in 0..IN {
                    // SAFETY: a vector of channels of a source, which has `channels` elements, a multiple of the lanes.
                    d[i] = unsafe { load::<S>(sources[i * IN + j].as_ptr().add(channel)) };
                }
                let t = input_transform(simd, d);
                for i in 0..IN {
                    half[i][j] = t[i];
                }
            }
            for i in 0..IN {
                let v = input_transform(simd, half[i]);
                for j in 0..IN {
                    // SAFETY: a vector of channels of element (i, j), inside as was checked.
                    unsafe { store::<S>(to.add((i * IN + j) * stride + channel), v[j]) };
                }
            }
        }
    }
}

/// `B^T d`.
#[inline(always)]
fn input_transform<S: Simd>(simd: S, d: [S::f32s; IN]) -> [S::f32s; IN] {
    let even = times(simd, -4.0, d[2], d[4]);
    let odd = times(simd, -4.0, d[1], d[3]);
    let difference = simd.sub_f32s(d[4], d[2]);
    let double = simd.mul_f32s(simd.splat_f32s(2.0), simd.sub_f32s(d[3], d[1]));
    [
        times(simd, 4.0, d[0], times(simd, -5.0, d[2], d[4])),
        simd.add_f32s(even, odd),
        simd.sub_f32s(even, odd),
        simd.add_f32s(difference, double),
        simd.sub_f32s(difference, double),
        times(simd, 4.0, d[1], times(simd, -5.0, d[3], d[5])),
    ]
}

/// `bounds(A^T m A + bias + added)` for the channels of a tile: [`Output::new`] checks the sizes and is the only way to make
/// one.
struct Output<'a, 'b> {
    products: &'a [f32],
    stride: usize,
    targets: &'a mut [&'b mut [f32]; OUT * OUT],
    added: &'a [&'a [f32]; OUT * OUT],
    bias: &'a [f32],
    columns: usize,
    bounds: Bounds,
}

impl<'a, 'b> Output<'a, 'b> {
    /// Element `e` of channel `c` is `products[e * stride + c]`. Targets without elements are left out.
    fn new(
        products: &'a [f32],
        stride: usize,
        targets: &'a mut [&'b mut [f32]; OUT * OUT],
        added: &'a [&'a [f32]; OUT * OUT],
        bias: &'a [f32],
        columns: usize,
        bounds: Bounds,
    ) -> Self {
        assert!(columns.is_multiple_of(LANES) && columns <= bias.len());
        assert!((ELEMENTS - 1) * stride + columns <= products.len());
        assert!(targets.iter().all(|target| target.is_empty() || target.len() == columns));
        assert!(added.iter().all(|added| added.is_empty() || added.len() == columns));
        Self { products, stride, targets, added, bias, columns, bounds }
    }
}

impl WithSimd for Output<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, simd: S) {
        let Self { products, stride, targets, added, bias, columns, bounds } = self;
        let products = products.as_ptr();
        for column in (0..columns).step_by(S::F32_LANES) {
            let mut half = [[simd.splat_f32s(0.0); IN]; OUT];
            for j in 0..IN {
                let mut m = [simd.splat_f32s(0.0); IN];
                for i in 0..IN {
                    // SAFETY: a vector of channels of element (i, j), inside as was checked.
                    m[i] = unsafe { load::<S>(products.add((i * IN + j) * stride + column)) };
                }
                let t = output_transform(simd, m);
                for i in 0..OUT {
                    half[i][j] = t[i];
                }
            }
            // SAFETY: a vector of the bias, which has `columns` elements, a multiple of the lanes.
            let bias = unsafe { load::<S>(bias.as_ptr().add(column)) };
            for i in 0..OUT {
                let y = output_transform(simd, half[i]);
                for j in 0..OUT {
                    let mut value = simd.add_f32s(y[j], bias);
                    if !added[i * OUT + j].is_empty() {
                        // SAFETY: as the bias.
                        let added = unsafe { load::<S>(added[i * OUT + j].as_ptr().add(column)) };
                        value = simd.add_f32s(value, added);
                    }
                    let target = &mut targets[i * OUT + j];
                    if !target.is_empty() {
                        // SAFETY: as the bias.
                        unsafe { store::<S>(target.as_mut_ptr().add(column), bounds.vector(simd, value)) };
                    }
                }
            }
        }
    }
}

/// `A^T m`.
#[inline(always)]
fn output_transform<S: Simd>(simd: S, m: [S::f32s; IN]) -> [S::f32s; OUT] {
    let (p, q) = (simd.add_f32s(m[1], m[2]), simd.sub_f32s(m[1], m[2]));
    let (r, s) = (simd.add_f32s(m[3], m[4]), simd.sub_f32s(m[3], m[4]));
    [
        simd.add_f32s(m[0], simd.add_f32s(p, r)),
        times(simd, 2.0, s, q),
        times(simd, 4.0, r, p),
        simd.add_f32s(m[5], times(simd, 8.0, s, q)),
    ]
}

/// `value * x + plus`.
#[inline(always)]
fn times<S: Simd>(simd: S, value: f32, x: S::f32s, plus: S::f32s) -> S::f32s {
    simd.mul_add_e_f32s(simd.splat_f32s(value), x, plus)
}

/// # Safety
///
/// One vector from `address` is valid for reads.
#[inline(always)]
unsafe fn load<S: Simd>(address: *const f32) -> S::f32s {
    // SAFETY: vectors of `f32` are plain data of `F32_LANES` elements; alignment is not assumed.
    unsafe { address.cast::<S::f32s>().read_unaligned() }
}

/// # Safety
///
/// One vector from `address` is valid for writes.
#[inline(always)]
unsafe fn store<S: Simd>(address: *mut f32, values: S::f32s) {
    // SAFETY: as `load`.
    unsafe { address.cast::<S::f32s>().write_unaligned(values) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::maps::Maps;
    use crate::norm::Activation;
    use burn::tensor::ops::ConvOptions;

    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0).collect()
    }

    /// The convolution in f64 from the definition, at a position and channel of the result.
    fn definition(x: &[f32], weight: &[f32], sizes: &Geometry, position: usize, channel: usize) -> f64 {
        let (input, output) = (sizes.input, sizes.output);
        let (image, rest) =
            (position / (output.height * output.width), position % (output.height * output.width));
        let (i, j) = (rest / output.width, rest % output.width);
        let mut sum = 0.0;
        for (a, b) in (0..3).flat_map(|a| (0..3).map(move |b| (a, b))) {
            let (Some(row), Some(column)) =
                ((i + a).checked_sub(sizes.padding[0]), (j + b).checked_sub(sizes.padding[1]))
            else {
                continue;
            };
            if row < input.height && column < input.width {
                for c in 0..input.channels {
                    let value = x[((image * input.height + row) * input.width + column) * input.channels + c];
                    let weight = weight[(channel * input.channels + c) * 9 + a * 3 + b];
                    sum += f64::from(value) * f64::from(weight);
                }
            }
        }
        sum
    }

    /// The largest error relative to the root mean square of the result.
    fn error(
        images: usize,
        [height, width]: [usize; 2],
        [inputs, outputs]: [usize; 2],
        padding: usize,
    ) -> f64 {
        let input = Maps { images, height, width, channels: inputs };
        let options = ConvOptions::new([1, 1], [padding; 2], [1, 1], 1);
        let sizes = Geometry::new(input, [outputs, inputs, 3, 3], &options).unwrap();
        let (x, weight) = (numbers(input.len(), 1), numbers(outputs * inputs * 9, 2));
        let mut bias = numbers(outputs, 3);
        bias.resize(outputs + LANES, 0.0);
        let add = numbers(sizes.output.len(), 4);
        let (pitch, channel) = (outputs + 5, 2);
        let mut y = vec![7.0; sizes.output.pixels() * pitch];
        let ending = Ending { bias: &bias, add: Some(&add), bounds: Activation::Relu.bounds() };
        let place = Place { values: &mut y, pitch, channel };
        Winograd::new(&weight, &sizes).unwrap().run(&x, &sizes, &ending, place);
        let (mut most, mut squares) = (0f64, 0f64);
        for (position, y) in y.chunks(pitch).enumerate() {
            assert!(y[..channel].iter().chain(&y[channel + outputs..]).all(|&value| value == 7.0));
            for c in 0..outputs {
                let sum = definition(&x, &weight, &sizes, position, c);
                let wanted = (sum + f64::from(bias[c]) + f64::from(add[position * outputs + c])).max(0.0);
                most = most.max((f64::from(y[channel + c]) - wanted).abs());
                squares += sum * sum;
            }
        }
        most / (squares / sizes.output.len() as f64).sqrt()
    }

    #[test]
    fn results_are_those_of_the_definition_up_to_the_bound_of_the_error() {
        // Miri is slow.
        let sizes: &[_] = match cfg!(miri) {
            true => &[(1, [5, 4], [16, 16], 1)],
            false => &[
                (1, [4, 4], [16, 16], 1),
                (2, [7, 7], [64, 80], 1),
                (3, [9, 14], [32, 64], 0),
                (1, [6, 11], [128, 144], 2),
                (1, [28, 28], [512, 64], 1),
            ],
        };
        for &(images, sides, channels, padding) in sizes {
            let error = error(images, sides, channels, padding);
            assert!(error < 5e-5, "{images} x {sides:?}, {channels:?}: {error}");
        }
    }

    #[test]
    fn other_convolutions_are_left_to_the_definition() {
        let input = Maps { images: 1, height: 8, width: 8, channels: 16 };
        let new = |weight: [usize; 4], stride: usize, input: Maps| {
            let options = ConvOptions::new([stride; 2], [weight[2] / 2; 2], [1, 1], 1);
            let sizes = Geometry::new(input, weight, &options).unwrap();
            Winograd::new(&vec![0.0; weight.iter().product()], &sizes).is_some()
        };
        assert!(new([16, 16, 3, 3], 1, input));
        assert!(!new([16, 16, 3, 3], 2, input), "a stride");
        assert!(!new([16, 16, 5, 5], 1, input), "another window");
        assert!(!new([24, 16, 3, 3], 1, input), "channels that are no whole vectors");
        assert!(!new([16, 16, 3, 3], 1, Maps { height: 3, ..input }), "maps smaller than a tile");
    }
}
