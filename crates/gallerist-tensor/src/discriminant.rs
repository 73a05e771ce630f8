//! Linear discriminant analysis.

use std::collections::BTreeMap;

use burn::tensor::{DType, Device, Tensor, TensorData};
use gallerist_util::random::Random;

use crate::pairwise::host;

/// Share of the mean variance within classes that is added to every direction's: held-out classes of CUB-200
/// were found best between 0.3 and 1 (`experiments/cub200.md`).
const SHRINKAGE: f64 = 0.5;

/// Rows whose mean distance gives a projection its scale.
const ROWS: usize = 1024;

/// `y = x W + b`.
#[derive(Clone, Debug, PartialEq)]
pub struct Projection {
    /// `[width, dimensions]`.
    pub weight: Vec<f32>,
    /// One value for each dimension.
    pub bias: Vec<f32>,
}

impl Projection {
    /// The projection times a number, so that the mean distance between two of the first 1024 of `rows` becomes
    /// `distance`. A projection that maps all rows to one point is unchanged.
    pub fn scaled_to(mut self, distance: f64, rows: &[&[f32]]) -> Self {
        let found = self.mean_distance(rows);
        if found > 0.0 {
            let factor = distance / found;
            let scale = |value: &mut f32| *value = (f64::from(*value) * factor) as f32;
            self.weight.iter_mut().chain(&mut self.bias).for_each(scale);
        }
        self
    }

    /// Mean distance between two of the first [`ROWS`] of `rows` after the projection. The bias changes none.
    fn mean_distance(&self, rows: &[&[f32]]) -> f64 {
        let rows = &rows[..rows.len().min(ROWS)];
        let (count, width) = (rows.len(), rows[0].len());
        let x =
            matrix(rows.iter().flat_map(|row| row.iter().map(|&v| f64::from(v))).collect(), [count, width]);
        let x = x.clone() - x.mean_dim(0);
        let weight = self.weight.iter().map(|&v| f64::from(v)).collect();
        let y = x.matmul(matrix(weight, [width, self.weight.len() / width]));
        let products = host(&y.clone().matmul(y.transpose()));
        let at = |i: usize, j: usize| products[i * count + j];
        let distance = |i: usize, j: usize| (at(i, i) + at(j, j) - 2.0 * at(i, j)).max(0.0).sqrt();
        let sum: f64 =
            (0..count).flat_map(|i| (0..i).map(move |j| (i, j))).map(|(i, j)| distance(i, j)).sum();
        sum / (count * (count.max(2) - 1) / 2) as f64
    }
}

/// The first principal components of rows after a whitening that gives every direction the same variance within classes
/// (linear discriminant analysis; Mikolajczyk & Matas 2007), by orthogonal iteration. Directions with nearly the variance
/// of others outside may be exchanged for these.
#[derive(Debug)]
pub struct Discriminant {
    /// The mean of the rows.
    mean: Vec<f64>,
    /// `[width, width]`: the rows times its transpose have the covariance 1 within classes.
    whitening: Tensor<2>,
    /// The covariance of the whitened rows.
    covariance: Tensor<2>,
    /// An orthonormal basis, in columns, of the space found so far.
    basis: Tensor<2>,
    dimensions: usize,
}

impl Discriminant {
    /// How often to [`iterate`](Discriminant::iterate).
    pub const ITERATIONS: usize = 50;

    /// The analysis of `rows`, of one length, for a projection to `dimensions`. `None` if no class has two rows that differ:
    /// then there is no variance within classes.
    ///
    /// # Panics
    ///
    /// If there are no rows, they differ in length, or there are fewer classes than rows.
    pub fn new(rows: &[&[f32]], classes: &[u32], dimensions: usize) -> Option<Self> {
        let (count, width) = (rows.len(), rows[0].len());
        let mut sums: BTreeMap<u32, (f64, Vec<f64>)> = BTreeMap::new();
        let mut mean = vec![0f64; width];
        for (row, &class) in rows.iter().zip(classes) {
            let (members, sum) = sums.entry(class).or_insert_with(|| (0.0, vec![0.0; width]));
            *members += 1.0;
            for (at, &value) in row.iter().enumerate() {
                sum[at] += f64::from(value);
                mean[at] += f64::from(value) / count as f64;
            }
        }
        for (members, sum) in sums.values_mut() {
            sum.iter_mut().for_each(|value| *value /= *members);
        }
        // The covariance of what is left when its centre, one per row, is taken away from each row.
        let covariance = |centres: &[&[f64]]| {
            let centred = rows.iter().zip(centres).flat_map(|(row, centre)| {
                row.iter().zip(*centre).map(|(&value, centre)| f64::from(value) - centre)
            });
            let x = matrix(centred.collect(), [count, width]);
            x.clone().transpose().matmul(x).div_scalar(count as f64)
        };
        let total = covariance(&vec![&mean[..]; count]);
        let of_classes: Vec<&[f64]> = classes.iter().map(|class| &sums[class].1[..]).collect();
        let within = host(&covariance(&of_classes));
        let variance = (0..width).map(|at| within[at * width + at]).sum::<f64>() / width as f64;
        // Exactly: sums of equal 32-bit numbers, and their mean, are not rounded.
        if variance == 0.0 {
            return None;
        }
        let mut shrunk = within;
        (0..width).for_each(|at| shrunk[at * width + at] += SHRINKAGE * variance);
        // S = L L^T: rows times L^-T have the covariance 1 within classes.
        let whitening = matrix(inverse_of_cholesky(shrunk, width), [width, width]);
        let covariance = whitening.clone().matmul(total).matmul(whitening.clone().transpose());
        let basis = start(width, dimensions.min(width));
        Some(Discriminant { mean, whitening, covariance, basis, dimensions })
    }

    /// Comes nearer to the directions of the largest variances.
    pub fn iterate(&mut self) {
        self.basis = iterated(&self.covariance, self.basis.clone());
    }

    /// The projection to the directions found, scaled to a mean squared length of 1. Where rows are shorter than the
    /// dimensions, the further components are 0.
    pub fn projection(&self) -> Projection {
        let Discriminant { mean, whitening, covariance, basis, dimensions } = self;
        let (dimensions, [width, kept]) = (*dimensions, basis.dims());
        // Distances are the same for any basis of that space.
        let variance = host(&basis.clone().transpose().matmul(covariance.clone()).matmul(basis.clone()));
        let variance: f64 = (0..kept).map(|at| variance[at * kept + at]).sum();
        let scale = variance.sqrt().recip();
        let projection = host(&whitening.clone().transpose().matmul(basis.clone()));
        let mut weight = vec![0f32; width * dimensions];
        let mut bias = vec![0f64; dimensions];
        for at in 0..width {
            for component in 0..kept {
                let value = projection[at * kept + component] * scale;
                weight[at * dimensions + component] = value as f32;
                bias[component] -= mean[at] * value;
            }
        }
        Projection { weight, bias: bias.into_iter().map(|value| value as f32).collect() }
    }
}

/// The first basis of an orthogonal iteration: `count` columns of length `n`.
fn start(n: usize, count: usize) -> Tensor<2> {
    let mut random = Random::new(0, "orthogonal iteration", 0, 0);
    matrix((0..n * count).map(|_| random.between(-1.0, 1.0)).collect(), [n, count])
}

fn iterated(covariance: &Tensor<2>, basis: Tensor<2>) -> Tensor<2> {
    // Twice, because the first time leaves an error of the square of what the product has stretched.
    orthonormal(orthonormal(covariance.clone().matmul(basis)))
}

/// The columns made orthonormal: Y times the inverse of L^T with L L^T = Y^T Y.
fn orthonormal(columns: Tensor<2>) -> Tensor<2> {
    let [_, count] = columns.dims();
    let products = columns.clone().transpose().matmul(columns.clone());
    let inverse = matrix(inverse_of_cholesky(host(&products), count), [count, count]);
    columns.matmul(inverse.transpose())
}

/// The inverse of the lower triangular L with `matrix = L L^T`, `[n, n]`, row after row. Directions without
/// extent, up to rounding, get a row of zeros.
///
/// Hand-written because of these zeros: the Cholesky factorisations of `nalgebra` and `faer` refuse a matrix without full
/// rank. They would also add 15 s and 70 s of CPU time to a build, for these 35 lines.
fn inverse_of_cholesky(mut matrix: Vec<f64>, n: usize) -> Vec<f64> {
    let largest = (0..n).map(|at| matrix[at * n + at]).fold(0.0, f64::max);
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    // L overwrites the lower triangle; 0 on the diagonal means no extent in this direction.
    for row in 0..n {
        let (above, own) = matrix.split_at_mut(row * n);
        for column in 0..row {
            let other = &above[column * n..][..column + 1];
            let left = own[column] - dot(&own[..column], &other[..column]);
            own[column] = if other[column] > 0.0 { left / other[column] } else { 0.0 };
        }
        let left = own[row] - dot(&own[..row], &own[..row]);
        own[row] = if left > largest * n as f64 * f64::EPSILON { left.sqrt() } else { 0.0 };
    }
    let mut inverse = vec![0.0; n * n];
    for row in 0..n {
        let diagonal = matrix[row * n + row];
        if diagonal == 0.0 {
            continue;
        }
        let (above, own) = inverse.split_at_mut(row * n);
        for (column, &factor) in matrix[row * n..][..row].iter().enumerate() {
            let other = &above[column * n..][..column + 1];
            own[..column + 1].iter_mut().zip(other).for_each(|(to, &value)| *to -= factor * value);
        }
        own[row] = 1.0;
        own[..row + 1].iter_mut().for_each(|value| *value /= diagonal);
    }
    inverse
}

fn matrix(values: Vec<f64>, shape: [usize; 2]) -> Tensor<2> {
    Tensor::from_data(TensorData::new(values, shape), (&Device::flex(), DType::F64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn discriminant(rows: &[&[f32]], classes: &[u32], dimensions: usize) -> Projection {
        let mut analysis = Discriminant::new(rows, classes, dimensions).unwrap();
        (0..Discriminant::ITERATIONS).for_each(|_| analysis.iterate());
        analysis.projection()
    }

    /// Two directions tell the three classes apart, two others vary more, but within classes.
    fn rows() -> (Vec<[f32; 4]>, Vec<u32>) {
        let mut random = Random::new(7, "a test", 0, 0);
        let mut draw = |scale: f64| random.between(-scale, scale);
        let centres = [[1.0, 0.0], [-1.0, 1.0], [0.0, -1.0]];
        let rows = (0..600).map(|row| {
            let [a, b] = centres[row % 3];
            let values = [a + draw(0.1), draw(1.5), b + draw(0.1), draw(1.0)];
            [values[0] + 5.0, values[1] + 0.5 * values[0], values[2], values[3] - 2.0]
                .map(|value| value as f32)
        });
        (rows.collect(), (0..600).map(|row| row % 3).collect())
    }

    fn embed(row: &[f32], projection: &Projection, dimensions: usize) -> Vec<f64> {
        let weight = |i: usize, j: usize| f64::from(projection.weight[i * dimensions + j]);
        let value = |j: usize| {
            let products = row.iter().enumerate().map(|(i, &x)| f64::from(x) * weight(i, j));
            f64::from(projection.bias[j]) + products.sum::<f64>()
        };
        (0..dimensions).map(value).collect()
    }

    #[test]
    fn directions_that_tell_classes_apart_come_first() {
        let (rows, classes) = rows();
        let views: Vec<&[f32]> = rows.iter().map(|row| &row[..]).collect();
        let projection = discriminant(&views, &classes, 2);
        let embedded: Vec<Vec<f64>> = views.iter().map(|row| embed(row, &projection, 2)).collect();
        let squares = embedded.iter().flatten().map(|value| value * value).sum::<f64>() / 600.0;
        assert!((squares - 1.0).abs() < 1e-4, "mean squared length {squares}");
        let mean = |of: &dyn Fn(usize) -> bool| {
            let own: Vec<&Vec<f64>> = (0..600).filter(|&i| of(i)).map(|i| &embedded[i]).collect();
            [0, 1].map(|j| own.iter().map(|row| row[j]).sum::<f64>() / own.len() as f64)
        };
        assert!(mean(&|_| true).iter().all(|mean| mean.abs() < 1e-5));
        for class in 0..3 {
            let centre = mean(&|i| classes[i] == class);
            for (i, row) in embedded.iter().enumerate() {
                let distance = (row[0] - centre[0]).hypot(row[1] - centre[1]);
                assert_eq!(distance < 0.5, classes[i] == class, "row {i}, class {class}: {distance}");
            }
        }
    }

    #[test]
    fn a_cholesky_factor_is_inverted() {
        // L = [[2, 0, 0], [1, 3, 0], [-1, 0.5, 1]], and the same with a direction that is the sum of two others.
        let full = [[4.0, 2.0, -2.0], [2.0, 10.0, 0.5], [-2.0, 0.5, 2.25]].concat();
        let inverse = inverse_of_cholesky(full, 3);
        let wanted = [0.5, 0.0, 0.0, -1.0 / 6.0, 1.0 / 3.0, 0.0, 7.0 / 12.0, -1.0 / 6.0, 1.0];
        assert!(inverse.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-12), "{inverse:?}");
        let flat = [[1.0, 0.0, 1.0], [0.0, 1.0, 1.0], [1.0, 1.0, 2.0]].concat();
        assert_eq!(inverse_of_cholesky(flat, 3), [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0; 3]].concat());
        assert_eq!(inverse_of_cholesky(vec![0.0; 4], 2), [0.0; 4]);
    }

    #[test]
    fn the_directions_of_the_largest_variances_are_found() {
        // Variances 5, 4, 0.5, 0.1 along the columns of a rotation.
        let (c, s) = (0.8f64, 0.6);
        let turned = [[c, -s, 0.0, 0.0], [s, c, 0.0, 0.0], [0.0, 0.0, c, -s], [0.0, 0.0, s, c]];
        let mixed = [[c, 0.0, -s, 0.0], [0.0, 1.0, 0.0, 0.0], [s, 0.0, c, 0.0], [0.0, 0.0, 0.0, 1.0]];
        let matrix = |rows: Vec<f64>| matrix(rows, [4, 4]);
        let axes = matrix(turned.concat()).matmul(matrix(mixed.concat()));
        let variances = [[5.0, 4.0, 0.5, 0.1]; 4].concat();
        let covariance = axes.clone().mul(matrix(variances)).matmul(axes.clone().transpose());
        let found = (0..Discriminant::ITERATIONS).fold(start(4, 2), |basis, _| iterated(&covariance, basis));
        // The first two axes are in the found subspace: projecting them to it loses nothing.
        let lengths = host(&found.transpose().matmul(axes).powi_scalar(2).sum_dim(0));
        assert!((lengths[0] - 1.0).abs() < 1e-9 && (lengths[1] - 1.0).abs() < 1e-9, "{lengths:?}");
        assert!(lengths[2] < 1e-9 && lengths[3] < 1e-9, "{lengths:?}");
    }

    #[test]
    fn dimensions_beyond_those_of_the_features_stay_zero() {
        let rows = [[1.0f32, 2.0], [3.0, -1.0], [0.0, 0.5], [2.0, 2.0]];
        let views: Vec<&[f32]> = rows.iter().map(|row| &row[..]).collect();
        let Projection { weight, .. } = discriminant(&views, &[0, 0, 1, 1], 4);
        assert!((0..2).all(|i| weight[i * 4] != 0.0 && weight[i * 4 + 2..][..2] == [0.0; 2]), "{weight:?}");
    }

    #[test]
    fn classes_without_two_rows_that_differ_have_no_analysis() {
        let rows = [[0.1f32, 0.7], [3.0, -1.0], [0.0, 0.5], [2.0, 2.0]];
        let views: Vec<&[f32]> = rows.iter().map(|row| &row[..]).collect();
        assert!(Discriminant::new(&views, &[0, 1, 2, 3], 2).is_none());
        assert!(Discriminant::new(&[views[0], views[0], views[0], views[1]], &[0, 0, 0, 1], 2).is_none());
        assert!(Discriminant::new(&[views[0]; 3], &[0, 0, 1], 2).is_none());
        // One class is enough.
        let Projection { weight, bias } = discriminant(&views, &[0, 1, 2, 2], 2);
        assert!(
            weight.iter().chain(&bias).all(|value| value.is_finite() && *value != 0.0),
            "{weight:?} {bias:?}"
        );
    }

    #[test]
    fn a_scaled_projection_has_the_mean_distance_that_is_wanted() {
        let (rows, classes) = rows();
        let views: Vec<&[f32]> = rows.iter().map(|row| &row[..]).collect();
        let projection = discriminant(&views, &classes, 3).scaled_to(20.0, &views);
        let embedded: Vec<Vec<f64>> = views.iter().map(|row| embed(row, &projection, 3)).collect();
        let distance = |i: usize, j: usize| {
            embedded[i].iter().zip(&embedded[j]).map(|(a, b)| (a - b).powi(2)).sum::<f64>().sqrt()
        };
        let pairs = || (0..600).flat_map(|i| (0..i).map(move |j| (i, j)));
        let mean = pairs().map(|(i, j)| distance(i, j)).sum::<f64>() / pairs().count() as f64;
        assert!((mean / 20.0 - 1.0).abs() < 1e-4, "{mean}");
        // The rows stay centred: the bias is scaled, too.
        let sums: f64 = embedded.iter().map(|row| row[0]).sum();
        assert!((sums / 600.0).abs() < 1e-4, "{sums}");
        // One point has no distance that could be scaled.
        let point = Projection { weight: vec![0.0; 8], bias: vec![1.0; 2] };
        assert_eq!(point.clone().scaled_to(20.0, &views), point);
    }
}
