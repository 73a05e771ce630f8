//! The gradients with respect to input and parameters.

use rayon::prelude::*;

use super::activation::{Activation, Function, by_activation};
use super::affine::Affine;
use super::blocks::{BLOCK, BlockSums, TASK};
use crate::buffer::Buffer;
use crate::profile;
use gallerist_util::vectorized;
use pulp::Simd;

/// Sums over the batch that the gradients need, per channel.
pub(crate) struct GradientSums {
    /// `sum of dy` of this process: the gradient of beta.
    pub(crate) beta: Vec<f32>,
    /// `sum of dy * (x - mean) * inverse` of this process: the gradient of gamma.
    pub(crate) gamma: Vec<f32>,
    /// The sums of all ranks divided by the number of their positions.
    mean_beta: Vec<f32>,
    mean_gamma: Vec<f32>,
}

impl GradientSums {
    /// From per-task sums of `dy` and `dy * (x - mean)`, in order.
    pub(crate) fn join(parts: Vec<[Vec<f64>; 2]>, affine: &Affine, positions: usize) -> Self {
        let channels = affine.mean.len();
        let (mut sum, mut product) = (vec![0f64; channels], vec![0f64; channels]);
        for [part_sum, part_product] in parts {
            for j in 0..channels {
                sum[j] += part_sum[j];
                product[j] += part_product[j];
            }
        }
        for j in 0..channels {
            product[j] *= f64::from(affine.inverse[j]);
        }
        let narrow =
            |values: &[f64], divisor: f64| values.iter().map(|value| (value / divisor) as f32).collect();
        let (beta, gamma, mut positions) = (narrow(&sum, 1.0), narrow(&product, 1.0), positions as f64);
        if let Some(ranks) = &affine.ranks {
            let all = ranks.gather([vec![positions], sum, product].concat());
            let total = |i: usize| all.iter().map(|of_rank| of_rank[i]).sum::<f64>();
            positions = total(0);
            sum = (0..channels).map(|j| total(1 + j)).collect();
            product = (0..channels).map(|j| total(1 + channels + j)).collect();
        }
        Self { beta, gamma, mean_beta: narrow(&sum, positions), mean_gamma: narrow(&product, positions) }
    }
}

/// The sums for `y = activation(affine(x))` from the gradient `dy`.
pub(crate) fn gradient_sums(x: &[f32], dy: &[f32], affine: &Affine, activation: Activation) -> GradientSums {
    let _measured = profile::scope("batch norm, sums of the gradient");
    let channels = affine.mean.len();
    let parts = x
        .par_chunks(TASK * channels)
        .zip(dy.par_chunks(TASK * channels))
        .map(|(x, dy)| sum_rows(x, dy, affine, activation))
        .collect();
    GradientSums::join(parts, affine, x.len() / channels)
}

by_activation! {
    /// The sums of the gradient before the activation, and of its product with `x - mean`.
    pub(crate) fn sum_rows<'a, S>(
        x: &'a [f32],
        dy: &'a [f32],
        affine: &'a Affine,
        ; function
    ) -> [Vec<f64>; 2] {
        let channels = affine.mean.len();
        let mut sums = BlockSums::new(channels);
        for (x, dy) in x.chunks(BLOCK * channels).zip(dy.chunks(BLOCK * channels)) {
            for (x, dy) in x.chunks_exact(channels).zip(dy.chunks_exact(channels)) {
                let [sum, product] = &mut sums.block;
                affine.add_row::<S, _>(x, dy, sum, product, function);
            }
            sums.end_block();
        }
        sums.all
    }
}

by_activation! {
    /// Turns `dy`, the gradient of `activation(affine(x))`, into that of `affine(x)` in place, and returns its sum and
    /// that of its product with `x - mean`.
    pub(crate) fn mask_and_sum_rows<'a, S>(
        x: &'a [f32],
        dy: &'a mut [f32],
        affine: &'a Affine,
        ; function
    ) -> [Vec<f64>; 2] {
        let channels = affine.mean.len();
        let mut sums = BlockSums::new(channels);
        for (x, dy) in x.chunks(BLOCK * channels).zip(dy.chunks_mut(BLOCK * channels)) {
            for (x, dy) in x.chunks_exact(channels).zip(dy.chunks_exact_mut(channels)) {
                let [sum, product] = &mut sums.block;
                affine.mask_and_add_row::<S, _>(x, dy, sum, product, function);
            }
            sums.end_block();
        }
        sums.all
    }
}

by_activation! {
    /// Turns `dy`, the gradient of `activation(affine(x))`, into that of `affine(x)` in place.
    pub(crate) fn mask_rows<'a, S>(
        x: &'a [f32],
        dy: &'a mut [f32],
        affine: &'a Affine,
        ; function
    ) -> () {
        let channels = affine.mean.len();
        for (x, dy) in x.chunks_exact(channels).zip(dy.chunks_exact_mut(channels)) {
            affine.mask_row::<S, _>(x, dy, function);
        }
    }
}

vectorized! {
    /// `y += x`.
    pub(crate) fn add<'a>(x: &'a [f32], y: &'a mut [f32]) -> () {
        for (y, x) in y.iter_mut().zip(x) {
            *y += x;
        }
    }
}

vectorized! {
    /// Turns `dy`, the gradient of `y = activation(x)`, into that of `x` in place. The activation has no gate: the result would not
    /// tell its gradient.
    pub(crate) fn mask_by_result<'a>(y: &'a [f32], dy: &'a mut [f32], activation: Activation) -> () {
        let bounds = activation.bounds();
        for (dy, y) in dy.iter_mut().zip(y) {
            *dy = bounds.gradient(*y, *dy);
        }
    }
}

impl Affine {
    #[inline(always)]
    fn mask_row<S: Simd, F: Function>(&self, x: &[f32], dy: &mut [f32], function: F) {
        let channels = dy.len();
        let (x, mean) = (&x[..channels], &self.mean[..channels]);
        let (scale, beta) = (&self.scale[..channels], &self.beta[..channels]);
        for j in 0..channels {
            dy[j] = function.gradient::<S>((x[j] - mean[j]) * scale[j] + beta[j], dy[j]);
        }
    }

    #[inline(always)]
    fn mask_and_add_row<S: Simd, F: Function>(
        &self,
        x: &[f32],
        dy: &mut [f32],
        sum: &mut [f32],
        product: &mut [f32],
        function: F,
    ) {
        let channels = sum.len();
        let (x, dy, product) = (&x[..channels], &mut dy[..channels], &mut product[..channels]);
        let (scale, beta) = (&self.scale[..channels], &self.beta[..channels]);
        let mean = &self.mean[..channels];
        for j in 0..channels {
            let centred = x[j] - mean[j];
            dy[j] = function.gradient::<S>(centred * scale[j] + beta[j], dy[j]);
            sum[j] += dy[j];
            product[j] += dy[j] * centred;
        }
    }

    #[inline(always)]
    fn add_row<S: Simd, F: Function>(
        &self,
        x: &[f32],
        dy: &[f32],
        sum: &mut [f32],
        product: &mut [f32],
        function: F,
    ) {
        let channels = sum.len();
        let (x, dy, product) = (&x[..channels], &dy[..channels], &mut product[..channels]);
        let (scale, beta) = (&self.scale[..channels], &self.beta[..channels]);
        let mean = &self.mean[..channels];
        for j in 0..channels {
            let centred = x[j] - mean[j];
            let dy = function.gradient::<S>(centred * scale[j] + beta[j], dy[j]);
            sum[j] += dy;
            product[j] += dy * centred;
        }
    }
}

/// The gradient of `x` through batch statistics: `scale * (dy - mean(dy) - xhat * mean(dy * xhat))`,
/// or through fixed statistics (`sums` is none): `scale * dy`.
pub(crate) fn input_gradient(
    x: &[f32],
    dy: &[f32],
    affine: &Affine,
    sums: Option<&GradientSums>,
    activation: Activation,
) -> Buffer {
    let _measured = profile::scope("batch norm, input gradient");
    let channels = affine.mean.len();
    let linear = Linear::new(affine, sums);
    let mut dx = Buffer::new(x.len());
    dx.par_chunks_mut(TASK * channels)
        .zip(x.par_chunks(TASK * channels).zip(dy.par_chunks(TASK * channels)))
        .for_each(|(dx, (x, dy))| gradient_rows(&linear, x, dy, dx, activation));
    dx
}

by_activation! {
    /// The gradient of `x` from that of `activation(affine(x))`.
    pub(crate) fn gradient_rows<'a, S>(
        linear: &'a Linear<'a>,
        x: &'a [f32],
        dy: &'a [f32],
        dx: &'a mut [f32],
        ; function
    ) -> () {
        let channels = linear.affine.mean.len();
        let rows = x.chunks_exact(channels).zip(dy.chunks_exact(channels));
        for (dx, (x, dy)) in dx.chunks_exact_mut(channels).zip(rows) {
            linear.row::<S, _>(x, dy, dx, function);
        }
    }
}

vectorized! {
    /// `dx = scale * dy`: [`gradient_rows`] through fixed statistics, without activation.
    pub(crate) fn scale_rows<'a>(affine: &'a Affine, dy: &'a [f32], dx: &'a mut [f32]) -> () {
        let channels = affine.scale.len();
        for (dx, dy) in dx.chunks_exact_mut(channels).zip(dy.chunks_exact(channels)) {
            scale_row(&affine.scale, dy, dx);
        }
    }
}

#[inline(always)]
fn scale_row(scale: &[f32], dy: &[f32], dx: &mut [f32]) {
    let channels = dx.len();
    let (scale, dy) = (&scale[..channels], &dy[..channels]);
    for j in 0..channels {
        dx[j] = scale[j] * dy[j];
    }
}

/// `dx = scale * dy - constant - slope * (x - mean)`.
pub(crate) struct Linear<'a> {
    pub(super) affine: &'a Affine,
    pub(super) constant: Vec<f32>,
    pub(super) slope: Vec<f32>,
}

impl<'a> Linear<'a> {
    pub(crate) fn new(affine: &'a Affine, sums: Option<&GradientSums>) -> Self {
        let per_channel = |value: &dyn Fn(&GradientSums, usize) -> f32| {
            (0..affine.mean.len())
                .map(|j| sums.map_or(0.0, |sums| affine.scale[j] * value(sums, j)))
                .collect()
        };
        Self {
            affine,
            constant: per_channel(&|sums, j| sums.mean_beta[j]),
            slope: per_channel(&|sums, j| affine.inverse[j] * sums.mean_gamma[j]),
        }
    }

    #[inline(always)]
    fn row<S: Simd, F: Function>(&self, x: &[f32], dy: &[f32], dx: &mut [f32], function: F) {
        let channels = dx.len();
        let (x, dy) = (&x[..channels], &dy[..channels]);
        let mean = &self.affine.mean[..channels];
        let (scale, beta) = (&self.affine.scale[..channels], &self.affine.beta[..channels]);
        let (constant, slope) = (&self.constant[..channels], &self.slope[..channels]);
        for j in 0..channels {
            let centred = x[j] - mean[j];
            let dy = function.gradient::<S>(centred * scale[j] + beta[j], dy[j]);
            dx[j] = scale[j] * dy - constant[j] - slope[j] * centred;
        }
    }
}
