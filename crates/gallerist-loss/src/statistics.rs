//! Statistics of the embeddings of a batch that do not depend on the loss.

use std::collections::BTreeSet;

use burn::tensor::{Tensor, TensorData};

use gallerist_tensor::pairwise::host;

use crate::Labels;

/// The most rows that are used: the first ones of a larger batch.
const ROWS: usize = 1024;

/// Statistics of the embeddings of a batch: whether they collapse, and how many dimensions they fill.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct BatchStatistics {
    /// Mean squared distance of the rows from their mean over their mean squared norm: 0 when all are the same
    /// point.
    pub spread: f64,
    /// Participation ratio `(sum of eigenvalues)^2 / sum of squared eigenvalues` of the covariance:
    /// how many dimensions the embeddings fill, from 1 to d; 0 when all are the same point.
    pub rank: f32,
    /// The participation ratio of perfect embeddings, in which each class is one point: the
    /// number of classes less one, or the dimensions where these are fewer.
    pub possible_rank: usize,
    /// Mean Euclidean distance of the positive pairs; 0 without one.
    pub positive_distance: f32,
    /// Mean Euclidean distance of the negative pairs; 0 without one.
    pub negative_distance: f32,
}

impl BatchStatistics {
    /// `embeddings` `[n, d]` as the loss sees them, `labels` of `n` samples. Of a batch of more than 1024 samples, the
    /// first 1024 count.
    pub fn of(embeddings: &Tensor<2>, labels: Labels<'_>) -> Self {
        let [n, d] = embeddings.dims();
        let n = n.min(ROWS);
        if n < 2 || d == 0 {
            return BatchStatistics { spread: 1.0, ..Default::default() };
        }
        let mut rows = host(&embeddings.clone().slice([0..n, 0..d]));
        let squares = |rows: &[f64]| rows.iter().map(|v| v * v).sum::<f64>();
        let norms = squares(&rows);
        let mut mean = vec![0.0; d];
        for row in rows.chunks_exact(d) {
            mean.iter_mut().zip(row).for_each(|(m, v)| *m += v / n as f64);
        }
        for row in rows.chunks_exact_mut(d) {
            row.iter_mut().zip(&mean).for_each(|(v, m)| *v -= m);
        }
        let spread = if norms == 0.0 { 0.0 } else { squares(&rows) / norms };
        // Products of the centred rows: their trace and their squares give the ratio, and centring
        // changes no distance.
        let centred = Tensor::<2>::from_data(
            TensorData::new(rows.iter().map(|&v| v as f32).collect::<Vec<_>>(), [n, d]),
            &embeddings.device().inner(),
        );
        let gram = host(&centred.clone().matmul(centred.transpose()));
        let trace: f64 = (0..n).map(|i| gram[i * n + i]).sum();
        let (mut sums, mut counts) = ([0.0; 2], [0u64; 2]);
        for i in 0..n {
            for j in 0..i {
                let squared = gram[i * n + i] + gram[j * n + j] - 2.0 * gram[i * n + j];
                let kind = usize::from(!labels.related(i, j));
                sums[kind] += squared.max(0.0).sqrt();
                counts[kind] += 1;
            }
        }
        let mean = |kind: usize| (sums[kind] / counts[kind].max(1) as f64) as f32;
        let collapsed = spread < COLLAPSED;
        BatchStatistics {
            spread,
            possible_rank: d.min(classes(labels, n).saturating_sub(1)),
            rank: if collapsed { 0.0 } else { (trace * trace / squares(&gram)) as f32 },
            positive_distance: mean(0),
            negative_distance: mean(1),
        }
    }

    /// Whether all rows are (nearly) the same point.
    pub fn collapsed(&self) -> bool {
        self.spread < COLLAPSED
    }
}

/// Number of different classes, or sets of labels, of the first `n` samples.
fn classes(labels: Labels<'_>, n: usize) -> usize {
    (0..n).map(|i| labels.of(i)).collect::<BTreeSet<_>>().len()
}

/// A spread below this is a collapse.
const COLLAPSED: f64 = 1e-6;

#[cfg(test)]
mod tests {
    use burn::tensor::Device;

    use super::*;

    fn of(rows: &[[f32; 2]], labels: &[u32]) -> BatchStatistics {
        let values: Vec<f32> = rows.iter().flatten().copied().collect();
        let x = Tensor::from_data(TensorData::new(values, [rows.len(), 2]), &Device::flex());
        BatchStatistics::of(&x, Labels::Classes(labels))
    }

    #[test]
    fn distances_are_means_over_pairs() {
        let found = of(&[[0.0, 0.0], [3.0, 4.0], [0.0, 4.0]], &[0, 0, 1]);
        assert!((found.positive_distance - 5.0).abs() < 1e-5);
        assert!((found.negative_distance - 3.5).abs() < 1e-5);
    }

    #[test]
    fn the_rank_counts_the_dimensions_that_are_filled() {
        let line = of(&[[1.0, 1.0], [2.0, 2.0], [5.0, 5.0], [-1.0, -1.0]], &[0, 0, 1, 1]);
        assert!((line.rank - 1.0).abs() < 1e-4, "{line:?}");
        assert_eq!(line.possible_rank, 1, "two classes lie on a line");
        let cross = of(&[[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]], &[0, 0, 1, 1]);
        assert!((cross.rank - 2.0).abs() < 1e-5, "{cross:?}");
    }

    #[test]
    fn one_point_is_a_collapse_and_one_row_is_none() {
        let found = of(&[[0.3, 0.1]; 4], &[0, 0, 1, 1]);
        assert!(found.collapsed() && found.rank == 0.0, "{found:?}");
        assert!(of(&[[0.0, 0.0]; 2], &[0, 1]).collapsed());
        assert!(!of(&[[1.0, 0.0]], &[0]).collapsed());
    }
}
