//! Distances, norms and their derivatives, for all losses.
//!
//! This module handles three numerical problems:
//!
//! - `|a|^2 + |b|^2 - 2ab` loses the small distances. Its error in f32 is about `1e-7 (|a|^2 +
//!   |b|^2)`, which is negligible for distant pairs and larger than the distance of near ones. Pairs whose squared
//!   distance falls below a hundredth of `|a|^2 + |b|^2` are computed again from the differences, in f64.
//!   Coincident rows have distance 0, not 3e-4.
//! - The derivative of the square root at 0 is infinite, and infinity times 0 is NaN, which no
//!   later mask removes. The derivative is computed explicitly instead of by `sqrt`; at distance 0
//!   it is 0, because the direction is undefined there.
//! - A row of zeros has no direction. It stays a row of zeros and gets no gradient.

use burn::tensor::{Tensor, TensorData};

/// A pair is computed from its differences where `d^2 <= NEAR (|a|^2 + |b|^2)`: above it the
/// product form has a relative error of at most 1e-5.
const NEAR: f64 = 1e-2;

/// Euclidean distances (not squared) between the rows of `queries` and of `gallery`.
///
/// Gradients flow to every tracked argument; detach the gallery if the paper holds it
/// constant. At distance 0 the derivative is 0; the gradient of a pair at distance `d` has an error of
/// about `1e-7 / d` in f32, relative to its length 1.
///
/// # Shapes
///
/// `queries` `[n, d]`, `gallery` `[m, d]`; the result is `[n, m]`. Memory `O(n m)`.
///
/// # Panics
///
/// If the two dimensions differ.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// let x = Tensor::<2>::from_floats([[0.0, 0.0], [3.0, 4.0]], &Device::flex());
/// let d = gallerist_tensor::pairwise::distances(&x, &x);
/// assert_eq!(d.into_data().try_into_vec::<f32>().unwrap(), [0.0, 5.0, 5.0, 0.0]);
/// ```
pub fn distances(queries: &Tensor<2>, gallery: &Tensor<2>) -> Tensor<2> {
    let [n, d] = queries.dims();
    let [m, gallery_d] = gallery.dims();
    assert_eq!(d, gallery_d, "queries are {n} x {d}, the gallery is {m} x {gallery_d}");
    let squared = squared_distances(queries, gallery);
    let exact = exact_distances(queries, gallery, &squared);
    // d sqrt(s) = ds / (2 sqrt(s)), and 0 at 0.
    let zero = exact.clone().equal_scalar(0.0);
    let half_inverse =
        exact.clone().mask_fill(zero.clone(), 1.0).recip().mul_scalar(0.5).mask_fill(zero, 0.0);
    exact + (squared.clone() - squared.detach()) * half_inverse
}

/// Squared Euclidean distances by the product form, at least 0, tracked like their arguments.
///
/// The value has an absolute error of about `1e-7 (|a|^2 + |b|^2)` in f32. Use it where small
/// distances do not matter, else [`distances`].
///
/// # Shapes
///
/// `queries` `[n, d]`, `gallery` `[m, d]`; the result is `[n, m]`.
fn squared_distances(queries: &Tensor<2>, gallery: &Tensor<2>) -> Tensor<2> {
    let norms = |x: &Tensor<2>| x.clone().square().sum_dim(1);
    norms(queries) + norms(gallery).transpose()
        - queries.clone().matmul(gallery.clone().transpose()).mul_scalar(2.0)
}

/// The distances without a gradient path, near pairs computed from their differences.
fn exact_distances(queries: &Tensor<2>, gallery: &Tensor<2>, squared: &Tensor<2>) -> Tensor<2> {
    let [n, d] = queries.dims();
    let [m, _] = gallery.dims();
    let dtype = queries.dtype();
    let device = queries.device();
    let mut values = host(squared);
    let q = host(queries);
    let g = host(gallery);
    let norms = |x: &[f64]| {
        x.chunks_exact(d.max(1)).map(|row| row.iter().map(|v| v * v).sum::<f64>()).collect::<Vec<_>>()
    };
    let (q_norms, g_norms) = (norms(&q), norms(&g));
    for i in 0..n {
        for j in 0..m {
            let value = &mut values[i * m + j];
            if *value <= NEAR * (q_norms[i] + g_norms[j]) {
                *value = q[i * d..][..d].iter().zip(&g[j * d..][..d]).map(|(a, b)| (a - b) * (a - b)).sum();
            }
            *value = value.max(0.0).sqrt();
        }
    }
    Tensor::from_data(TensorData::new(values, [n, m]), (&device, dtype))
}

/// The values of a tensor on the host, in f64.
pub fn host<const D: usize>(x: &Tensor<D>) -> Vec<f64> {
    x.clone().detach().into_data().convert::<f64>().try_into_vec().expect("converted to f64")
}

/// Rows scaled to length 1. A row of zeros stays zero and gets no gradient.
///
/// # Shapes
///
/// `[n, d]` to `[n, d]`. Norms from 1e-15 to 1e15 are safe in f32.
///
/// # Example
///
/// ```
/// use burn::tensor::{Device, Tensor};
/// let x = Tensor::<2>::from_floats([[3.0, 4.0], [0.0, 0.0]], &Device::flex());
/// let unit = gallerist_tensor::pairwise::l2_normalize(x);
/// assert_eq!(unit.into_data().try_into_vec::<f32>().unwrap(), [0.6, 0.8, 0.0, 0.0]);
/// ```
pub fn l2_normalize(x: Tensor<2>) -> Tensor<2> {
    gallerist_kernels::unit_rows(x)
}
