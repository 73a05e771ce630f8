//! Convolutions of every channel on its own.

use super::ending::{Column, Ending, Scales};
use super::lines::{BLOCK, GROUP, LANES, Line, MOST_TAPS, VECTORS, columns};
use super::task::{Row, RowTask, Steps};
use super::unit::{Unit, fastest};
#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::x86;
use crate::disjoint::Disjoint;

/// A depthwise convolution, packed: blocks of [`BLOCK`] channels. In a block, [`VECTORS`] vectors for each column of the window
/// and each [`GROUP`] of its rows.
pub(crate) struct Depthwise {
    weights: Vec<Line>,
    ending: Ending,
    channels: usize,
    kernel: [usize; 2],
}

impl Depthwise {
    /// Packs a contiguous weight `[channels, 1, height, width]`. `expected` are the means of the values at each weight.
    ///
    /// # Panics
    ///
    /// If the window is larger than [`MOST_TAPS`].
    pub(crate) fn new(
        weight: &[f32],
        expected: &[f32],
        bias: &[f32],
        kernel: [usize; 2],
        scales: Scales,
    ) -> Self {
        let [height, width] = kernel;
        assert!(height.max(width) <= MOST_TAPS, "a window of {height} x {width}");
        let channels = bias.len();
        let of_columns: Vec<Column> = weight
            .chunks_exact(height * width)
            .zip(expected.chunks_exact(height * width).zip(bias))
            .map(|(weight, (expected, &bias))| Column::new(weight, expected, bias))
            .collect();
        let mut weights = Vec::new();
        let mut order = Vec::new();
        for first in (0..channels).step_by(BLOCK) {
            let of_block: Vec<usize> = columns(first, VECTORS, true).collect();
            for column in 0..width {
                for (group, vector) in
                    (0..height.div_ceil(GROUP)).flat_map(|g| (0..VECTORS).map(move |v| (g, v)))
                {
                    let mut line = [0; LANES * GROUP];
                    for (i, value) in line.iter_mut().enumerate() {
                        let row = group * GROUP + i % GROUP;
                        let channel = of_block[vector * LANES + i / GROUP];
                        if row < height && channel < channels {
                            *value = of_columns[channel].bytes()[row * width + column];
                        }
                    }
                    weights.push(Line(line));
                }
            }
            order.extend(of_block);
        }
        let ending = Ending::new(&of_columns, order.into_iter(), scales);
        Self { weights, ending, channels, kernel }
    }

    /// Writes a row of the result.
    ///
    /// # Safety
    ///
    /// Nothing else accesses this row of the result during the call.
    ///
    /// # Panics
    ///
    /// If the input or the result does not have all bytes that are named.
    pub(crate) unsafe fn compute(&self, x: &[u8], row: Row, steps: Steps, out: Disjoint<'_, u8>) {
        // SAFETY: the caller's promise.
        unsafe { self.compute_by(fastest(), x, row, steps, out) };
    }

    /// [`compute`](Self::compute), by this unit.
    ///
    /// # Safety
    ///
    /// As [`compute`](Self::compute); the CPU has the unit.
    pub(super) unsafe fn compute_by(
        &self,
        #[cfg_attr(any(not(target_arch = "x86_64"), miri), allow(unused_variables, reason = "one unit"))]
        unit: Unit,
        x: &[u8],
        row: Row,
        steps: Steps,
        out: Disjoint<'_, u8>,
    ) {
        let [height, width] = self.kernel;
        let Row { from, to, count } = row;
        assert!(count > 0 && steps.pitch == self.channels.next_multiple_of(LANES));
        let last = from + (height - 1) * steps.row + ((count - 1) * steps.stride + width) * steps.pitch;
        assert!(last <= x.len(), "a window outside of the maps");
        assert!(to + count * steps.pitch <= out.len(), "a position outside of the result");
        let per_block = width * height.div_ceil(GROUP) * VECTORS;
        for (block, weights) in self.weights.chunks_exact(per_block).enumerate() {
            let first = block * BLOCK;
            let task = RowTask {
                x: &x[from + first..],
                kernel: self.kernel,
                row: Row { to: to + first, ..row },
                steps,
                bytes: (steps.pitch - first).min(BLOCK),
                weights,
                ends: self.ending.starting_at(first),
            };
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            if unit > Unit::Portable {
                // SAFETY: the caller's promise; the bytes are inside, as was checked.
                unsafe { x86::depthwise(&task, out) };
                continue;
            }
            // SAFETY: the caller's promise.
            unsafe { task.portable(out) };
        }
    }
}
