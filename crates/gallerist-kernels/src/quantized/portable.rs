//! Tasks for any CPU.

use gallerist_util::vectorized;

use super::lines::{GROUP, LANES, Line, VECTORS, columns};
use super::scale::rounded;
use super::task::{Out, Panel, PanelTask, RowTask, Steps};
use crate::disjoint::Disjoint;

impl PanelTask<'_> {
    /// # Safety
    ///
    /// Nothing else accesses the panel's columns at these positions of the result during the call.
    pub(super) unsafe fn portable(&self, out: Out<'_>) {
        let Panel { first, vectors, weights, ends } = &self.panel;
        let interleave = matches!(out, Out::Bytes(_));
        let of_lanes: Vec<usize> = columns(0, *vectors, interleave).collect();
        for position in self.positions {
            let mut all = [0; VECTORS * LANES];
            let sums = &mut all[..vectors * LANES];
            let mut at = 0;
            for run in self.runs {
                let x = &self.x[position.from as usize + run.offset..][..run.len];
                let lines = run.len / GROUP * vectors;
                sum(x, &weights[at..at + lines], sums);
                at += lines;
            }
            let added = |column: usize| self.add.map_or(0, |add| add[position.add as usize + first + column]);
            let to = position.to as usize + first;
            for (lane, &column) in of_lanes.iter().enumerate() {
                let value = ends.value(lane, sums[lane], added(column));
                match out {
                    // SAFETY: the caller's promise.
                    Out::Bytes(out) => unsafe { out.slice(to + column, 1)[0] = rounded(value) },
                    // SAFETY: as above.
                    Out::Floats(out) if first + column < self.columns => unsafe {
                        out.slice(to + column, 1)[0] = value;
                    },
                    Out::Floats(_) => {}
                }
            }
        }
    }
}

vectorized! {
    /// Adds the products of a run of bytes with its weights, group after group, to the sums.
    fn sum<'a>(x: &'a [u8], weights: &'a [Line], sums: &'a mut [i32]) -> () {
        let vectors = sums.len() / LANES;
        for (x, weights) in x.chunks_exact(GROUP).zip(weights.chunks_exact(vectors)) {
            let x = [x[0], x[1], x[2], x[3]].map(i32::from);
            for (Line(line), sums) in weights.iter().zip(sums.chunks_exact_mut(LANES)) {
                for (sum, weight) in sums.iter_mut().zip(line.as_chunks::<GROUP>().0) {
                    for i in 0..GROUP {
                        *sum += x[i] * i32::from(weight[i]);
                    }
                }
            }
        }
    }
}

impl RowTask<'_> {
    /// # Safety
    ///
    /// Nothing else accesses the block's channels in this row of the result during the call.
    pub(super) unsafe fn portable(&self, out: Disjoint<'_, u8>) {
        let [height, width] = self.kernel;
        let Steps { row, pitch, stride } = self.steps;
        let groups = height.div_ceil(GROUP);
        let of_lanes: Vec<usize> = columns(0, VECTORS, true).collect();
        for i in 0..self.row.count {
            // SAFETY: the caller's promise.
            let to = unsafe { out.slice(self.row.to + i * pitch, self.bytes) };
            for (lane, &channel) in of_lanes.iter().enumerate().filter(|(_, channel)| **channel < self.bytes)
            {
                let mut sum = 0;
                for (a, b) in (0..height).flat_map(|a| (0..width).map(move |b| (a, b))) {
                    let Line(line) = &self.weights[(b * groups + a / GROUP) * VECTORS + lane / LANES];
                    let weight = line[lane % LANES * GROUP + a % GROUP];
                    let x = self.x[a * row + (i * stride + b) * pitch + channel];
                    sum += i32::from(x) * i32::from(weight);
                }
                to[channel] = rounded(self.ends.value(lane, sum, 0));
            }
        }
    }
}
