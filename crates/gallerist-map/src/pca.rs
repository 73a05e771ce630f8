//! The first two principal components, by orthogonal iteration over blocks of rows.
//!
//! Written here and not taken from a library: only an eigenproblem of 8 x 8 and a Gram-Schmidt of 8 vectors are needed.
//! Measured on 2 cores, `faer` 0.24 (its feature `linalg` only) adds about 70 s of CPU time to a build, and `nalgebra`
//! 0.34 about 15 s.

use gallerist_retrieval::Matrix;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};
use rayon::prelude::*;

/// The number of directions that are iterated. More than two, so that the second converges even when the third has
/// nearly the same variance.
const DIRECTIONS: usize = 8;

/// Rows that one task sums. The sums of blocks are added in order, so the result does not depend on the number of
/// threads.
const BLOCK: usize = 512;

const MOST_ITERATIONS: usize = 100;

/// The iteration ends when the two variances change by less than this, relative to the first: invisible in a map.
const SETTLED: f64 = 1e-7;

/// The first two components of a set of rows.
pub(crate) struct Components {
    /// The centred rows projected on the two directions. The coefficient of a direction with the largest magnitude is
    /// positive.
    pub(crate) points: Vec<[f32; 2]>,
    /// The share of the total variance in each direction.
    pub(crate) variance_share: [f64; 2],
}

pub(crate) fn principal(rows: &Matrix, progress: &mut dyn FnMut(usize, usize)) -> Components {
    let cols = rows.cols();
    let mean = mean(rows);
    let count = DIRECTIONS.min(cols);
    let mut random = ChaCha8Rng::seed_from_u64(0);
    let mut basis: Vec<Vec<f64>> = (0..count)
        .map(|_| (0..cols).map(|_| f64::from(random.next_u32()) / f64::from(u32::MAX) - 0.5).collect())
        .collect();
    orthonormalize(&mut basis);

    let mut variances = [0.0; 2];
    for iteration in 0..MOST_ITERATIONS {
        progress(iteration, MOST_ITERATIONS);
        let mut image = scatter_times(rows, &mean, &basis);
        // Rayleigh-Ritz: within the span of the basis the best directions are the eigenvectors of the small matrix
        // basis' * scatter * basis.
        let mut small: Vec<Vec<f64>> =
            basis.iter().map(|b| image.iter().map(|s| dot(b, s)).collect()).collect();
        let turns = eigenvectors(&mut small);
        image = turns.iter().map(|turn| combine(turn, &image)).collect();
        let found = [0, 1].map(|i| small.get(i).map_or(0.0, |row| row[i].max(0.0)));
        let settled = (0..2).all(|i| (found[i] - variances[i]).abs() <= SETTLED * found[0]);
        variances = found;
        if settled {
            basis = turns.iter().map(|turn| combine(turn, &basis)).collect();
            break;
        }
        basis = image;
        orthonormalize(&mut basis);
    }
    for direction in &mut basis {
        let largest = direction.iter().copied().fold(0.0, |a: f64, b| if b.abs() > a.abs() { b } else { a });
        if largest < 0.0 {
            direction.iter_mut().for_each(|value| *value = -*value);
        }
    }
    progress(MOST_ITERATIONS, MOST_ITERATIONS);

    let total = total_scatter(rows, &mean);
    let points = (0..rows.rows())
        .into_par_iter()
        .map(|i| {
            [0, 1].map(|axis| basis.get(axis).map_or(0.0, |b| centred_dot(rows.row(i), &mean, b) as f32))
        })
        .collect();
    Components { points, variance_share: variances.map(|v| if total > 0.0 { v / total } else { 0.0 }) }
}

fn mean(rows: &Matrix) -> Vec<f64> {
    let mut mean = vec![0.0; rows.cols()];
    for i in 0..rows.rows() {
        mean.iter_mut().zip(rows.row(i)).for_each(|(sum, &value)| *sum += f64::from(value));
    }
    mean.iter_mut().for_each(|sum| *sum /= rows.rows().max(1) as f64);
    mean
}

/// The scatter matrix of the centred rows times each vector of `basis`. The matrix itself is not formed.
fn scatter_times(rows: &Matrix, mean: &[f64], basis: &[Vec<f64>]) -> Vec<Vec<f64>> {
    let blocks: Vec<Vec<Vec<f64>>> = (0..rows.rows().div_ceil(BLOCK))
        .into_par_iter()
        .map(|block| {
            let mut sums = vec![vec![0.0; rows.cols()]; basis.len()];
            let mut centred = vec![0.0; rows.cols()];
            for i in block * BLOCK..rows.rows().min((block + 1) * BLOCK) {
                for ((to, &value), mean) in centred.iter_mut().zip(rows.row(i)).zip(mean) {
                    *to = f64::from(value) - mean;
                }
                for (sum, direction) in sums.iter_mut().zip(basis) {
                    let along = dot(&centred, direction);
                    sum.iter_mut().zip(&centred).for_each(|(sum, value)| *sum += along * value);
                }
            }
            sums
        })
        .collect();
    let mut total = vec![vec![0.0; rows.cols()]; basis.len()];
    for block in &blocks {
        for (to, from) in total.iter_mut().zip(block) {
            to.iter_mut().zip(from).for_each(|(to, from)| *to += from);
        }
    }
    total
}

fn total_scatter(rows: &Matrix, mean: &[f64]) -> f64 {
    (0..rows.rows())
        .map(|i| rows.row(i).iter().zip(mean).map(|(&v, m)| (f64::from(v) - m).powi(2)).sum::<f64>())
        .sum()
}

fn centred_dot(row: &[f32], mean: &[f64], direction: &[f64]) -> f64 {
    row.iter().zip(mean).zip(direction).map(|((&v, m), d)| (f64::from(v) - m) * d).sum()
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    // Eight independent sums: a single one is limited by the latency of the addition.
    let mut sums = [0.0; 8];
    let (a_eights, a_rest) = a.as_chunks::<8>();
    let (b_eights, b_rest) = b.as_chunks::<8>();
    for (a, b) in a_eights.iter().zip(b_eights) {
        for lane in 0..8 {
            sums[lane] += a[lane] * b[lane];
        }
    }
    sums.iter().sum::<f64>() + a_rest.iter().zip(b_rest).map(|(a, b)| a * b).sum::<f64>()
}

/// The sum of `vectors` weighted by `weights`.
fn combine(weights: &[f64], vectors: &[Vec<f64>]) -> Vec<f64> {
    let mut sum = vec![0.0; vectors[0].len()];
    for (weight, vector) in weights.iter().zip(vectors) {
        sum.iter_mut().zip(vector).for_each(|(sum, value)| *sum += weight * value);
    }
    sum
}

/// Gram-Schmidt, applied twice for accuracy. A vector in the span of the earlier ones becomes zero: rows on a line have no
/// second direction.
fn orthonormalize(basis: &mut [Vec<f64>]) {
    let scale = basis.iter().map(|b| dot(b, b)).fold(0.0, f64::max).sqrt();
    for i in 0..basis.len() {
        let (before, rest) = basis.split_at_mut(i);
        let vector = &mut rest[0];
        for _ in 0..2 {
            for other in before.iter() {
                let along = dot(vector, other);
                vector.iter_mut().zip(other).for_each(|(value, other)| *value -= along * other);
            }
        }
        let norm = dot(vector, vector).sqrt();
        let by = if norm > 1e-12 * scale { norm.recip() } else { 0.0 };
        vector.iter_mut().for_each(|value| *value *= by);
    }
}

/// The eigenvectors of the symmetric `matrix` by Jacobi's method, largest eigenvalue first. The eigenvalues replace the
/// diagonal of `matrix`, in the same order.
fn eigenvectors(matrix: &mut [Vec<f64>]) -> Vec<Vec<f64>> {
    let n = matrix.len();
    let mut vectors: Vec<Vec<f64>> =
        (0..n).map(|i| (0..n).map(|j| f64::from(u8::from(i == j))).collect()).collect();
    for _sweep in 0..50 {
        let off: f64 =
            (0..n).flat_map(|i| (0..i).map(move |j| (i, j))).map(|(i, j)| matrix[i][j].powi(2)).sum();
        let on: f64 = (0..n).map(|i| matrix[i][i].powi(2)).sum();
        if off <= 1e-30 * on {
            break;
        }
        for p in 0..n {
            for q in p + 1..n {
                // The two halves are rounded differently: use their mean.
                let apq = (matrix[p][q] + matrix[q][p]) / 2.0;
                if apq == 0.0 {
                    continue;
                }
                let theta = (matrix[q][q] - matrix[p][p]) / (2.0 * apq);
                let t = theta.signum() / (theta.abs() + (theta * theta + 1.0).sqrt());
                let c = (t * t + 1.0).sqrt().recip();
                let s = t * c;
                for k in 0..n {
                    let (kp, kq) = (matrix[k][p], matrix[k][q]);
                    matrix[k][p] = c * kp - s * kq;
                    matrix[k][q] = s * kp + c * kq;
                }
                for k in 0..n {
                    let (pk, qk) = (matrix[p][k], matrix[q][k]);
                    matrix[p][k] = c * pk - s * qk;
                    matrix[q][k] = s * pk + c * qk;
                    let (vp, vq) = (vectors[p][k], vectors[q][k]);
                    vectors[p][k] = c * vp - s * vq;
                    vectors[q][k] = s * vp + c * vq;
                }
            }
        }
    }
    let mut order: Vec<usize> = (0..n).collect();
    order.sort_by(|&a, &b| matrix[b][b].total_cmp(&matrix[a][a]));
    let values: Vec<f64> = order.iter().map(|&i| matrix[i][i]).collect();
    for (i, row) in matrix.iter_mut().enumerate() {
        row.fill(0.0);
        row[i] = values[i];
    }
    order.into_iter().map(|i| std::mem::take(&mut vectors[i])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows `a * u + b * v` with orthonormal `u`, `v` and a spread of 4 to 1.
    fn flat(cols: usize) -> Matrix {
        let rows = (0..40).flat_map(|i| {
            let (a, b) = (f64::from(i % 8) - 3.5, (f64::from(i / 8) - 2.0) / 4.0);
            (0..cols).map(move |c| {
                (match c {
                    0 => a * 0.6 - b * 0.8,
                    1 => a * 0.8 + b * 0.6,
                    _ => 5.0,
                }) as f32
            })
        });
        Matrix::new(40, cols, rows.collect()).unwrap()
    }

    #[test]
    fn a_flat_cloud_is_found_again_with_its_distances() {
        for cols in [2, 3, 9, 70] {
            let rows = flat(cols);
            let found = principal(&rows, &mut |_, _| ());
            assert!((found.variance_share.iter().sum::<f64>() - 1.0).abs() < 1e-6, "{cols}");
            for (i, j) in [(0, 1), (3, 39), (7, 20)] {
                let apart =
                    |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(a, b)| (a - b).powi(2)).sum::<f32>().sqrt();
                let (wanted, got) =
                    (apart(rows.row(i), rows.row(j)), apart(&found.points[i], &found.points[j]));
                assert!((wanted - got).abs() < 1e-4, "{cols} columns: {wanted} {got}");
            }
        }
    }

    #[test]
    fn jacobi_diagonalizes() {
        let original = vec![vec![4.0, 1.0, -2.0], vec![1.0, 2.0, 0.5], vec![-2.0, 0.5, 3.0]];
        let mut matrix = original.clone();
        let vectors = eigenvectors(&mut matrix);
        for (i, vector) in vectors.iter().enumerate() {
            for row in 0..3 {
                assert!((dot(&original[row], vector) - matrix[i][i] * vector[row]).abs() < 1e-9);
            }
        }
        assert!(matrix[0][0] > matrix[1][1] && matrix[1][1] > matrix[2][2]);
    }

    #[test]
    fn rows_without_spread_lie_on_one_point() {
        let found = principal(&Matrix::new(5, 3, vec![1.5; 15]).unwrap(), &mut |_, _| ());
        assert_eq!(found.points, [[0.0; 2]; 5]);
        assert_eq!(found.variance_share, [0.0; 2]);
    }
}
