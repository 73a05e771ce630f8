//! Both gradients of a convolution in one pass over the maps.

use rayon::prelude::*;

use super::correlate::After;
use super::input_gradient::{Grid, input_gradient};
use super::pack::{Packed, Panels};
use super::source::{Source, with_positions};
use super::weight_gradient::{
    MAX_PARTS, PARTS_ELEMENTS, divides_weight, in_order, join_parts, turned, weight_gradient,
};
use super::windows::{TILE_POSITIONS, Tile, following, tile_positions};
use crate::buffer::Buffer;
use crate::depthwise;
use crate::disjoint::Disjoint;
use crate::geometry::Geometry;
use crate::product::{self, Choice, Product, Right, Run, chunks, panel_width};
use crate::profile;

/// Fewest partial sums of the weight gradient.
const MIN_PARTS: usize = 8;

/// Both gradients of a convolution.
pub(crate) struct BothGradients<T> {
    /// `None` if it was accumulated into an earlier one.
    pub(crate) input: Option<Buffer>,
    /// The results of `after` for the parts of `input`.
    pub(crate) parts: Vec<T>,
    pub(crate) weight: Buffer,
}

/// [`input_gradient`] and [`weight_gradient`]. A convolution that computes little with each value (pointwise or depthwise,
/// of stride 1) does both in one pass over the maps, unless its weight is large ([`divides_weight`]).
pub(crate) fn both_gradients<T: Send>(
    x: &Source<'_>,
    weight: &[f32],
    dy: &Source<'_>,
    sizes: &Geometry,
    earlier: Option<&mut [f32]>,
    after: Option<After<'_, T>>,
) -> BothGradients<T> {
    let in_one_pass = sizes.is_pointwise() || sizes.is_depthwise() && sizes.keeps_size();
    if !in_one_pass || divides_weight(x, dy, sizes).is_some() {
        let (input, parts) = input_gradient(weight, dy, sizes, earlier, after);
        return BothGradients { input, parts, weight: weight_gradient(x, dy, sizes) };
    }
    let _measured = profile::convolution("convolution, both gradients", sizes, 2);
    let grids = Grid::all(sizes);
    let [grid] = &grids[..] else { unreachable!("stride 1 makes one grid") };
    let weights = Packed::pack(weight, &grid.order(sizes), Choice::current().precision);
    let part_len = weight.len();
    let tiles = grid.windows.tiles_of(sizes.input.channels.max(sizes.output.channels), TILE_POSITIONS);
    let parts = tiles.len().min((PARTS_ELEMENTS / part_len).clamp(MIN_PARTS, MAX_PARTS));
    let per_part = tiles.len().div_ceil(parts);
    let parts = tiles.len().div_ceil(per_part);
    let mut sums = match &weights {
        Packed::Rows(_) => Buffer::zeros(parts * part_len),
        Packed::Panels(_) => Buffer::new(parts * part_len),
    };
    let accumulate = earlier.is_some();
    assert!(!(accumulate && sizes.is_depthwise()), "the depthwise kernel does not accumulate");
    let mut own = (!accumulate).then(|| Buffer::new(sizes.input.len()));
    let dx = earlier.or(own.as_deref_mut()).expect("one of the two");
    assert_eq!(dx.len(), sizes.input.len());
    let pass = Pass { sizes, grid, x, dy, accumulate };
    let shared = Disjoint::new(dx);
    let of_tile = |index: usize, tile: Tile, sums: &mut [f32]| {
        let (first, [positions, channels]) = tile_positions(tile, sizes.input);
        // SAFETY: the tile's positions are contiguous in `dx`, and different tiles have different positions.
        let dx = unsafe { shared.slice(first, positions * channels) };
        match &weights {
            Packed::Rows(rows) => pass.depthwise(tile, rows, dx, sums),
            Packed::Panels(panels) => pass.pointwise(tile, panels, dx, sums, index > 0),
        }
        after.map(|after| after(first, dx))
    };
    let of_parts: Vec<Vec<T>> = sums
        .par_chunks_mut(part_len)
        .zip(tiles.par_chunks(per_part))
        .with_max_len(1)
        .map(|(sums, tiles)| {
            tiles.iter().enumerate().filter_map(|(index, tile)| of_tile(index, *tile, sums)).collect()
        })
        .collect();
    let gradient = pass.weight(&weights, join_parts(&mut sums, part_len));
    BothGradients { input: own, parts: of_parts.into_iter().flatten().collect(), weight: gradient }
}

/// What the tiles of a pass have in common.
struct Pass<'a> {
    sizes: &'a Geometry,
    grid: &'a Grid,
    x: &'a Source<'a>,
    dy: &'a Source<'a>,
    accumulate: bool,
}

impl Pass<'_> {
    /// Whether the input has the longer rows. The longer rows are the right operand of the weight gradient's product:
    /// they fill the vectors.
    fn input_is_long(&self) -> bool {
        self.sizes.input.channels > self.sizes.output.channels
    }

    /// Sets the tile of `dx` and accumulates into `sums`, one row of channels per tap.
    fn depthwise(&self, tile: Tile, rows: &Buffer, dx: &mut [f32], sums: &mut [f32]) {
        let (first, [positions, channels]) = tile_positions(tile, self.sizes.input);
        let dx_positions: Vec<usize> = (0..positions).map(|position| position * channels).collect();
        with_positions(self.x, 1, first, [positions, channels], |x, x_pitch| {
            self.grid.windows.with_view(self.dy, tile, |view| {
                let at = self.grid.windows.positions(tile, &view);
                let taps = self.grid.windows.taps(&view);
                let product = depthwise::Product {
                    x: view.values,
                    positions: &at,
                    out_positions: &dx_positions,
                    rows: &[depthwise::Row { taps: &taps, out: 0 }],
                    weights: rows,
                    channels,
                    out: Disjoint::new(dx),
                    finish: None,
                };
                // SAFETY: `dx` is borrowed mutably, by this function alone.
                unsafe { product.compute() };
                depthwise::add_sums(view.values, &at, &taps, x, x_pitch, sums);
            });
        });
    }

    /// Sets the tile of `dx`, or accumulates there, and sets `sums` or accumulates there (`add_sums`): the rows of the
    /// shorter side, each as long as those of the longer.
    fn pointwise(&self, tile: Tile, panels: &Panels, dx: &mut [f32], sums: &mut [f32], add_sums: bool) {
        let (inputs, outputs) = (self.sizes.input.channels, self.sizes.output.channels);
        let (first, [positions, _]) = tile_positions(tile, self.sizes.input);
        let (first_dy, _) = tile_positions(tile, self.sizes.output);
        let (short, long) = (inputs.min(outputs), inputs.max(outputs));
        let precision = panels.precision;
        let rows_of = |count: usize, pitch: usize| (0..count).map(|row| row * pitch).collect::<Vec<usize>>();
        with_positions(self.x, 1, first, [positions, inputs], |x, x_pitch| {
            with_positions(self.dy, 0, first_dy, [positions, outputs], |dy, dy_pitch| {
                let of_input = Product {
                    a: dy,
                    rows_a: &rows_of(positions, dy_pitch),
                    step: 1,
                    chunks: &chunks(&[Run { offset: 0, len: outputs }], 1, precision),
                    right: panels.right(0, 0),
                    precision,
                    c: Disjoint::new(dx),
                    rows_c: &rows_of(positions, inputs),
                    columns: inputs,
                    accumulate: self.accumulate,
                    prefetch: &[],
                    finish: None,
                };
                // SAFETY: `dx` is borrowed mutably, by this function alone.
                unsafe { product::multiply(of_input) };
                let ((left, step), (right, stride)) = match self.input_is_long() {
                    true => ((dy, dy_pitch), (x, x_pitch)),
                    false => ((x, x_pitch), (dy, dy_pitch)),
                };
                let of_weight = Product {
                    a: left,
                    rows_a: &(0..short).collect::<Vec<usize>>(),
                    step,
                    chunks: &chunks(&[Run { offset: 0, len: positions }], step, precision),
                    right: Right::Rows { values: right, stride, panel_stride: panel_width() },
                    precision,
                    c: Disjoint::new(sums),
                    rows_c: &rows_of(short, long),
                    columns: long,
                    accumulate: add_sums,
                    // A copy is followed by one vector of scratch memory: prefetching it is harmless.
                    prefetch: following(x, positions * x_pitch),
                    finish: None,
                };
                // SAFETY: `sums` is borrowed mutably, by this function alone.
                unsafe { product::multiply(of_weight) };
            });
        });
    }

    /// The gradient in the weight's order from the total of all parts.
    fn weight(&self, weights: &Packed, total: &[f32]) -> Buffer {
        let inputs = self.sizes.input.channels;
        match weights {
            Packed::Rows(_) => {
                let mut gradient = Buffer::new(total.len());
                let taps = self.sizes.taps();
                let [row_taps, column_taps] = &self.grid.taps;
                let kernel_width = self.sizes.kernel[1];
                let order =
                    row_taps.iter().flat_map(|a| column_taps.iter().map(move |b| a * kernel_width + b));
                for (of_tap, tap) in total.chunks_exact(inputs).zip(order) {
                    for (channel, value) in of_tap.iter().enumerate() {
                        gradient[channel * taps + tap] = *value;
                    }
                }
                gradient
            }
            Packed::Panels(_) if in_order(self.sizes) => {
                let mut gradient = Buffer::new(total.len());
                gradient.copy_from_slice(total);
                gradient
            }
            Packed::Panels(_) => turned(total, self.sizes),
        }
    }
}
