//! The convolution, which is also the input gradient.

use std::ops::Range;

use gallerist_util::simd::run;
use rayon::prelude::*;

use super::tiles::transform;
use super::transforms::{Ends, OfInput, Output};
use super::weight::Transformed;
use super::{Block, ELEMENTS, Elements, IN, OUT, row_of};
use crate::buffer::with_scratch;
use crate::conv::correlate::{After, Ending, Target, panels_of_split};
use crate::conv::source::Source;
use crate::conv::windows::{Windows, tile_positions};
use crate::disjoint::Disjoint;
use crate::maps::Maps;
use crate::norm::Activation;
use crate::product::{Left, Precision, Run, chunks, multiply_rows};

/// As [`correlate`](crate::conv::correlate::correlate) of one group, for a target whose grid is all its positions.
pub(in crate::conv) fn correlate<T: Send>(
    windows: &Windows,
    source: &Source<'_>,
    weights: &Transformed,
    target: &Target,
    out: &mut [f32],
    accumulate: bool,
    ending: Option<Ending<'_>>,
    after: Option<After<'_, T>>,
) -> Vec<T> {
    assert_eq!((windows.source.channels, target.channels.len()), (weights.channels, weights.columns));
    assert_eq!(windows.grid, [target.maps.height, target.maps.width]);
    assert!(ending.is_none_or(|ending| {
        let of_result = Maps { channels: weights.columns, ..target.maps };
        ending.add.is_none_or(|add| add.len() == of_result.len())
    }));
    // With few blocks, the panels of a block are split; with few panels, the blocks are smaller. The values do not depend on
    // this. The parts of `after` do, however.
    let (panels, threads) = (weights.panels(), rayon::current_num_threads());
    let blocks = match after {
        Some(_) => Block::all(windows),
        None => Block::at_least(threads.div_ceil(panels), windows),
    };
    let of_split = panels_of_split(panels, blocks.len(), threads);
    let splits = panels.div_ceil(of_split);
    let task = Task { windows, source, weights, target, out: Disjoint::new(out), accumulate, ending };
    // All channels of the maps are of this result, as the caller has checked.
    let part = |block: &Block, after: After<'_, T>| {
        let (first, [positions, channels]) = tile_positions(block.positions, target.maps);
        // SAFETY: the block's positions are contiguous. All its panels are done, and no other task has this block.
        let values = unsafe { task.out.slice(first, positions * channels) };
        after(first, values)
    };
    let parts = (0..blocks.len() * splits).into_par_iter().with_max_len(1).filter_map(|index| {
        let (block, first) = (&blocks[index / splits], index % splits * of_split);
        // SAFETY: different blocks have different positions, and different splits different channels.
        unsafe { task.block(block, first..panels.min(first + of_split)) };
        after.filter(|_| splits == 1).map(|after| part(block, after))
    });
    let parts: Vec<T> = parts.collect();
    match after.filter(|_| splits > 1) {
        Some(after) => blocks.par_iter().with_max_len(1).map(|block| part(block, after)).collect(),
        None => parts,
    }
}

struct Task<'a> {
    windows: &'a Windows,
    source: &'a Source<'a>,
    weights: &'a Transformed,
    target: &'a Target,
    out: Disjoint<'a>,
    accumulate: bool,
    ending: Option<Ending<'a>>,
}

impl Task<'_> {
    /// Some panels of a block.
    ///
    /// # Safety
    ///
    /// Nothing else accesses the channels of the panels at the positions of the block during the call.
    unsafe fn block(&self, block: &Block, panels: Range<usize>) {
        let Transformed { channels, columns, width, .. } = *self.weights;
        let count = block.tiles();
        let row = row_of(channels);
        let runs = chunks(&[Run { offset: 0, len: channels }], 1, Precision::F32);
        let rows: Vec<usize> = (0..count).map(|tile| tile * row).collect();
        let rows_of_products: Vec<usize> = (0..count).map(|tile| tile * width).collect();
        with_scratch(1, ELEMENTS * count * row, |transformed| {
            let elements = Elements::new(transformed, count, channels);
            // SAFETY: `transformed` is borrowed mutably, and this is the only use of its rows.
            unsafe { transform(OfInput, self.source, self.windows, block, elements, 0) };
            with_scratch(2, ELEMENTS * count * width, |products| {
                for panel in panels {
                    let of_panel = width.min(columns - panel * width);
                    for element in 0..ELEMENTS {
                        let left = Left {
                            values: &transformed[element * count * row..][..count * row],
                            rows: &rows,
                            step: 1,
                            chunks: &runs,
                        };
                        let products = &mut products[element * count * width..][..count * width];
                        let right = (self.weights.rows(panel, element), width);
                        multiply_rows(&left, right, products, &rows_of_products, of_panel);
                    }
                    for tile in 0..count {
                        let of_element = |element: usize| &products[(element * count + tile) * width..];
                        let products = std::array::from_fn(|i| {
                            std::array::from_fn(|j| &of_element(i * IN + j)[..of_panel])
                        });
                        // SAFETY: the caller's promise.
                        unsafe { self.output(block.place(tile), &products, panel * width, of_panel) };
                    }
                }
            });
        });
    }

    /// Writes channels of the outputs of a tile.
    ///
    /// # Safety
    ///
    /// Nothing else accesses these channels at the tile's positions during the call.
    unsafe fn output(
        &self,
        [image, row, column]: [usize; 3],
        products: &[[&[f32]; IN]; IN],
        first: usize,
        columns: usize,
    ) {
        let Maps { height, width, channels, .. } = self.target.maps;
        let mut targets: [[&mut [f32]; OUT]; OUT] = Default::default();
        let mut added = [[&[][..]; OUT]; OUT];
        let add = self.ending.and_then(|ending| ending.add);
        for (i, j) in (0..OUT).flat_map(|i| (0..OUT).map(move |j| (i, j))) {
            if row + i >= height || column + j >= width {
                continue;
            }
            let position = (image * height + row + i) * width + column + j;
            // SAFETY: the positions of a tile differ; the caller's promise.
            targets[i][j] =
                unsafe { self.out.slice(position * channels + self.target.channels.start + first, columns) };
            if let Some(add) = add {
                added[i][j] = &add[position * self.weights.columns + first..][..columns];
            }
        }
        let ends = Ends {
            bias: self.ending.map(|ending| &ending.bias[first..]),
            added: add.map(|_| &added),
            bounds: self.ending.map_or(Activation::None, |ending| ending.activation).bounds(),
            accumulate: self.accumulate,
        };
        run(Output::new(products, &mut targets, columns, ends));
    }
}
