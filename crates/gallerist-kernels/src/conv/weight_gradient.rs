//! The gradient with respect to the weight.

use rayon::prelude::*;

use super::order::by_column;
use super::source::{Source, with_positions};
use super::windows::{Tile, View, Windows, clip, tile_positions, tile_runs};
use super::winograd;
use crate::buffer::{Buffer, LINE};
use crate::depthwise;
use crate::disjoint::Disjoint;
use crate::geometry::Geometry;
use crate::product::{
    self, BLOCK_ROWS, Choice, FEWEST_COPIED_PANELS, Precision, Product, Right, Run, chunks, panel_width,
};
use crate::profile;
use crate::transpose::transpose;

/// Fewest positions of a tile that amortise reading and writing all sums of the tile's part.
const TILE_POSITIONS: usize = 448;

/// Most partial sums of a weight gradient.
pub(super) const MAX_PARTS: usize = 16;

/// Most elements of all partial sums of a weight gradient together, unless a single one has more.
pub(super) const PARTS_ELEMENTS: usize = 1024 * 1024;

/// A pointwise convolution with a weight of more elements has the gradient of [`of_large_weight`].
const LARGE_WEIGHT: usize = 128 * 1024;

/// Most elements of the part of a pointwise convolution's weight gradient that a thread computes at a time: a megabyte stays in
/// the second-level cache.
const SPLIT_ELEMENTS: usize = 256 * 1024;

/// The gradient with respect to the weight, in the weight's order.
///
/// Images are summed in up to [`MAX_PARTS`] parts of neighbours, fewer for larger weights, and the parts in order: the
/// bits do not depend on the number of threads.
pub(crate) fn weight_gradient(x: &Source<'_>, dy: &Source<'_>, sizes: &Geometry) -> Buffer {
    let _measured = profile::convolution("convolution, weight gradient", sizes, 1);
    assert_eq!(x.len(), sizes.input.len());
    assert_eq!(dy.len(), sizes.output.len());
    if winograd::pays(sizes) {
        return winograd::weight_gradient(x, dy, sizes);
    }
    if let Some([x, dy]) = divides_weight(x, dy, sizes) {
        return of_large_weight(x, dy, sizes);
    }
    // Of the calling thread, not of the workers.
    let precision = Choice::current().precision;
    let windows = Windows::forward(sizes);
    let tiles = windows.tiles_of(sizes.input.channels, TILE_POSITIONS);
    let (channels, columns) = (sizes.channels_in_group(), sizes.channels_out_group());
    let (window, groups) = (sizes.window(), sizes.groups);
    let part_len = groups * window * columns;
    let images = sizes.input.images;
    let per_part = images.div_ceil((PARTS_ELEMENTS / part_len).clamp(1, MAX_PARTS));
    let parts = images.div_ceil(per_part);
    // Depthwise sums are one row of channels per tap, the transpose of the usual order.
    let depthwise = sizes.is_depthwise();
    // A part's window elements are split further so that all threads have work.
    let blocks = window.div_ceil(BLOCK_ROWS);
    let splits = (2 * rayon::current_num_threads()).div_ceil(parts);
    let splits = if depthwise { 1 } else { splits.clamp(1, blocks) };
    let split_rows = blocks.div_ceil(splits) * BLOCK_ROWS;
    let splits = window.div_ceil(split_rows);

    let mut sums = if depthwise { Buffer::zeros(parts * part_len) } else { Buffer::new(parts * part_len) };
    let shared = Disjoint::new(&mut sums);
    (0..parts * splits).into_par_iter().with_max_len(1).for_each(|task| {
        let (part, split) = (task / splits, task % splits);
        let first_image = part * per_part;
        let last_image = images.min(first_image + per_part);
        let tiles = tiles.iter().filter_map(|tile| clip(*tile, first_image, last_image));
        let sums = shared.starting_at(part * part_len);
        if depthwise {
            // SAFETY: a part of a depthwise gradient is one task, and parts do not overlap.
            let sums = unsafe { sums.slice(0, part_len) };
            tiles.for_each(|tile| depthwise_tile(&windows, x, dy, sizes, tile, sums));
            return;
        }
        let rows = split * split_rows..window.min((split + 1) * split_rows);
        let rows_c: Vec<usize> = rows.clone().map(|row| row * columns).collect();
        for (index, tile) in tiles.enumerate() {
            windows.with_view(x, tile, |view| {
                let task = TileTask {
                    windows: &windows,
                    sizes,
                    precision,
                    tile,
                    view: &view,
                    accumulate: index > 0,
                };
                // SAFETY: parts do not overlap, nor do the rows of different splits.
                unsafe { task.dense(dy, rows.clone(), sums, &rows_c) };
            });
        }
    });

    let total = join_parts(&mut sums, part_len);
    let mut gradient = Buffer::new(part_len);
    if sizes.weight_by_input {
        gradient.copy_from_slice(total);
        return gradient;
    }
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

/// Accumulates a tile of a depthwise gradient.
fn depthwise_tile(
    windows: &Windows,
    x: &Source<'_>,
    dy: &Source<'_>,
    sizes: &Geometry,
    tile: Tile,
    sums: &mut [f32],
) {
    windows.with_view(x, tile, |view| {
        let positions = windows.positions(tile, &view);
        let (first, per_position) = tile_positions(tile, sizes.output);
        with_positions(dy, 1, first, per_position, |dy, pitch| {
            let taps = windows.taps(&view);
            depthwise::add_sums(view.values, &positions, &taps, dy, pitch, sums);
        });
    });
}

/// A tile of a weight gradient.
struct TileTask<'a> {
    windows: &'a Windows,
    sizes: &'a Geometry,
    precision: Precision,
    tile: Tile,
    view: &'a View<'a>,
    accumulate: bool,
}

impl TileTask<'_> {
    /// Sets, or accumulates, the rows `rows` of every group's sums, which start at `rows_c`.
    ///
    /// # Safety
    ///
    /// Nothing else accesses these rows of `sums` during the call.
    unsafe fn dense(
        &self,
        dy: &Source<'_>,
        rows: std::ops::Range<usize>,
        sums: Disjoint<'_>,
        rows_c: &[usize],
    ) {
        let Self { windows, sizes, precision, tile, view, accumulate } = *self;
        let (channels, columns) = (sizes.channels_in_group(), sizes.channels_out_group());
        let positions = tile_runs(windows, tile, view);
        let step = sizes.stride[1] * view.pitch;
        let terms = chunks(&positions, step, precision);
        let (first, per_position) = tile_positions(tile, sizes.output);
        with_positions(dy, 1, first, per_position, |dy, pitch| {
            for group in 0..sizes.groups {
                let start_of = |row: usize| {
                    let (tap, channel) = (row / channels, row % channels);
                    let (a, b) = (tap / sizes.kernel[1], tap % sizes.kernel[1]);
                    windows.tap(a, b, view) + group * channels + channel
                };
                let product = Product {
                    a: view.values,
                    rows_a: &rows.clone().map(start_of).collect::<Vec<usize>>(),
                    step,
                    chunks: &terms,
                    right: Right::Rows {
                        values: &dy[group * columns..],
                        stride: pitch,
                        panel_stride: panel_width(),
                    },
                    precision,
                    c: sums.starting_at(group * sizes.window() * columns),
                    rows_c,
                    columns,
                    accumulate,
                    prefetch: &[],
                    finish: None,
                };
                // SAFETY: the caller's promise.
                unsafe { product::multiply(product) };
            }
        });
    }
}

/// The maps of a pointwise convolution of `f32` for whose gradient threads divide the weight, not the positions: partial sums of a
/// large weight would not stay in the second-level cache. Both maps are in memory, and the longer side is whole vectors.
pub(super) fn divides_weight<'a>(
    x: &Source<'a>,
    dy: &Source<'a>,
    sizes: &Geometry,
) -> Option<[&'a [f32]; 2]> {
    let (inputs, outputs) = (sizes.input.channels, sizes.output.channels);
    let divides = sizes.is_pointwise()
        && inputs * outputs > LARGE_WEIGHT
        && inputs.max(outputs).is_multiple_of(LINE)
        && Choice::current().precision == Precision::F32;
    if divides { Some([x.values(0)?, dy.values(0)?]) } else { None }
}

/// The gradient with respect to the weight, for [`divides_weight`].
fn of_large_weight(x: &[f32], dy: &[f32], sizes: &Geometry) -> Buffer {
    let (inputs, outputs) = (sizes.input.channels, sizes.output.channels);
    let positions = sizes.input.pixels();
    let input_is_long = inputs > outputs;
    let ((left, short), (right, long)) = match input_is_long {
        true => ((dy, outputs), (x, inputs)),
        false => ((x, inputs), (dy, outputs)),
    };
    let (panel, threads) = (panel_width(), rayon::current_num_threads());
    let panels = long.div_ceil(panel);
    let most =
        (SPLIT_ELEMENTS / (short * panel)).clamp(FEWEST_COPIED_PANELS, panels.max(FEWEST_COPIED_PANELS));
    let time = |of_split: &usize| panels.div_ceil(*of_split).div_ceil(threads) * of_split;
    let of_split = (FEWEST_COPIED_PANELS..=most).rev().min_by_key(time).expect("a number of panels") * panel;
    let splits = long.div_ceil(of_split);
    let blocks = short.div_ceil(BLOCK_ROWS);
    let rows_of_split = blocks.div_ceil(threads.div_ceil(splits).min(blocks)) * BLOCK_ROWS;

    let mut sums = Buffer::new(short * long);
    let shared = Disjoint::new(&mut sums);
    let chunks = chunks(&[Run { offset: 0, len: positions }], short, Precision::F32);
    let row_splits = short.div_ceil(rows_of_split);
    (0..row_splits * splits).into_par_iter().with_max_len(1).for_each(|task| {
        let rows = task / splits * rows_of_split..short.min((task / splits + 1) * rows_of_split);
        let first = task % splits * of_split;
        let product = Product {
            a: left,
            rows_a: &rows.clone().collect::<Vec<usize>>(),
            step: short,
            chunks: &chunks,
            right: Right::Rows { values: &right[first..], stride: long, panel_stride: panel },
            precision: Precision::F32,
            c: shared.starting_at(first),
            rows_c: &rows.map(|row| row * long).collect::<Vec<usize>>(),
            columns: of_split.min(long - first),
            accumulate: false,
            prefetch: &[],
            finish: None,
        };
        // SAFETY: the rows and columns of different tasks do not overlap.
        unsafe { product::multiply(product) };
    });
    if in_order(sizes) { sums } else { turned(&sums, sizes) }
}

/// Whether a pointwise weight gradient with a row for each channel of the shorter side is in the weight's order.
pub(super) fn in_order(sizes: &Geometry) -> bool {
    (sizes.input.channels > sizes.output.channels) != sizes.weight_by_input
}

/// Such a gradient with a row for each channel of the longer side.
pub(super) fn turned(sums: &[f32], sizes: &Geometry) -> Buffer {
    let (inputs, outputs) = (sizes.input.channels, sizes.output.channels);
    let mut gradient = Buffer::new(sums.len());
    by_column(sums, [1, inputs.min(outputs)], inputs.max(outputs), &mut gradient);
    gradient
}

/// Adds all parts of `sums`, `len` elements each, in their order, and returns the total.
pub(super) fn join_parts(sums: &mut [f32], len: usize) -> &[f32] {
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
