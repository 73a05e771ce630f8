//! Batch normalisation, alone or with what usually follows it, over values with the channels
//! innermost.
//!
//! Sums over the batch are taken in blocks of [`BLOCK`] positions in `f32` and joined in `f64`, in
//! an order that depends on the sizes alone.

use rayon::prelude::*;

use crate::buffer::Buffer;
use crate::nhwc::Maps;
use crate::profile;
use gallerist_util::vectorized;

/// Positions whose sum is taken in `f32`.
const BLOCK: usize = 64;

/// Positions of one task.
const TASK: usize = 32 * BLOCK;

/// What is applied to every value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Activation {
    /// Nothing.
    #[default]
    None,
    /// `max(x, 0)`.
    Relu,
    /// `min(max(x, 0), 6)`.
    Relu6,
}

impl Activation {
    pub(crate) fn bounds(self) -> Bounds {
        let (low, high) = match self {
            Activation::None => (f32::NEG_INFINITY, f32::INFINITY),
            Activation::Relu => (0.0, f32::INFINITY),
            Activation::Relu6 => (0.0, 6.0),
        };
        Bounds { low, high }
    }
}

/// An activation as the bounds that values are kept within. NaN stays NaN.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    low: f32,
    high: f32,
}

impl Bounds {
    #[inline(always)]
    fn value(self, x: f32) -> f32 {
        let x = if x <= self.low { self.low } else { x };
        if x >= self.high { self.high } else { x }
    }

    /// The gradient of `x` from that of `value(x)`; `x` may be `value(x)` itself.
    #[inline(always)]
    fn gradient(self, x: f32, dy: f32) -> f32 {
        if x <= self.low || x >= self.high { 0.0 } else { dy }
    }
}

/// Mean and biased variance of every channel.
pub(crate) struct Moments {
    pub(crate) mean: Vec<f32>,
    pub(crate) variance: Vec<f32>,
}

/// `gamma * (x - mean) * inverse + beta`, one value per channel of each.
#[derive(Clone, Debug)]
pub(crate) struct Affine {
    pub(crate) mean: Vec<f32>,
    /// `1 / sqrt(variance + epsilon)`
    pub(crate) inverse: Vec<f32>,
    /// `gamma * inverse`
    pub(crate) scale: Vec<f32>,
    pub(crate) beta: Vec<f32>,
}

impl Affine {
    pub(crate) fn new(gamma: &[f32], beta: &[f32], mean: &[f32], variance: &[f32], epsilon: f64) -> Self {
        let inverse: Vec<f64> =
            variance.iter().map(|variance| 1.0 / (f64::from(*variance) + epsilon).sqrt()).collect();
        Self {
            mean: mean.to_vec(),
            scale: gamma
                .iter()
                .zip(&inverse)
                .map(|(gamma, inverse)| (f64::from(*gamma) * inverse) as f32)
                .collect(),
            inverse: inverse.iter().map(|inverse| *inverse as f32).collect(),
            beta: beta.to_vec(),
        }
    }
}

/// Count, mean and sum of squared deviations of every channel (Chan, Golub, LeVeque 1983).
#[derive(Clone)]
pub(crate) struct Deviations {
    count: f64,
    mean: Vec<f64>,
    squares: Vec<f64>,
}

impl Deviations {
    fn none(channels: usize) -> Self {
        Self { count: 0.0, mean: vec![0.0; channels], squares: vec![0.0; channels] }
    }

    #[inline(always)]
    fn join(&mut self, count: f64, mean: &[f64], squares: &[f64]) {
        let share = count / (self.count + count);
        let weight = self.count * share;
        let others = mean.iter().zip(squares);
        for ((mean, squares), (other_mean, other_squares)) in
            self.mean.iter_mut().zip(&mut self.squares).zip(others)
        {
            let difference = other_mean - *mean;
            *mean += difference * share;
            *squares += other_squares + difference * difference * weight;
        }
        self.count += count;
    }
}

/// Mean and biased variance of every channel of `x`, `[positions, channels]`.
pub(crate) fn moments(x: &[f32], channels: usize) -> Moments {
    let _measured = profile::scope("batch norm, statistics");
    let parts = x.par_chunks(TASK * channels).map(|x| deviations(x, channels)).collect();
    Moments::join(parts, channels)
}

impl Moments {
    /// The moments of all positions from those of parts.
    pub(crate) fn join(parts: Vec<Deviations>, channels: usize) -> Self {
        let mut all = Deviations::none(channels);
        for part in parts {
            all.join(part.count, &part.mean, &part.squares);
        }
        Moments {
            mean: all.mean.iter().map(|mean| *mean as f32).collect(),
            variance: all.squares.iter().map(|squares| (squares / all.count) as f32).collect(),
        }
    }
}

vectorized! {
    /// Blocks are centred on their rounded mean; the deviations' own mean, close to 0, corrects it.
    /// Nothing is lost however far the values are from zero.
    pub(crate) fn deviations<'a>(x: &'a [f32], channels: usize) -> Deviations {
        let mut all = Deviations::none(channels);
        let (mut centre, mut sum) = (vec![0f32; channels], vec![0f32; channels]);
        let mut squares = vec![0f32; channels];
        let (mut mean, mut about_mean) = (vec![0f64; channels], vec![0f64; channels]);
        for block in x.chunks(BLOCK * channels) {
            let count = (block.len() / channels) as f64;
            centre.fill(0.0);
            add_rows(block, &mut centre);
            for centre in &mut centre {
                *centre /= count as f32;
            }
            sum.fill(0.0);
            squares.fill(0.0);
            add_deviations(block, &centre, &mut sum, &mut squares);
            for j in 0..channels {
                let rest = f64::from(sum[j]) / count;
                mean[j] = f64::from(centre[j]) + rest;
                about_mean[j] = f64::from(squares[j]) - rest * rest * count;
            }
            all.join(count, &mean, &about_mean);
        }
        all
    }
}

/// Adds the values of every position to `sums`, four positions at a time.
#[inline(always)]
fn add_rows(x: &[f32], sums: &mut [f32]) {
    let channels = sums.len();
    let mut fours = x.chunks_exact(4 * channels);
    for four in fours.by_ref() {
        add_four(split(four, channels), sums);
    }
    for row in fours.remainder().chunks_exact(channels) {
        for (sum, x) in sums.iter_mut().zip(row) {
            *sum += x;
        }
    }
}

#[inline(always)]
fn add_four([a, b, c, d]: [&[f32]; 4], sums: &mut [f32]) {
    let channels = sums.len();
    let (a, b, c, d) = (&a[..channels], &b[..channels], &c[..channels], &d[..channels]);
    for j in 0..channels {
        sums[j] += (a[j] + b[j]) + (c[j] + d[j]);
    }
}

/// Adds `x - centre` of every position to `sums` and its square to `squares`.
#[inline(always)]
fn add_deviations(x: &[f32], centre: &[f32], sums: &mut [f32], squares: &mut [f32]) {
    let channels = sums.len();
    let mut fours = x.chunks_exact(4 * channels);
    for four in fours.by_ref() {
        add_four_deviations(split(four, channels), centre, sums, squares);
    }
    for row in fours.remainder().chunks_exact(channels) {
        let (centre, squares) = (&centre[..channels], &mut squares[..channels]);
        for j in 0..channels {
            let deviation = row[j] - centre[j];
            sums[j] += deviation;
            squares[j] += deviation * deviation;
        }
    }
}

#[inline(always)]
fn add_four_deviations([a, b, c, d]: [&[f32]; 4], centre: &[f32], sums: &mut [f32], squares: &mut [f32]) {
    let channels = sums.len();
    let (a, b, c, d) = (&a[..channels], &b[..channels], &c[..channels], &d[..channels]);
    let (centre, squares) = (&centre[..channels], &mut squares[..channels]);
    for j in 0..channels {
        let [a, b, c, d] = [a[j], b[j], c[j], d[j]].map(|x| x - centre[j]);
        sums[j] += (a + b) + (c + d);
        squares[j] += (a * a + b * b) + (c * c + d * d);
    }
}

/// The four rows of `four`.
#[inline(always)]
fn split(four: &[f32], channels: usize) -> [&[f32]; 4] {
    let (ab, cd) = four.split_at(2 * channels);
    let ((a, b), (c, d)) = (ab.split_at(channels), cd.split_at(channels));
    [a, b, c, d]
}

/// `y = activation(affine(x) + other)`, where `other` is there.
pub(crate) fn apply(x: &[f32], affine: &Affine, other: Option<&[f32]>, activation: Activation) -> Buffer {
    let _measured = profile::scope("batch norm");
    let channels = affine.mean.len();
    let mut y = Buffer::new(x.len());
    let rows = TASK * channels;
    y.par_chunks_mut(rows).zip(x.par_chunks(rows)).enumerate().for_each(|(task, (y, x))| match other {
        Some(other) => add_rows_to(x, affine, &other[task * rows..], activation, y),
        None => apply_rows(x, affine, activation, y),
    });
    y
}

vectorized! {
    /// `y = activation(affine(x))`.
    pub(crate) fn apply_rows<'a>(x: &'a [f32], affine: &'a Affine, activation: Activation, y: &'a mut [f32]) -> () {
        let channels = affine.mean.len();
        let bounds = activation.bounds();
        for (x, y) in x.chunks_exact(channels).zip(y.chunks_exact_mut(channels)) {
            affine.row(x, y, |value| bounds.value(value));
        }
    }
}

vectorized! {
    /// `y = activation(affine(x) + other)`; `other` may be longer than `x`.
    fn add_rows_to<'a>(
        x: &'a [f32],
        affine: &'a Affine,
        other: &'a [f32],
        activation: Activation,
        y: &'a mut [f32],
    ) -> () {
        let channels = affine.mean.len();
        let bounds = activation.bounds();
        let rows = x.chunks_exact(channels).zip(other.chunks_exact(channels));
        for ((x, other), y) in rows.zip(y.chunks_exact_mut(channels)) {
            affine.row(x, y, |value| value);
            add_bounded(other, bounds, y);
        }
    }
}

#[inline(always)]
fn add_bounded(x: &[f32], bounds: Bounds, y: &mut [f32]) {
    for (y, x) in y.iter_mut().zip(x) {
        *y = bounds.value(*y + x);
    }
}

// The loops over the channels of one position are functions of their own: the compiler takes
// slices that are arguments for disjoint and vectorises the loop without checks.

impl Affine {
    #[inline(always)]
    fn row(&self, x: &[f32], y: &mut [f32], f: impl Fn(f32) -> f32) {
        let channels = y.len();
        let (x, mean) = (&x[..channels], &self.mean[..channels]);
        let (scale, beta) = (&self.scale[..channels], &self.beta[..channels]);
        for j in 0..channels {
            y[j] = f((x[j] - mean[j]) * scale[j] + beta[j]);
        }
    }
}

/// Sums over the batch that the gradients need, per channel.
pub(crate) struct GradientSums {
    /// `sum of dy`: the gradient of beta.
    pub(crate) beta: Vec<f32>,
    /// `sum of dy * (x - mean) * inverse`: the gradient of gamma.
    pub(crate) gamma: Vec<f32>,
    /// The same divided by the number of positions.
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
        Self {
            beta: narrow(&sum, 1.0),
            gamma: narrow(&product, 1.0),
            mean_beta: narrow(&sum, positions as f64),
            mean_gamma: narrow(&product, positions as f64),
        }
    }
}

/// The sum of every column of `x`, `[positions, channels]`.
pub(crate) fn column_sums(x: &[f32], channels: usize) -> Vec<f32> {
    let _measured = profile::scope("bias gradient");
    let parts: Vec<Vec<f64>> = x.par_chunks(TASK * channels).map(|x| sum_columns(x, channels)).collect();
    (0..channels).map(|channel| parts.iter().map(|part| part[channel]).sum::<f64>() as f32).collect()
}

vectorized! {
    fn sum_columns<'a>(x: &'a [f32], channels: usize) -> Vec<f64> {
        let mut sums = BlockSums::new(channels);
        for block in x.chunks(BLOCK * channels) {
            add_rows(block, &mut sums.block[0]);
            sums.end_block();
        }
        let [sums, _] = sums.all;
        sums
    }
}

/// Joins `f32` sums of blocks into `f64` sums.
struct BlockSums {
    block: [Vec<f32>; 2],
    all: [Vec<f64>; 2],
}

impl BlockSums {
    fn new(channels: usize) -> Self {
        Self {
            block: [vec![0.0; channels], vec![0.0; channels]],
            all: [vec![0.0; channels], vec![0.0; channels]],
        }
    }

    #[inline(always)]
    fn end_block(&mut self) {
        for (all, block) in self.all.iter_mut().zip(&mut self.block) {
            for (all, block) in all.iter_mut().zip(block) {
                *all += f64::from(*block);
                *block = 0.0;
            }
        }
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

vectorized! {
    /// The sums of the gradient behind the activation, and of its product with `x - mean`.
    pub(crate) fn sum_rows<'a>(
        x: &'a [f32],
        dy: &'a [f32],
        affine: &'a Affine,
        activation: Activation,
    ) -> [Vec<f64>; 2] {
        let channels = affine.mean.len();
        let bounds = activation.bounds();
        let mut sums = BlockSums::new(channels);
        for (x, dy) in x.chunks(BLOCK * channels).zip(dy.chunks(BLOCK * channels)) {
            for (x, dy) in x.chunks_exact(channels).zip(dy.chunks_exact(channels)) {
                let [sum, product] = &mut sums.block;
                affine.add_row(x, dy, sum, product, |y, dy| bounds.gradient(y, dy));
            }
            sums.end_block();
        }
        sums.all
    }
}

vectorized! {
    /// Makes `dy`, the gradient of `activation(affine(x))`, that of `affine(x)`, and returns its sum and
    /// that of its product with `x - mean`.
    pub(crate) fn mask_and_sum_rows<'a>(
        x: &'a [f32],
        dy: &'a mut [f32],
        affine: &'a Affine,
        activation: Activation,
    ) -> [Vec<f64>; 2] {
        let channels = affine.mean.len();
        let bounds = activation.bounds();
        let mut sums = BlockSums::new(channels);
        for (x, dy) in x.chunks(BLOCK * channels).zip(dy.chunks_mut(BLOCK * channels)) {
            for (x, dy) in x.chunks_exact(channels).zip(dy.chunks_exact_mut(channels)) {
                let [sum, product] = &mut sums.block;
                affine.mask_and_add_row(x, dy, sum, product, bounds);
            }
            sums.end_block();
        }
        sums.all
    }
}

vectorized! {
    /// Makes `dy`, the gradient of `activation(affine(x))`, that of `affine(x)`.
    pub(crate) fn mask_rows<'a>(
        x: &'a [f32],
        dy: &'a mut [f32],
        affine: &'a Affine,
        activation: Activation,
    ) -> () {
        let channels = affine.mean.len();
        let bounds = activation.bounds();
        for (x, dy) in x.chunks_exact(channels).zip(dy.chunks_exact_mut(channels)) {
            affine.mask_row(x, dy, bounds);
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
    /// Makes `dy`, the gradient of `y = activation(x)`, that of `x`.
    pub(crate) fn mask_by_result<'a>(y: &'a [f32], dy: &'a mut [f32], activation: Activation) -> () {
        let bounds = activation.bounds();
        for (dy, y) in dy.iter_mut().zip(y) {
            *dy = bounds.gradient(*y, *dy);
        }
    }
}

impl Affine {
    #[inline(always)]
    fn mask_row(&self, x: &[f32], dy: &mut [f32], bounds: Bounds) {
        let channels = dy.len();
        let (x, mean) = (&x[..channels], &self.mean[..channels]);
        let (scale, beta) = (&self.scale[..channels], &self.beta[..channels]);
        for j in 0..channels {
            dy[j] = bounds.gradient((x[j] - mean[j]) * scale[j] + beta[j], dy[j]);
        }
    }

    #[inline(always)]
    fn mask_and_add_row(
        &self,
        x: &[f32],
        dy: &mut [f32],
        sum: &mut [f32],
        product: &mut [f32],
        bounds: Bounds,
    ) {
        let channels = sum.len();
        let (x, dy, product) = (&x[..channels], &mut dy[..channels], &mut product[..channels]);
        let (scale, beta) = (&self.scale[..channels], &self.beta[..channels]);
        let mean = &self.mean[..channels];
        for j in 0..channels {
            let centred = x[j] - mean[j];
            dy[j] = bounds.gradient(centred * scale[j] + beta[j], dy[j]);
            sum[j] += dy[j];
            product[j] += dy[j] * centred;
        }
    }

    #[inline(always)]
    fn add_row(
        &self,
        x: &[f32],
        dy: &[f32],
        sum: &mut [f32],
        product: &mut [f32],
        f: impl Fn(f32, f32) -> f32,
    ) {
        let channels = sum.len();
        let (x, dy, product) = (&x[..channels], &dy[..channels], &mut product[..channels]);
        let (scale, beta) = (&self.scale[..channels], &self.beta[..channels]);
        let mean = &self.mean[..channels];
        for j in 0..channels {
            let centred = x[j] - mean[j];
            let dy = f(centred * scale[j] + beta[j], dy[j]);
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
        .for_each(|(dx, (x, dy))| gradient_rows(&linear, x, dy, activation, dx));
    dx
}

vectorized! {
    /// The gradient of `x` from that of `activation(affine(x))`.
    pub(crate) fn gradient_rows<'a>(
        linear: &'a Linear<'a>,
        x: &'a [f32],
        dy: &'a [f32],
        activation: Activation,
        dx: &'a mut [f32],
    ) -> () {
        let channels = linear.affine.mean.len();
        let bounds = activation.bounds();
        let rows = x.chunks_exact(channels).zip(dy.chunks_exact(channels));
        for (dx, (x, dy)) in dx.chunks_exact_mut(channels).zip(rows) {
            linear.row(x, dy, dx, |y, dy| bounds.gradient(y, dy));
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
    affine: &'a Affine,
    constant: Vec<f32>,
    slope: Vec<f32>,
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
    fn row(&self, x: &[f32], dy: &[f32], dx: &mut [f32], f: impl Fn(f32, f32) -> f32) {
        let channels = dx.len();
        let (x, dy) = (&x[..channels], &dy[..channels]);
        let mean = &self.affine.mean[..channels];
        let (scale, beta) = (&self.affine.scale[..channels], &self.affine.beta[..channels]);
        let (constant, slope) = (&self.constant[..channels], &self.slope[..channels]);
        for j in 0..channels {
            let centred = x[j] - mean[j];
            let dy = f(centred * scale[j] + beta[j], dy[j]);
            dx[j] = scale[j] * dy - constant[j] - slope[j] * centred;
        }
    }

    /// One position, place `code` of its window of which `place` and `dy` are winner and gradient;
    /// none if it is in no window.
    #[inline(always)]
    fn pool_row(&self, x: &[f32], window: Option<(&[u8], &[f32])>, code: u8, dx: &mut [f32]) {
        let channels = dx.len();
        let x = &x[..channels];
        let (mean, scale) = (&self.affine.mean[..channels], &self.affine.scale[..channels]);
        let (constant, slope) = (&self.constant[..channels], &self.slope[..channels]);
        if let Some((place, dy)) = window {
            let (place, dy) = (&place[..channels], &dy[..channels]);
            for j in 0..channels {
                let dy = if place[j] == code { dy[j] } else { 0.0 };
                dx[j] = scale[j] * dy - constant[j] - slope[j] * (x[j] - mean[j]);
            }
        } else {
            for j in 0..channels {
                dx[j] = -constant[j] - slope[j] * (x[j] - mean[j]);
            }
        }
    }
}

/// The code of a window none of whose values is positive: ReLU lets no gradient through.
const NONE: u8 = 4;

/// What the backward pass of [`pool_forward`] needs of every window.
pub(crate) struct Winners {
    /// Place of the largest value in the window (2 * row + column), or [`NONE`].
    place: Vec<u8>,
    /// The input there.
    x: Buffer,
}

/// The maps after 2 x 2 windows with stride 2; an odd last row or column is in no window.
pub(crate) fn pooled(maps: Maps) -> Maps {
    Maps { height: maps.height / 2, width: maps.width / 2, ..maps }
}

/// `max over 2 x 2 windows of relu(affine(x))`. Of equal values the first wins; NaN wins always.
pub(crate) fn pool_forward(x: &[f32], maps: Maps, affine: &Affine) -> (Buffer, Winners) {
    let _measured = profile::scope("batch norm with max pooling");
    let out = pooled(maps);
    let mut y = Buffer::new(out.len());
    let mut winner_x = Buffer::new(out.len());
    let mut place = vec![0u8; out.len()];
    let row = out.width * out.channels;
    let image = maps.height * maps.width * maps.channels;
    if row > 0 {
        y.par_chunks_mut(row)
            .zip(winner_x.par_chunks_mut(row))
            .zip(place.par_chunks_mut(row))
            .enumerate()
            .with_min_len(4)
            .for_each(|(index, ((y, winner_x), place))| {
                let (n, i) = (index / out.height, index % out.height);
                let from = n * image + 2 * i * maps.width * maps.channels;
                let two_rows = &x[from..][..2 * maps.width * maps.channels];
                pool_windows(two_rows, affine, y, winner_x, place);
            });
    }
    (y, Winners { place, x: winner_x })
}

vectorized! {
    /// A row of windows from two rows of positions.
    fn pool_windows<'a>(
        two_rows: &'a [f32],
        affine: &'a Affine,
        y: &'a mut [f32],
        winner: &'a mut [f32],
        place: &'a mut [u8],
    ) -> () {
        let channels = affine.mean.len();
        let (upper, lower) = two_rows.split_at(two_rows.len() / 2);
        let outputs = y
            .chunks_exact_mut(channels)
            .zip(winner.chunks_exact_mut(channels))
            .zip(place.chunks_exact_mut(channels));
        let windows = upper
            .chunks_exact(2 * channels)
            .zip(lower.chunks_exact(2 * channels));
        for (((y, winner), place), (upper, lower)) in outputs.zip(windows) {
            let (a, b) = upper.split_at(channels);
            let (c, d) = lower.split_at(channels);
            affine.pool_window([a, b, c, d], y, winner, place);
        }
    }
}

impl Affine {
    #[inline(always)]
    fn pool_window(&self, [a, b, c, d]: [&[f32]; 4], y: &mut [f32], winner: &mut [f32], place: &mut [u8]) {
        let channels = y.len();
        let (a, b, c, d) = (&a[..channels], &b[..channels], &c[..channels], &d[..channels]);
        let (scale, beta) = (&self.scale[..channels], &self.beta[..channels]);
        let mean = &self.mean[..channels];
        let (winner, place) = (&mut winner[..channels], &mut place[..channels]);
        for j in 0..channels {
            let value = |x: f32| (x - mean[j]) * scale[j] + beta[j];
            let (mut best, mut best_x, mut best_place) = (value(a[j]), a[j], 0u32);
            for (code, x) in [(1, b[j]), (2, c[j]), (3, d[j])] {
                let value = value(x);
                let wins = value > best || value.is_nan();
                best = if wins { value } else { best };
                best_x = if wins { x } else { best_x };
                best_place = if wins { code } else { best_place };
            }
            let dead = best <= 0.0;
            y[j] = if dead { 0.0 } else { best };
            winner[j] = best_x;
            place[j] = if dead { u32::from(NONE) } else { best_place } as u8;
        }
    }
}

/// The sums for [`pool_forward`] from the gradient of its result.
pub(crate) fn pool_gradient_sums(winners: &Winners, dy: &[f32], maps: Maps, affine: &Affine) -> GradientSums {
    let _measured = profile::scope("batch norm with max pooling, sums of the gradient");
    let channels = affine.mean.len();
    let parts = winners
        .x
        .par_chunks(TASK * channels)
        .zip(dy.par_chunks(TASK * channels))
        .zip(winners.place.par_chunks(TASK * channels))
        .map(|((x, dy), place)| sum_winners(x, dy, place, &affine.mean))
        .collect();
    GradientSums::join(parts, affine, maps.pixels())
}

vectorized! {
    fn sum_winners<'a>(
        x: &'a [f32],
        dy: &'a [f32],
        place: &'a [u8],
        mean: &'a [f32],
    ) -> [Vec<f64>; 2] {
        let channels = mean.len();
        let mut sums = BlockSums::new(channels);
        let blocks = x
            .chunks(BLOCK * channels)
            .zip(dy.chunks(BLOCK * channels))
            .zip(place.chunks(BLOCK * channels));
        for ((x, dy), place) in blocks {
            let rows = x
                .chunks_exact(channels)
                .zip(dy.chunks_exact(channels))
                .zip(place.chunks_exact(channels));
            for ((x, dy), place) in rows {
                let [sum, product] = &mut sums.block;
                add_winners(x, dy, place, mean, sum, product);
            }
            sums.end_block();
        }
        sums.all
    }
}

#[inline(always)]
fn add_winners(x: &[f32], dy: &[f32], place: &[u8], mean: &[f32], sum: &mut [f32], product: &mut [f32]) {
    let channels = sum.len();
    let (x, dy, place) = (&x[..channels], &dy[..channels], &place[..channels]);
    let (mean, product) = (&mean[..channels], &mut product[..channels]);
    for j in 0..channels {
        let dy = if place[j] == NONE { 0.0 } else { dy[j] };
        sum[j] += dy;
        product[j] += dy * (x[j] - mean[j]);
    }
}

/// The gradient of the input of [`pool_forward`].
pub(crate) fn pool_input_gradient(
    x: &[f32],
    maps: Maps,
    winners: &Winners,
    dy: &[f32],
    affine: &Affine,
    sums: &GradientSums,
) -> Buffer {
    let _measured = profile::scope("batch norm with max pooling, input gradient");
    let out = pooled(maps);
    let linear = Linear::new(affine, Some(sums));
    let mut dx = Buffer::new(maps.len());
    let row = maps.width * maps.channels;
    // Pairs of rows never cross an image: an odd last row is a chunk of its own.
    dx.par_chunks_mut(maps.height * row).zip(x.par_chunks(maps.height * row)).enumerate().for_each(
        |(n, (dx, x))| {
            let pairs = dx.chunks_mut(2 * row).zip(x.chunks(2 * row)).enumerate();
            for (i, (dx, x)) in pairs {
                let windows = if i < out.height {
                    (n * out.height + i) * out.width * out.channels
                        ..(n * out.height + i + 1) * out.width * out.channels
                } else {
                    0..0
                };
                let (place, dy) = (&winners.place[windows.clone()], &dy[windows]);
                pool_gradient_rows(&linear, x, place, dy, dx, row);
            }
        },
    );
    dx
}

vectorized! {
    /// One row of windows: `x` and `dx` are its two rows of positions, or one row in no window.
    fn pool_gradient_rows<'a>(
        linear: &'a Linear<'a>,
        x: &'a [f32],
        place: &'a [u8],
        dy: &'a [f32],
        dx: &'a mut [f32],
        row: usize,
    ) -> () {
        let channels = linear.affine.mean.len();
        for (r, (dx, x)) in dx.chunks_exact_mut(row).zip(x.chunks_exact(row)).enumerate() {
            let positions = dx.chunks_exact_mut(channels).zip(x.chunks_exact(channels));
            for (column, (dx, x)) in positions.enumerate() {
                let first = column / 2 * channels;
                let window = (first + channels <= place.len())
                    .then(|| (&place[first..][..channels], &dy[first..][..channels]));
                linear.pool_row(x, window, (2 * r + column % 2) as u8, dx);
            }
        }
    }
}
