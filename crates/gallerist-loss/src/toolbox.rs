//! The toolbox of tensor losses: masks over pairs, extremes and log-sums of rows that are safe where a row is empty,
//! and gradients that are given instead of derived. For a loss of one's own that is no function of one query's list
//! (those are shorter as a [`ListLoss`](crate::ListLoss)).
//!
//! "Absent" is a mask throughout. A safe value is put in before every function that has no finite value or derivative
//! there, because no later mask removes a NaN. Masks hold 0 and 1 in the dtype of the embeddings.
//!
//! Write a division by a number as a product with its inverse: the tensor engine's derivative of `div_scalar` rounds
//! the inverse to f32, which costs f64 embeddings half of their digits.
//!
//! # Example
//!
//! ```
//! use burn::tensor::{Device, Tensor};
//! use gallerist_loss::toolbox::{Pairs, log_sum_exp, row_max};
//! use gallerist_loss::{Labels, Lists};
//!
//! let x = Tensor::<2>::from_floats([[0.0], [1.0], [3.0]], &Device::flex());
//! let lists = Lists::new(x, Labels::Classes(&[0, 0, 1]), None);
//! let pairs = Pairs::new(&lists);
//! let farthest = row_max(&lists.distances(), &pairs.positives);
//! assert_eq!(farthest.into_data().try_into_vec::<f32>().unwrap(), [1.0, 1.0, 0.0]);
//! let soft = log_sum_exp(&lists.distances(), &pairs.negatives);
//! assert_eq!(soft.dims(), [3, 1]);
//! ```

use std::ops::Range;

use burn::tensor::{Bool, Tensor, TensorData};

use crate::lists::Lists;
use crate::ranking::Queries;
pub use gallerist_tensor::pairwise::{distances, host, l2_normalize};

/// The positives and the negatives of every query: `[n, n + m]` masks of 0 and 1.
#[derive(Clone, Debug)]
pub struct Pairs {
    /// 1 at the positives of each query.
    pub positives: Tensor<2>,
    /// 1 at its negatives.
    pub negatives: Tensor<2>,
}

impl Pairs {
    /// 1 at the positives of each query (itself excluded), and 1 at its negatives.
    pub fn new(lists: &Lists<'_>) -> Self {
        let [n, g] = lists.dims();
        let mut positives = vec![0f32; n * g];
        let mut negatives = vec![0f32; n * g];
        let mut related = vec![false; g];
        for i in 0..n {
            lists.relate(i, &mut related);
            let (positives, negatives) = (&mut positives[i * g..][..g], &mut negatives[i * g..][..g]);
            for j in 0..g {
                let related = f32::from(u8::from(related[j]));
                positives[j] = related;
                negatives[j] = 1.0 - related;
            }
            (positives[i], negatives[i]) = (0.0, 0.0);
        }
        let like = lists.embeddings();
        let tensor =
            |mask: Vec<f32>| Tensor::from_data(TensorData::new(mask, [n, g]), (&like.device(), like.dtype()));
        Pairs { positives: tensor(positives), negatives: tensor(negatives) }
    }

    /// `[n, 1]`, 1 at the queries that have both a positive and a negative.
    pub fn both(&self) -> Tensor<2> {
        self.positives.clone().max_dim(1) * self.negatives.clone().max_dim(1)
    }

    /// The numbers of positives and negatives, with nothing mined and no losses.
    pub fn queries(&self) -> Queries {
        let positives = counts(&self.positives);
        let none = vec![0; positives.len()];
        Queries {
            loss: vec![0.0; positives.len()],
            negatives: counts(&self.negatives),
            positives,
            mined_positives: none.clone(),
            mined_negatives: none,
            ..Queries::default()
        }
    }
}

/// Sum of each row of a mask.
pub fn counts(mask: &Tensor<2>) -> Vec<u32> {
    host(&mask.clone().sum_dim(1)).iter().map(|&count| count as u32).collect()
}

/// Sum of all entries of a mask, in f64: an f32 sum stops counting at 2^24.
pub fn total(mask: &Tensor<2>) -> f64 {
    host(&mask.clone().sum_dim(1)).iter().sum()
}

/// A column of per-query losses on the host.
pub fn column(values: &Tensor<2>) -> Vec<f32> {
    host(values).iter().map(|&v| v as f32).collect()
}

/// 1 where `condition` holds, as a number type of `like`.
pub fn indicator(condition: Tensor<2, Bool>, like: &Tensor<2>) -> Tensor<2> {
    condition.float().cast(like.dtype())
}

/// The largest value of each row inside `mask`, `[n, 1]`; 0 without a gradient where the mask is empty.
/// Among ties one of them carries the gradient.
pub fn row_max(values: &Tensor<2>, mask: &Tensor<2>) -> Tensor<2> {
    let outside = mask.clone().equal_scalar(0.0);
    let best = values.clone().mask_fill(outside, f32::NEG_INFINITY).max_dim(1);
    let empty = mask.clone().max_dim(1).equal_scalar(0.0);
    best.mask_fill(empty, 0.0)
}

/// The smallest value of each row inside `mask`; see [`row_max`].
pub fn row_min(values: &Tensor<2>, mask: &Tensor<2>) -> Tensor<2> {
    row_max(&values.clone().neg(), mask).neg()
}

/// `log sum exp(exponent)` over each row inside `mask`, `[n, 1]`; 0 without a gradient where the mask
/// is empty. The largest exponent is taken out first.
pub fn log_sum_exp(exponent: &Tensor<2>, mask: &Tensor<2>) -> Tensor<2> {
    let (largest, sum) = scaled_sum_exp(exponent, mask);
    let empty = mask.clone().max_dim(1).equal_scalar(0.0);
    sum.mask_fill(empty, 1.0).log() + largest
}

/// `log(1 + sum exp(exponent))` over each row inside `mask`, `[n, 1]`; 0 where the mask is empty. Small
/// sums keep their relative precision.
pub fn log_one_plus_sum_exp(exponent: &Tensor<2>, mask: &Tensor<2>) -> Tensor<2> {
    let outside = mask.clone().equal_scalar(0.0);
    let largest = row_max(&exponent.clone().detach(), mask).clamp_min(0.0);
    let sum = (exponent.clone() - largest.clone()).mask_fill(outside, f32::NEG_INFINITY).exp().sum_dim(1);
    // 1 + sum = exp(largest) (1 + (exp(-largest) - 1) + sum exp(e - largest)).
    (sum + largest.clone().neg().exp().sub_scalar(1.0)).log1p() + largest
}

/// The largest exponent of each row inside `mask` (held constant, 0 where it is empty), and the sum of
/// `exp(exponent - largest)` inside it.
pub fn scaled_sum_exp(exponent: &Tensor<2>, mask: &Tensor<2>) -> (Tensor<2>, Tensor<2>) {
    let outside = mask.clone().equal_scalar(0.0);
    let largest = row_max(&exponent.clone().detach(), mask);
    let sum = (exponent.clone() - largest.clone()).mask_fill(outside, f32::NEG_INFINITY).exp().sum_dim(1);
    (largest, sum)
}

/// Weights `exp(exponent) / sum exp(exponent)` over each row inside `mask`, 0 elsewhere.
pub fn row_softmax(exponent: &Tensor<2>, mask: &Tensor<2>) -> Tensor<2> {
    let outside = mask.clone().equal_scalar(0.0);
    let largest = row_max(&exponent.clone().detach(), mask);
    let weights = (exponent.clone() - largest).mask_fill(outside, f32::NEG_INFINITY).exp();
    let empty = mask.clone().max_dim(1).equal_scalar(0.0);
    let sum = weights.clone().sum_dim(1).mask_fill(empty, 1.0);
    weights / sum
}

/// `log(1 + exp(x))`, for any finite `x`.
pub fn softplus(x: Tensor<2>) -> Tensor<2> {
    let largest = x.clone().detach().clamp_min(0.0);
    ((x - largest.clone()).exp() + largest.clone().neg().exp().sub_scalar(1.0)).log1p() + largest
}

/// `[x]_+`, with slope 0 at 0.
pub fn hinge<const D: usize>(x: Tensor<D>) -> Tensor<D> {
    burn::tensor::activation::relu(x)
}

/// The mean of a column over the queries of `among`, `[1]`; 0 where there is none. The column is 0
/// outside `among`.
pub fn mean_among(per_query: &Tensor<2>, among: &Tensor<2>) -> Tensor<1> {
    per_query.clone().sum().mul_scalar(1.0 / total(among).max(1.0))
}

/// `value`, connected to `x` so that its derivative with respect to `x` is `gradient`.
pub fn with_gradient(value: Tensor<1>, x: &Tensor<2>, gradient: Tensor<2>) -> Tensor<1> {
    let path = (x.clone() * gradient.detach()).sum();
    value.detach() + (path.clone() - path.detach())
}

/// The rows `0..n` in blocks such that a block times `per_row` stays within some 16 MiB of f32.
pub fn row_blocks(n: usize, per_row: usize) -> impl Iterator<Item = Range<usize>> {
    let rows = ((1 << 22) / per_row.max(1)).max(1);
    (0..n).step_by(rows).map(move |start| start..(start + rows).min(n))
}
