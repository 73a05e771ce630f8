//! The gradient with respect to the weight.

use gallerist_util::simd::run;
use rayon::prelude::*;

use super::tiles::transform;
use super::transforms::{Apply, OfInput, OfOutputGradient, ToKernelGradient};
use super::{Block, ELEMENTS, Elements, IN, SIDE, row_of};
use crate::buffer::Buffer;
use crate::conv::order::by_column;
use crate::conv::source::Source;
use crate::conv::windows::Windows;
use crate::disjoint::Disjoint;
use crate::geometry::Geometry;
use crate::product::{self, MAX_PANEL, Precision, Product, Right, Run, chunks, panel_width};

/// Most elements of the transformed tiles that are in memory at one time, unless [`FEWEST_TILES`] have more.
const PART_ELEMENTS: usize = 512 * 1024;

/// Fewest tiles that amortise reading and writing all sums.
const FEWEST_TILES: usize = 128;

/// As [`weight_gradient`](crate::conv::weight_gradient()).
///
/// Tiles are summed in their order: the bits do not depend on the number of threads.
pub(in crate::conv) fn weight_gradient(x: &Source<'_>, dy: &Source<'_>, sizes: &Geometry) -> Buffer {
    let windows = Windows::forward(sizes);
    let (inputs, outputs) = (sizes.input.channels, sizes.output.channels);
    // The positions of the output gradient as windows of a single element.
    let positions = Windows { source: sizes.output, offsets: [vec![0], vec![0]], ..Windows::forward(sizes) };
    let blocks = Block::all(&windows);
    let mut sums = Buffer::new(ELEMENTS * inputs * outputs);
    for (index, part) in parts(&blocks, row_of(inputs) + row_of(outputs)).enumerate() {
        let first_tiles: Vec<usize> = part
            .iter()
            .scan(0, |next, block| {
                let first = *next;
                *next += block.tiles();
                Some(first)
            })
            .collect();
        let tiles = part.iter().map(Block::tiles).sum();
        let [mut of_inputs, mut of_outputs] =
            [inputs, outputs].map(|channels| Buffer::new(ELEMENTS * tiles * row_of(channels) + MAX_PANEL));
        let to_inputs = Elements::new(&mut of_inputs, tiles, inputs);
        let to_outputs = Elements::new(&mut of_outputs, tiles, outputs);
        (0..2 * part.len()).into_par_iter().with_max_len(1).for_each(|task| {
            let (block, first) = (&part[task / 2], first_tiles[task / 2]);
            // SAFETY: different blocks have different tiles, and the two sides are different memories.
            unsafe {
                match task % 2 {
                    0 => transform(OfInput, x, &windows, block, to_inputs, first),
                    _ => transform(OfOutputGradient, dy, &positions, block, to_outputs, first),
                }
            }
        });
        let [row_of_left, row_of_right] = [inputs, outputs].map(row_of);
        let columns: Vec<usize> = (0..inputs).collect();
        let terms = chunks(&[Run { offset: 0, len: tiles }], row_of_left, Precision::F32);
        let rows_c: Vec<usize> = columns.iter().map(|input| input * outputs).collect();
        sums.par_chunks_mut(inputs * outputs).enumerate().with_max_len(1).for_each(|(element, sums)| {
            let product = Product {
                a: &of_inputs[element * tiles * row_of_left..],
                rows_a: &columns,
                step: row_of_left,
                chunks: &terms,
                right: Right::Rows {
                    values: &of_outputs[element * tiles * row_of_right..],
                    stride: row_of_right,
                    panel_stride: panel_width(),
                },
                precision: Precision::F32,
                c: Disjoint::new(sums),
                rows_c: &rows_c,
                columns: outputs,
                accumulate: index > 0,
                prefetch: &[],
                finish: None,
            };
            // SAFETY: `sums` is borrowed mutably, by this task alone.
            unsafe { product::multiply(product) };
        });
    }
    let mut kernels = Buffer::new(SIDE * SIDE * inputs * outputs);
    to_kernels(&sums, &mut kernels, outputs);
    let mut gradient = Buffer::new(kernels.len());
    by_column(&kernels, [SIDE * SIDE, inputs], outputs, &mut gradient);
    gradient
}

/// The blocks in parts that are summed at a time; a tile has `row` channels of both sides.
fn parts(blocks: &[Block], row: usize) -> impl Iterator<Item = &[Block]> {
    let tiles: usize = blocks.iter().map(Block::tiles).sum();
    let most = (PART_ELEMENTS / (ELEMENTS * row)).max(FEWEST_TILES);
    // Parts of nearly equal numbers of blocks.
    let parts = tiles.div_ceil(most).min(blocks.len());
    blocks.chunks(blocks.len().div_ceil(parts))
}

/// `G^T U G` of the sums, one row of `outputs` per element and input channel; one row per tap and input channel.
fn to_kernels(sums: &[f32], kernels: &mut [f32], outputs: usize) {
    let [of_element, of_tap] = [sums.len() / ELEMENTS, kernels.len() / (SIDE * SIDE)];
    assert_eq!(of_element, of_tap);
    let shared = Disjoint::new(kernels);
    (0..of_tap / outputs).into_par_iter().with_min_len(8).for_each(|input| {
        let from: [[&[f32]; IN]; IN] = std::array::from_fn(|i| {
            std::array::from_fn(|j| &sums[(i * IN + j) * of_element + input * outputs..][..outputs])
        });
        let mut to: [[&mut [f32]; SIDE]; SIDE] = std::array::from_fn(|i| {
            // SAFETY: a row belongs to the task of its input channel.
            std::array::from_fn(|j| unsafe {
                shared.slice((i * SIDE + j) * of_tap + input * outputs, outputs)
            })
        });
        run(Apply::new(ToKernelGradient, &from, &mut to, outputs));
    });
}
