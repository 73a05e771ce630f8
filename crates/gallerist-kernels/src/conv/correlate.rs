//! The product of every window of feature maps with the weights.

use std::ops::Range;

use rayon::prelude::*;

use super::pack::{Packed, Panels, Weights};
use super::source::Source;
use super::windows::{Tile, View, Windows, divides_well};
use super::winograd;
use crate::buffer::Buffer;
use crate::depthwise;
use crate::disjoint::Disjoint;
use crate::maps::Maps;
use crate::norm::Activation;
use crate::product::{self, Finish, Product, chunks};

/// Called for a part of a result while it is in the cache, with the index of its first element and its values, whole
/// positions.
pub(crate) type After<'a, T> = &'a (dyn Fn(usize, &mut [f32]) -> T + Sync);

/// The positions of a grid in the result: position `(i, j)` of the grid is position `first + (i, j) * step` of the maps.
pub(super) struct Target {
    pub(super) maps: Maps,
    pub(super) first: [usize; 2],
    pub(super) step: [usize; 2],
    /// The channels that are written; the others of the maps belong to other results.
    pub(super) channels: Range<usize>,
}

/// What is done with the values: `activation(value + bias + add)`.
#[derive(Clone, Copy)]
pub(super) struct Ending<'a> {
    /// One value per channel, then [`MAX_PANEL`](product::MAX_PANEL) more, which are not used.
    pub(super) bias: &'a [f32],
    /// Maps of the result's channels and positions. Not for depthwise convolutions.
    pub(super) add: Option<&'a [f32]>,
    /// One without a gate for Winograd's algorithm.
    pub(super) activation: Activation,
}

impl Target {
    /// The first elements of the tile's positions in maps of `pitch` channels.
    fn positions(&self, windows: &Windows, tile: Tile, pitch: usize, channel: usize) -> Vec<usize> {
        let mut positions = Vec::with_capacity(tile.images * tile.rows * windows.grid[1]);
        for image in tile.first_image..tile.first_image + tile.images {
            for i in tile.first_row..tile.first_row + tile.rows {
                let row = image * self.maps.height + self.first[0] + i * self.step[0];
                let pixel = |j: usize| row * self.maps.width + self.first[1] + j * self.step[1];
                positions.extend((0..windows.grid[1]).map(|j| pixel(j) * pitch + channel));
            }
        }
        positions
    }
}

/// Where a result is written: channels of maps that may hold other results, too.
pub(crate) struct Place<'a> {
    pub(crate) values: &'a mut [f32],
    /// Channels of the maps.
    pub(crate) pitch: usize,
    /// The first channel that is written.
    pub(crate) channel: usize,
}

/// Sets every position of `target`'s grid in `out` to the product of its window with the weights, or accumulates the
/// product there, which the depthwise kernel does not support.
///
/// `after` is called for every tile of a result whose grid is all its positions; its results are returned in the order
/// of the tiles.
pub(super) fn correlate<T: Send>(
    windows: &Windows,
    groups: usize,
    source: &Source<'_>,
    weights: &Weights,
    target: &Target,
    out: &mut [f32],
    accumulate: bool,
    ending: Option<Ending<'_>>,
    after: Option<After<'_, T>>,
) -> Vec<T> {
    assert_eq!(out.len(), target.maps.len());
    assert_eq!(source.len(), windows.source.len());
    assert!(
        after.is_none()
            || target.step == [1, 1]
                && windows.grid == [target.maps.height, target.maps.width]
                && target.channels.len() == target.maps.channels
    );
    assert!(target.channels.end <= target.maps.channels);
    let weights = match weights {
        Weights::Packed(packed) => packed,
        Weights::Transformed(weights) => {
            let gated = ending.is_some_and(|ending| ending.activation.gate().is_some());
            assert!(!gated, "no gate with Winograd's algorithm");
            return winograd::correlate(windows, source, weights, target, out, accumulate, ending, after);
        }
    };
    let columns = target.channels.len() / groups;
    // With too few tiles for all threads, as for a single image, the tiles of a depthwise convolution are smaller. For
    // another one, the columns are split as well, or where these are few, the tiles. So are the tiles of maps that are larger
    // than the weight: the next layer reads a tile on the thread that wrote it, from its own cache. The values do not depend on
    // this. The parts of `after` do, however.
    let threads = rayon::current_num_threads();
    let mut tiles = windows.tiles();
    let mut split = (columns, 1);
    match weights {
        Packed::Rows(_) if after.is_none() => tiles = windows.tiles_for(threads),
        Packed::Panels(panels) if after.is_none() => {
            let count = columns.div_ceil(panels.width);
            let few = tiles.len() < threads && windows.exceed_weight(target.channels.len(), groups);
            if few || !divides_well(count * tiles.len(), threads) {
                tiles = windows.tiles_for(threads);
            }
            let of_split = panels_of_split(count, tiles.len(), threads);
            split = (of_split * panels.width, count.div_ceil(of_split));
        }
        _ => {}
    }
    let (columns_of_split, splits) = split;
    let task = Task { windows, groups, target, out: Disjoint::new(out), accumulate, ending };
    let work = |index: usize| {
        let (tile, first_column) = (tiles[index / splits], index % splits * columns_of_split);
        windows.with_view(source, tile, |view| {
            let positions = windows.positions(tile, &view);
            let out_positions = target.positions(windows, tile, target.maps.channels, target.channels.start);
            let added = ending.filter(|ending| ending.add.is_some());
            let add_positions =
                added.map(|_| target.positions(windows, tile, target.channels.len(), 0)).unwrap_or_default();
            match weights {
                // SAFETY: the positions of different tiles do not overlap.
                Packed::Rows(rows) => unsafe {
                    task.depthwise(&view, rows, &positions, &out_positions);
                },
                Packed::Panels(panels) => {
                    let columns = first_column..columns.min(first_column + columns_of_split);
                    // SAFETY: the positions of different tiles do not overlap, nor the columns of different splits.
                    unsafe { task.dense(&view, panels, columns, &positions, &out_positions, &add_positions) };
                }
            }
            after.map(|after| {
                let first = out_positions[0];
                // SAFETY: the grid is all positions of the result and in order, as was checked, so that the tile's
                // positions are contiguous. They belong to this task alone: with `after` there is one split.
                let values = unsafe { task.out.slice(first, out_positions.len() * target.maps.channels) };
                after(first, values)
            })
        })
    };
    (0..tiles.len() * splits).into_par_iter().with_max_len(1).filter_map(work).collect()
}

/// How many of the `count` panels of columns of each tile belong together, so that `threads` are busy to the end: at least
/// two tasks for each thread if there are so many panels, and of these divisions the one with the shortest time, if all
/// panels take equally long.
pub(super) fn panels_of_split(count: usize, tiles: usize, threads: usize) -> usize {
    let tasks = |of_split: usize| count.div_ceil(of_split) * tiles;
    let time = |of_split: &usize| tasks(*of_split).div_ceil(threads) * of_split;
    let wanted = (2 * threads).min(count * tiles);
    (1..=count).rev().filter(|&of_split| tasks(of_split) >= wanted).min_by_key(time).unwrap_or(1)
}

/// What the tasks of a correlation have in common.
struct Task<'a> {
    windows: &'a Windows,
    groups: usize,
    target: &'a Target,
    out: Disjoint<'a>,
    accumulate: bool,
    ending: Option<Ending<'a>>,
}

impl Task<'_> {
    /// # Safety
    ///
    /// Nothing else accesses the channels of `out_positions` during the call.
    unsafe fn depthwise(
        &self,
        view: &View<'_>,
        weights: &Buffer,
        positions: &[usize],
        out_positions: &[usize],
    ) {
        let adds = self.accumulate || self.ending.is_some_and(|ending| ending.add.is_some());
        assert!(!adds, "the depthwise kernel does not accumulate");
        let product = depthwise::Product {
            x: view.values,
            positions,
            out_positions,
            rows: &[depthwise::Row { taps: &self.windows.taps(view), out: 0 }],
            weights,
            channels: self.target.channels.len(),
            out: self.out,
            finish: self.ending.map(|ending| (ending.bias, ending.activation)),
        };
        // SAFETY: the caller's promise.
        unsafe { product.compute() };
    }

    /// The given columns of every group.
    ///
    /// # Safety
    ///
    /// Nothing else accesses these columns of `out_positions` during the call.
    unsafe fn dense(
        &self,
        view: &View<'_>,
        panels: &Panels,
        columns: Range<usize>,
        positions: &[usize],
        out_positions: &[usize],
        add_positions: &[usize],
    ) {
        let channels = self.windows.source.channels / self.groups;
        let of_group = self.target.channels.len() / self.groups;
        for group in 0..self.groups {
            let first = group * of_group + columns.start;
            let finish = self.ending.map(|Ending { bias, add, activation }| Finish {
                bias: &bias[first..],
                add: add.map(|values| (&values[first..], add_positions)),
                activation,
            });
            let runs = self.windows.runs(group * channels, channels, view);
            let product = Product {
                a: view.values,
                rows_a: positions,
                step: 1,
                chunks: &chunks(&runs, 1, panels.precision),
                right: panels.right(group, columns.start),
                precision: panels.precision,
                c: self.out.starting_at(first),
                rows_c: out_positions,
                columns: columns.len(),
                accumulate: self.accumulate,
                prefetch: if group == 0 { view.next } else { &[] },
                finish,
            };
            // SAFETY: the caller's promise.
            unsafe { product::multiply(product) };
        }
    }
}
