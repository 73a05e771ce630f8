//! Rows of which most values are zero.

/// Values by row and column, without the zeros: row i has `starts[i]..starts[i + 1]` of
/// `columns` and `values`.
pub(super) struct Sparse {
    starts: Vec<usize>,
    columns: Vec<u32>,
    values: Vec<f32>,
}

impl Sparse {
    /// Takes rows of (column, value).
    pub(super) fn new(rows: impl IntoIterator<Item = Vec<(u32, f32)>>) -> Self {
        let mut all = Self { starts: vec![0], columns: Vec::new(), values: Vec::new() };
        for row in rows {
            for (column, value) in row {
                all.columns.push(column);
                all.values.push(value);
            }
            all.starts.push(all.columns.len());
        }
        all
    }

    pub(super) fn rows(&self) -> usize {
        self.starts.len() - 1
    }

    /// The columns and values of row `i`.
    pub(super) fn row(&self, i: usize) -> impl Iterator<Item = (u32, f32)> {
        let range = self.starts[i]..self.starts[i + 1];
        self.columns[range.clone()].iter().copied().zip(self.values[range].iter().copied())
    }

    /// For each of `columns` columns its values in the rows from `first` on, by row counted from
    /// `first`.
    pub(super) fn transposed(&self, first: usize, columns: usize) -> Self {
        let mut starts = vec![0; columns + 1];
        let entries = self.starts[first]..self.columns.len();
        for &column in &self.columns[entries.clone()] {
            starts[column as usize + 1] += 1;
        }
        for column in 0..columns {
            starts[column + 1] += starts[column];
        }
        let mut next = starts.clone();
        let mut turned = Self { columns: vec![0; entries.len()], values: vec![0.0; entries.len()], starts };
        for row in first..self.rows() {
            for (column, value) in self.row(row) {
                let at = &mut next[column as usize];
                turned.columns[*at] = (row - first) as u32;
                turned.values[*at] = value;
                *at += 1;
            }
        }
        turned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turning_swaps_rows_and_columns() {
        let rows = Sparse::new([vec![(2, 1.0)], vec![], vec![(0, 2.0), (2, 3.0)]]);
        let turned = rows.transposed(1, 3);
        let row = |i| turned.row(i).collect::<Vec<_>>();
        assert_eq!((row(0), row(1), row(2)), (vec![(1, 2.0)], vec![], vec![(1, 3.0)]));
    }
}
