//! Self-attention, one head of one image at a time: `softmax(q k^T / sqrt(d)) v`.
//!
//! The matrix of a head exists in the memory of a thread only. The backward pass computes it again (Dao et al. 2022),
//! so that nothing is stored but queries, keys and values.

use gallerist_util::simd::{Work, run, vectorize};
use pulp::{Simd, WithSimd};
use rayon::prelude::*;

use super::Rotary;
use super::lanes::largest;
use crate::buffer::{Buffer, with_scratch};
use crate::math::exp;
use crate::product::{self, Precision, Run, chunks};
use crate::profile;
use crate::unit::dot;

/// Sizes of a self-attention.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) images: usize,
    /// Tokens of an image.
    pub(crate) tokens: usize,
    pub(crate) heads: usize,
    /// Channels of a head.
    pub(crate) channels: usize,
}

/// Rows are padded to whole vectors.
const LANES: usize = 16;

impl Sizes {
    fn width(&self) -> usize {
        self.heads * self.channels
    }

    /// The factor of the scores.
    fn scale(&self) -> f32 {
        1.0 / (self.channels as f32).sqrt()
    }

    /// Elements from a row of a matrix `[tokens, channels]` to the next.
    fn row(&self) -> usize {
        self.channels.next_multiple_of(LANES)
    }

    /// Elements from a row of a matrix `[.., tokens]` to the next.
    fn line(&self) -> usize {
        self.tokens.next_multiple_of(LANES)
    }

    /// The values of a head: of `parts` matrices `[tokens, width]` next to each other, matrix `part`.
    fn head<'a>(
        &self,
        all: &'a [f32],
        parts: usize,
        part: usize,
        index: usize,
    ) -> impl Iterator<Item = &'a [f32]> + use<'a> {
        let (image, head) = (index / self.heads, index % self.heads);
        let stride = parts * self.width();
        let first = part * self.width() + head * self.channels;
        let channels = self.channels;
        let of_image = &all[image * self.tokens * stride..][..self.tokens * stride];
        of_image.chunks_exact(stride).map(move |token| &token[first..first + channels])
    }
}

/// The left operand of a product: its rows are `stride` apart, the terms of a row `step`.
#[derive(Clone, Copy)]
struct Left<'a> {
    values: &'a [f32],
    stride: usize,
    step: usize,
    terms: usize,
}

/// `result = left right`: `right` has rows of `stride` elements, `result` rows of `columns`, `stride_result` apart.
fn multiply(
    left: Left<'_>,
    (right, stride): (&[f32], usize),
    (result, stride_result): (&mut [f32], usize),
    rows: usize,
    columns: usize,
) {
    let places = |stride: usize| (0..rows).map(|row| row * stride).collect::<Vec<_>>();
    let runs = chunks(&[Run { offset: 0, len: left.terms }], left.step, Precision::F32);
    let (rows_a, rows_c) = (places(left.stride), places(stride_result));
    let left = product::Left { values: left.values, rows: &rows_a, step: left.step, chunks: &runs };
    product::multiply_rows(&left, (right, stride), result, &rows_c, columns);
}

/// Copies rows of a head to rows of `row` elements, times `scale`.
fn pack<'a>(from: impl Iterator<Item = &'a [f32]>, scale: f32, row: usize, to: &mut [f32]) {
    for (to, from) in to.chunks_exact_mut(row).zip(from) {
        to[..from.len()].iter_mut().zip(from).for_each(|(to, from)| *to = from * scale);
        to[from.len()..].fill(0.0);
    }
}

/// Packs the queries of a head, scaled, and its keys, both turned by their positions.
fn pack_pair(
    qkv: &[f32],
    sizes: Sizes,
    rotary: Option<&Rotary>,
    index: usize,
    [query, key]: [&mut [f32]; 2],
) {
    let row = sizes.row();
    for (part, scale, rows) in [(0, sizes.scale(), query), (1, 1.0, key)] {
        pack(sizes.head(qkv, 3, part, index), scale, row, rows);
        if let Some(rotary) = rotary {
            rotary.turn(rows, row);
        }
    }
}

/// The transpose of packed rows.
fn turn(from: &[f32], row: usize, channels: usize, line: usize, to: &mut [f32]) {
    for (token, from) in from.chunks_exact(row).enumerate() {
        for channel in 0..channels {
            to[channel * line + token] = from[channel];
        }
    }
    let tokens = from.len() / row;
    to.chunks_exact_mut(line).for_each(|line| line[tokens..].fill(0.0));
}

/// Splits scratch memory into parts of these lengths.
fn split<const N: usize>(mut memory: &mut [f32], lengths: [usize; N]) -> [&mut [f32]; N] {
    lengths.map(|length| {
        let (part, rest) = std::mem::take(&mut memory).split_at_mut(length);
        memory = rest;
        part
    })
}

/// The result `[images, tokens, width]` of queries, keys and values `[images, tokens, 3 width]`; `rotary` turns queries and
/// keys.
pub(crate) fn forward(qkv: &[f32], sizes: Sizes, rotary: Option<&Rotary>) -> Buffer {
    let _measured = profile::scope("attention");
    let Sizes { images, tokens, heads, channels } = sizes;
    let mut by_head = Buffer::new(images * tokens * sizes.width());
    by_head
        .par_chunks_mut(tokens * channels)
        .enumerate()
        .for_each(|(index, result)| forward_head(qkv, sizes, rotary, index, result));
    let mut y = Buffer::new(by_head.len());
    interleave(&by_head, [tokens, heads, channels], &mut y);
    y
}

fn forward_head(qkv: &[f32], sizes: Sizes, rotary: Option<&Rotary>, index: usize, result: &mut [f32]) {
    let Sizes { tokens, channels, .. } = sizes;
    let (row, line) = (sizes.row(), sizes.line());
    let (packed, turned, matrix) = (tokens * row, channels * line, tokens * line);
    with_scratch(0, 2 * packed + turned + matrix, |memory| {
        let [query, key, columns, shares] = split(memory, [packed, packed, turned, matrix]);
        pack_pair(qkv, sizes, rotary, index, [&mut *query, &mut *key]);
        turn(key, row, channels, line, columns);
        scores(sizes, query, columns, shares);
        let value = key;
        pack(sizes.head(qkv, 3, 2, index), 1.0, row, value);
        let left = Left { values: shares, stride: line, step: 1, terms: tokens };
        multiply(left, (value, row), (result, channels), tokens, channels);
    });
}

/// The softmax of the scores of all tokens.
fn scores(sizes: Sizes, query: &[f32], columns: &[f32], shares: &mut [f32]) {
    let Sizes { tokens, channels, .. } = sizes;
    let (row, line) = (sizes.row(), sizes.line());
    let left = Left { values: query, stride: row, step: 1, terms: channels };
    multiply(left, (columns, line), (shares, line), tokens, tokens);
    run(Softmax { scores: shares, tokens, line });
}

/// The gradient by queries, keys and values, from that by the result.
pub(crate) fn gradient(qkv: &[f32], dy: &[f32], sizes: Sizes, rotary: Option<&Rotary>) -> Buffer {
    let _measured = profile::scope("attention, gradient");
    let Sizes { tokens, heads, channels, .. } = sizes;
    let mut by_head = Buffer::new(qkv.len());
    by_head
        .par_chunks_mut(3 * tokens * channels)
        .enumerate()
        .for_each(|(index, result)| gradient_head(qkv, dy, sizes, rotary, index, result));
    let mut dx = Buffer::new(qkv.len());
    // [image][head][part][token] to [image][token][part][head].
    let of_image = 3 * tokens * sizes.width();
    dx.par_chunks_mut(of_image).zip(by_head.par_chunks(of_image)).for_each(|(to, from)| {
        for (head, from) in from.chunks_exact(3 * tokens * channels).enumerate() {
            for (part, from) in from.chunks_exact(tokens * channels).enumerate() {
                for (token, from) in from.chunks_exact(channels).enumerate() {
                    to[((token * 3 + part) * heads + head) * channels..][..channels].copy_from_slice(from);
                }
            }
        }
    });
    dx
}

fn gradient_head(
    qkv: &[f32],
    dy: &[f32],
    sizes: Sizes,
    rotary: Option<&Rotary>,
    index: usize,
    result: &mut [f32],
) {
    let Sizes { tokens, channels, .. } = sizes;
    let (row, line) = (sizes.row(), sizes.line());
    let (packed, turned, matrix) = (tokens * row, channels * line, tokens * line);
    with_scratch(0, 3 * packed + turned + 2 * matrix, |memory| {
        let [query, key, up, columns, shares, slopes] =
            split(memory, [packed, packed, packed, turned, matrix, matrix]);
        pack_pair(qkv, sizes, rotary, index, [&mut *query, &mut *key]);
        turn(key, row, channels, line, columns);
        scores(sizes, query, columns, shares);
        // The gradient by the shares: dy v^T.
        pack(sizes.head(qkv, 3, 2, index), 1.0, row, up);
        turn(up, row, channels, line, columns);
        pack(sizes.head(dy, 1, 0, index), 1.0, row, up);
        let left = Left { values: up, stride: row, step: 1, terms: channels };
        multiply(left, (columns, line), (slopes, line), tokens, tokens);
        vectorize(SoftmaxGradient { shares, slopes, tokens, line });
        let [of_query, of_key, of_value] = split(result, [tokens * channels; 3]);
        let transposed = |values| Left { values, stride: 1, step: line, terms: tokens };
        multiply(transposed(shares), (up, row), (of_value, channels), tokens, channels);
        multiply(transposed(slopes), (query, row), (of_key, channels), tokens, channels);
        let scale = sizes.scale();
        key.iter_mut().for_each(|value| *value *= scale);
        let left = Left { values: slopes, stride: line, step: 1, terms: tokens };
        multiply(left, (key, row), (of_query, channels), tokens, channels);
        for rows in [of_query, of_key] {
            if let Some(rotary) = rotary {
                rotary.turn_back(rows, channels);
            }
        }
    });
}

/// `[image][head][token]` to `[image][token][head]`.
fn interleave(from: &[f32], [tokens, heads, channels]: [usize; 3], to: &mut [f32]) {
    let of_image = tokens * heads * channels;
    to.par_chunks_mut(of_image).zip(from.par_chunks(of_image)).for_each(|(to, from)| {
        for (head, from) in from.chunks_exact(tokens * channels).enumerate() {
            for (token, from) in from.chunks_exact(channels).enumerate() {
                to[(token * heads + head) * channels..][..channels].copy_from_slice(from);
            }
        }
    });
}

/// Makes shares of scores: `e^score` by the sum of its row. A row with NaN becomes NaN.
struct Softmax<'a> {
    scores: &'a mut [f32],
    tokens: usize,
    line: usize,
}

impl WithSimd for Softmax<'_> {
    type Output = ();

    #[inline(always)]
    fn with_simd<S: Simd>(self, _: S) {
        for row in self.scores.chunks_exact_mut(self.line) {
            let row = &mut row[..self.tokens];
            let most = largest(row);
            for value in &mut *row {
                *value = exp::<S>(*value - most);
            }
            let factor = 1.0 / super::lanes::sum(row);
            for value in row {
                *value *= factor;
            }
        }
    }
}

/// Makes the gradient by the scores of that by the shares: `p (g - sum of p g)`.
struct SoftmaxGradient<'a> {
    shares: &'a [f32],
    slopes: &'a mut [f32],
    tokens: usize,
    line: usize,
}

impl Work for SoftmaxGradient<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for (slopes, shares) in
            self.slopes.chunks_exact_mut(self.line).zip(self.shares.chunks_exact(self.line))
        {
            let (slopes, shares) = (&mut slopes[..self.tokens], &shares[..self.tokens]);
            let mean = dot(slopes, shares);
            for i in 0..slopes.len() {
                slopes[i] = shares[i] * (slopes[i] - mean);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Sizes = Sizes { images: 2, tokens: 5, heads: 2, channels: 3 };

    fn values(count: usize, factor: usize) -> Vec<f32> {
        (0..count).map(|i| ((i * factor) % 17) as f32 / 8.0 - 1.0).collect()
    }

    /// The result and the sum of `dy` times it, by the equation in f64.
    fn definition(qkv: &[f64], dy: &[f32]) -> (Vec<f64>, f64) {
        let Sizes { images, tokens, heads, channels } = SIZES;
        let at = |image: usize, token: usize, part: usize, head: usize, c: usize| {
            qkv[(((image * tokens + token) * 3 + part) * heads + head) * channels + c]
        };
        let mut y = vec![0.0; images * tokens * heads * channels];
        for (image, head, i) in
            (0..images * heads * tokens).map(|k| (k / tokens / heads, k / tokens % heads, k % tokens))
        {
            let score = |j: usize| {
                (0..channels).map(|c| at(image, i, 0, head, c) * at(image, j, 1, head, c)).sum::<f64>()
            };
            let powers: Vec<f64> = (0..tokens).map(|j| (score(j) / (channels as f64).sqrt()).exp()).collect();
            let sum: f64 = powers.iter().sum();
            for c in 0..channels {
                y[((image * tokens + i) * heads + head) * channels + c] =
                    (0..tokens).map(|j| powers[j] / sum * at(image, j, 2, head, c)).sum();
            }
        }
        let value = y.iter().zip(dy).map(|(y, dy)| y * f64::from(*dy)).sum();
        (y, value)
    }

    #[test]
    fn heads_are_those_of_the_equation_and_gradients_its_differences() {
        let width = SIZES.width();
        let qkv = values(2 * 5 * 3 * width, 7);
        let dy = values(2 * 5 * width, 5);
        let exact: Vec<f64> = qkv.iter().map(|&v| f64::from(v)).collect();
        let (wanted, _) = definition(&exact, &dy);
        for (found, wanted) in forward(&qkv, SIZES, None).iter().zip(&wanted) {
            assert!((f64::from(*found) - wanted).abs() < 1e-6, "{found}, wanted {wanted}");
        }
        let found = gradient(&qkv, &dy, SIZES, None);
        // Every seventh: Miri is slow.
        for i in (0..qkv.len()).step_by(7) {
            let moved = |by: f64| {
                let mut other = exact.clone();
                other[i] += by;
                definition(&other, &dy).1
            };
            let wanted = (moved(1e-5) - moved(-1e-5)) / 2e-5;
            assert!((f64::from(found[i]) - wanted).abs() < 1e-5, "{i}: {}, wanted {wanted}", found[i]);
        }
    }
}
