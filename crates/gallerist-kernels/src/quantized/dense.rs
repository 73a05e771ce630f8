//! Convolutions of all channels with each other.

use super::ending::{Column, Ending, Scales};
use super::layout::Layout;
use super::lines::{GROUP, LANES, Line, VECTORS, columns};
use super::task::{Added, Out, Panel, PanelTask, Position};
use super::unit::{Unit, fastest};
#[cfg(all(target_arch = "x86_64", not(miri)))]
use super::x86;
#[cfg(all(target_arch = "x86_64", not(miri)))]
use crate::buffer::{bytes_of, with_scratch};
use crate::product::Run;

/// Most terms of a sum: no sum of bytes times signed bytes is outside of 32 bits.
const MOST_TERMS: usize = 1 << 16;

/// The bytes that a position of the result reads, from the first byte of its window on.
pub(crate) struct Taps {
    /// Of lengths that are multiples of [`GROUP`].
    pub(super) runs: Vec<Run>,
    /// Channels of the weights, and with those to the next multiple of [`GROUP`].
    channels: [usize; 2],
}

impl Taps {
    /// Of a window of `kernel` rows and columns.
    pub(crate) fn new(x: &Layout, kernel: [usize; 2]) -> Self {
        let padded = x.channels.next_multiple_of(GROUP);
        let mut runs: Vec<Run> = Vec::new();
        for (row, column) in (0..kernel[0]).flat_map(|row| (0..kernel[1]).map(move |column| (row, column))) {
            let offset = x.at_border(row, column);
            match runs.last_mut() {
                Some(last) if last.offset + last.len == offset => last.len += padded,
                _ => runs.push(Run { offset, len: padded }),
            }
        }
        Self { runs, channels: [x.channels, padded] }
    }

    fn terms(&self) -> usize {
        self.runs.iter().map(|run| run.len).sum()
    }
}

/// A convolution, packed: panels of up to [`VECTORS`] vectors of columns.
pub(crate) struct Dense {
    taps: Taps,
    weights: Vec<Line>,
    ending: Ending,
    columns: usize,
    /// Terms of a sum, in groups.
    groups: usize,
}

impl Dense {
    /// Packs a contiguous weight `[channels out, channels in, height, width]`. `expected` are the means of the values at each
    /// weight of a channel.
    ///
    /// # Panics
    ///
    /// If a sum has too many terms.
    pub(crate) fn new(weight: &[f32], expected: &[f32], bias: &[f32], taps: Taps, scales: Scales) -> Self {
        let [channels, padded] = taps.channels;
        let per_column = weight.len() / bias.len();
        let area = per_column / channels;
        let terms = taps.terms();
        assert!(terms == area * padded && terms <= MOST_TERMS, "{terms} terms of {per_column} weights");
        let of_columns: Vec<Column> = weight
            .chunks_exact(per_column)
            .zip(bias)
            .map(|(weight, &bias)| Column::new(weight, expected, bias))
            .collect();
        let byte = |column: usize, term: usize| {
            let (tap, channel) = (term / padded, term % padded);
            match of_columns.get(column) {
                Some(column) if channel < channels => column.bytes()[channel * area + tap],
                _ => 0,
            }
        };
        let groups = terms / GROUP;
        let mut weights = Vec::new();
        let mut order = Vec::new();
        for (first, vectors) in panels(bias.len()) {
            let of_panel: Vec<usize> = columns(first, vectors, scales.y.is_some()).collect();
            for (group, vector) in
                (0..groups).flat_map(|group| (0..vectors).map(move |vector| (group, vector)))
            {
                let mut line = [0; LANES * GROUP];
                for (i, value) in line.iter_mut().enumerate() {
                    let column = of_panel[vector * LANES + i / GROUP];
                    *value = byte(column, group * GROUP + i % GROUP);
                }
                weights.push(Line(line));
            }
            order.extend(of_panel);
        }
        let ending = Ending::new(&of_columns, order.into_iter(), scales);
        Self { taps, weights, ending, columns: bias.len(), groups }
    }

    /// Writes the result at `positions`.
    ///
    /// # Safety
    ///
    /// Nothing else accesses these positions of the result during the call.
    ///
    /// # Panics
    ///
    /// If an operand or the result does not have all elements that are named.
    pub(crate) unsafe fn compute(
        &self,
        x: &[u8],
        positions: &[Position],
        add: Option<Added<'_>>,
        out: Out<'_>,
    ) {
        // SAFETY: the caller's promise.
        unsafe { self.compute_by(fastest(), x, positions, add, out) };
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
        positions: &[Position],
        add: Option<Added<'_>>,
        out: Out<'_>,
    ) {
        let most = |of: fn(&Position) -> u32| positions.iter().map(of).max().unwrap_or(0) as usize;
        let reach = self.taps.runs.iter().map(|run| run.offset + run.len).max().unwrap_or(0);
        let whole = self.columns.next_multiple_of(LANES);
        assert!(most(|at| at.from) + reach <= x.len(), "a window outside of the maps");
        assert!(add.is_none_or(|add| most(|at| at.add) + whole <= add.len()), "maps that are added");
        let (len, end) = match out {
            Out::Bytes(out) => (out.len(), whole),
            Out::Floats(out) => (out.len(), self.columns),
        };
        assert!(most(|at| at.to) + end <= len, "a position outside of the result");
        let task =
            |panel| PanelTask { x, runs: &self.taps.runs, panel, positions, add, columns: self.columns };
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        if unit == Unit::Matrix && x86::takes_tiles(self.groups, positions.len()) {
            for positions in positions.chunks(x86::MOST_ROWS) {
                with_scratch(3, x86::rows_len(self.groups), |rows| {
                    let rows = x86::gather(x, &self.taps.runs, positions, bytes_of(rows));
                    for panel in self.panels() {
                        // SAFETY: the caller's promise; the CPU has the unit, and the elements are inside, as was checked.
                        unsafe { x86::dense_by_tiles(&PanelTask { positions, ..task(panel) }, rows, out) };
                    }
                });
            }
            return;
        }
        for panel in self.panels() {
            let task = task(panel);
            #[cfg(all(target_arch = "x86_64", not(miri)))]
            if unit > Unit::Portable {
                // SAFETY: the caller's promise; the CPU has the unit, and the elements are inside, as was checked.
                unsafe { x86::dense(&task, out) };
                continue;
            }
            // SAFETY: the caller's promise.
            unsafe { task.portable(out) };
        }
    }

    fn panels(&self) -> impl Iterator<Item = Panel<'_>> {
        let mut weights = &self.weights[..];
        panels(self.columns).map(move |(first, vectors)| {
            let (of_panel, rest) = weights.split_at(self.groups * vectors);
            weights = rest;
            Panel { first, vectors, weights: of_panel, ends: self.ending.starting_at(first) }
        })
    }
}

/// The first column and the vectors of every panel.
fn panels(columns: usize) -> impl Iterator<Item = (usize, usize)> {
    let width = VECTORS * LANES;
    (0..columns).step_by(width).map(move |first| (first, (columns - first).min(width).div_ceil(LANES)))
}
