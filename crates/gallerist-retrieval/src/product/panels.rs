//! Rows stored so that a kernel reads them in order.

use rayon::prelude::*;

use super::tile::{LANES, Panel};
#[cfg(test)]
use crate::MatrixView;

/// A matrix in panels of [`LANES`] rows, and a bias per row; within a panel, the values `k` of all rows are
/// contiguous.
///
/// The rows that fill up the last panel are zero and have the bias -infinity, so that none of
/// their keys reaches a finite floor.
#[derive(Clone)]
pub(crate) struct Panels {
    values: Vec<[f32; LANES]>,
    biases: Vec<[f32; LANES]>,
    rows: usize,
    depth: usize,
}

impl Panels {
    /// Packs `matrix`, with the bias of each row.
    #[cfg(test)]
    pub(crate) fn new(matrix: MatrixView, bias: impl Fn(&[f32]) -> f32 + Sync) -> Self {
        Self::gather(matrix.cols(), matrix.rows(), |i, row| row.copy_from_slice(matrix.row(i)), bias)
    }

    /// Packs `rows` rows; `read` fills row `i`.
    pub(crate) fn gather(
        depth: usize,
        rows: usize,
        read: impl Fn(usize, &mut [f32]) + Sync,
        bias: impl Fn(&[f32]) -> f32 + Sync,
    ) -> Self {
        let panels = rows.div_ceil(LANES);
        let mut values = vec![[0.0; LANES]; panels * depth];
        let mut biases = vec![[f32::NEG_INFINITY; LANES]; panels];
        let pack = |panel: usize, values: &mut Panel, biases: &mut [f32; LANES]| {
            let mut row = vec![0.0; depth];
            for lane in 0..LANES.min(rows - panel * LANES) {
                read(panel * LANES + lane, &mut row);
                biases[lane] = bias(&row);
                for (value, to) in row.iter().zip(values.iter_mut()) {
                    to[lane] = *value;
                }
            }
        };
        if depth == 0 {
            // There are no chunks of nothing to go over.
            biases.iter_mut().enumerate().for_each(|(panel, biases)| pack(panel, &mut [], biases));
        } else if panels <= 4 {
            let chunks = values.chunks_mut(depth).zip(&mut biases);
            chunks.enumerate().for_each(|(panel, (values, biases))| pack(panel, values, biases));
        } else {
            values
                .par_chunks_mut(depth)
                .zip(&mut biases)
                .enumerate()
                .for_each(|(panel, (values, biases))| pack(panel, values, biases));
        }
        Self { values, biases, rows, depth }
    }

    pub(crate) fn rows(&self) -> usize {
        self.rows
    }

    pub(crate) fn depth(&self) -> usize {
        self.depth
    }

    pub(crate) fn panels(&self) -> usize {
        self.biases.len()
    }

    pub(crate) fn panel(&self, panel: usize) -> &Panel {
        &self.values[panel * self.depth..(panel + 1) * self.depth]
    }

    pub(crate) fn bias(&self, panel: usize) -> &[f32; LANES] {
        &self.biases[panel]
    }

    pub(crate) fn row_bias(&self, row: usize) -> f32 {
        self.biases[row / LANES][row % LANES]
    }

    /// The values of row `i`, in order.
    pub(crate) fn row(&self, i: usize) -> impl Iterator<Item = f32> {
        assert!(i < self.rows, "row {i} of {}", self.rows);
        self.panel(i / LANES).iter().map(move |values| values[i % LANES])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_come_back_from_their_panels() {
        for rows in [1, 2, 33, LANES - 1, LANES, LANES + 1] {
            let values: Vec<f32> = (0..rows * 3).map(|value| value as f32).collect();
            let matrix = MatrixView::new(rows, 3, &values).unwrap();
            let panels = Panels::new(matrix, |row| row[0]);
            assert_eq!(panels.panels(), rows.div_ceil(LANES));
            for i in 0..rows {
                assert_eq!(panels.row(i).collect::<Vec<_>>(), matrix.row(i));
                assert_eq!(panels.row_bias(i), matrix.row(i)[0]);
            }
            let filled = rows % LANES;
            if filled != 0 {
                let last = panels.bias(panels.panels() - 1);
                assert!(last[filled..].iter().all(|&bias| bias == f32::NEG_INFINITY));
            }
        }
    }
}
