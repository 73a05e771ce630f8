//! Walks the blocks of query rows.

use std::cell::RefCell;

use rayon::prelude::*;

use super::lanes::{self, LANES, vectorised};
use super::product::{self, Matrix};
use super::relatives::Relatives;
use super::{Counts, Measure, Row, RowLoss, Seen, Sides};

/// Values of a block of rows: 32 MiB.
pub(crate) const BLOCK_VALUES: usize = 8 << 20;

/// Rows of a block however long they are, so that the products keep some of their speed.
const FEWEST_ROWS: usize = 8;

/// Rows that one task turns into derivatives.
const TASK_ROWS: usize = 8;

/// A pair's distance is computed from its differences where its square is at most this part of
/// `|a|^2 + |b|^2`; as in [`crate::pairwise`].
const NEAR: f32 = 1e-2;

/// A block whose share of derivatives other than 0 is at most `1 / SPARSE` is summed pair by pair.
const SPARSE: usize = 10;

pub(super) struct Outcome {
    pub value: f64,
    pub seen: Vec<Seen>,
    /// `n x d`, if wanted.
    pub gradient: Option<Vec<f32>>,
}

thread_local! {
    /// The block, kept from step to step: fresh memory costs a page fault per 4 KiB.
    static BLOCK: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

/// The batch.
struct Batch<'a> {
    x: &'a [f32],
    n: usize,
    d: usize,
    /// Squared norms, padded to whole lanes.
    norms: Vec<f32>,
    relatives: &'a Relatives,
}

impl<'a> Batch<'a> {
    fn vector(&self, i: usize) -> &'a [f32] {
        &self.x[i * self.d..][..self.d]
    }

    fn rows(&self, first: usize, count: usize) -> Matrix<'a> {
        Matrix::new(&self.x[first * self.d..], count, self.d, self.d)
    }
}

/// What became of a row besides its derivatives.
#[derive(Clone, Copy, Default)]
struct RowSums {
    seen: Seen,
    /// Sum of the weights of the row.
    weight: f32,
    /// Number of weights other than 0.
    weights: u32,
}

/// Memory of a thread.
#[derive(Default)]
struct Scratch {
    values: Vec<f32>,
    list: Vec<u32>,
    positives: Vec<f32>,
    by_positives: Vec<f32>,
}

/// Value, what was seen and gradient, in blocks of about `block_values` values; nothing if a squared
/// norm is not finite.
pub(super) fn run<L: RowLoss>(
    loss: &L,
    x: &[f32],
    n: usize,
    d: usize,
    relatives: &Relatives,
    want_gradient: bool,
    block_values: usize,
) -> Option<Outcome> {
    let step = n.next_multiple_of(LANES);
    let mut norms: Vec<f32> =
        vectorised(|| x.chunks_exact(d).map(|row| lanes::sum(row, |v| v * v)).collect());
    // Four times a norm bounds every squared distance.
    if norms.iter().any(|norm| !(4.0 * norm).is_finite()) {
        return None;
    }
    norms.resize(step, 0.0);
    let batch = Batch { x, n, d, norms, relatives };
    let factor = loss.factor(&counts(relatives.counts()));
    let block = (block_values / step).max(FEWEST_ROWS).min(n);
    let mut gradient = want_gradient.then(|| vec![0f32; n * d]);
    // Per sample the sum of the weights that multiply the sample itself.
    let mut own_weights = vec![0f64; n];
    let mut seen = Vec::with_capacity(n);
    // Taken, not borrowed: while this thread waits for others it may start on another batch.
    let mut memory = BLOCK.take();
    if memory.len() < block * step {
        memory.resize(block * step, 0.0);
    }
    for first in (0..n).step_by(block) {
        let count = block.min(n - first);
        let memory = &mut memory[..count * step];
        if count == n && n >= 4 * product::task_rows(n) {
            product::symmetric_product(memory, step, batch.rows(0, n));
        } else {
            product::parallel_product(
                memory,
                step,
                false,
                1.0,
                batch.rows(first, count),
                batch.rows(0, n).transposed(),
            );
        }
        let factor = want_gradient.then_some(factor as f32);
        let sums = differentiate(loss, &batch, first, memory, factor);
        seen.extend(sums.iter().map(|sums| sums.seen));
        if let Some(gradient) = &mut gradient {
            let pairs = sums.iter().map(|sums| sums.weights as usize).sum::<usize>();
            let weights = Weights {
                measure: L::MEASURE,
                sides: loss.sides(),
                first,
                count,
                step,
                values: memory,
                sums,
            };
            if pairs <= count * n / SPARSE {
                weights.add_sparse(&batch, gradient);
            } else {
                weights.add_dense(&batch, gradient, &mut own_weights);
            }
        }
    }
    BLOCK.set(memory);
    let shares = loss.shares(&seen);
    if let Some(gradient) = &mut gradient {
        debug_assert!(
            shares.is_none() || loss.sides() == Sides::Query,
            "shares scale the query's gradient alone"
        );
        gradient.par_chunks_mut(d).enumerate().for_each(|(i, row)| {
            vectorised(|| {
                if own_weights[i] != 0.0 {
                    lanes::add_scaled(row, own_weights[i] as f32, batch.vector(i));
                }
                if let Some(shares) = &shares {
                    lanes::scale(row, shares[i] as f32);
                }
            });
        });
    }
    let value = match &shares {
        Some(shares) => {
            seen.iter().zip(shares).map(|(seen, share)| seen.loss * seen.weight * share).sum::<f64>()
        }
        None => seen.iter().map(|seen| seen.loss * seen.weight).sum(),
    };
    Some(Outcome { value: factor * value, seen, gradient })
}

fn counts(positives: &[u32]) -> Counts {
    let n = positives.len() as u64;
    let mut counts = Counts { queries: n, ..Counts::default() };
    for &positives in positives {
        let positives = u64::from(positives);
        let negatives = n - 1 - positives;
        counts.triplets += positives * negatives;
        if positives > 0 && negatives > 0 {
            counts.both += 1;
            counts.positive_pairs_of_both += positives;
        }
    }
    counts
}

/// Turns the inner products in `block` into weights, row by row.
///
/// A weight is the derivative of the batch's value by a similarity; by a distance, divided by the
/// distance, it is what multiplies the difference of the two embeddings.
fn differentiate<L: RowLoss>(
    loss: &L,
    batch: &Batch<'_>,
    first: usize,
    block: &mut [f32],
    factor: Option<f32>,
) -> Vec<RowSums> {
    let step = batch.norms.len();
    let mut sums = vec![RowSums::default(); block.len() / step];
    block.par_chunks_mut(TASK_ROWS * step).zip(sums.par_chunks_mut(TASK_ROWS)).enumerate().for_each_init(
        Scratch::default,
        |scratch, (task, (rows, sums))| {
            vectorised(|| {
                for (k, (row, sums)) in rows.chunks_exact_mut(step).zip(sums).enumerate() {
                    *sums =
                        differentiate_row(loss, batch, first + task * TASK_ROWS + k, row, factor, scratch);
                }
            });
        },
    );
    sums
}

#[inline(always)]
fn differentiate_row<L: RowLoss>(
    loss: &L,
    batch: &Batch<'_>,
    i: usize,
    row: &mut [f32],
    factor: Option<f32>,
    scratch: &mut Scratch,
) -> RowSums {
    let Scratch { values, list, positives, by_positives } = scratch;
    values.resize(row.len(), 0.0);
    match L::MEASURE {
        Measure::Distance => distances(batch, i, row, values),
        Measure::Similarity => values.copy_from_slice(row),
    }
    batch.relatives.positives(i, list);
    positives.clear();
    positives.extend(list.iter().map(|&j| values[j as usize]));
    by_positives.clear();
    by_positives.resize(positives.len(), 0.0);
    let absent = L::MEASURE.absent_negative();
    values[i] = absent;
    values[batch.n..].fill(absent);
    for &j in list.iter() {
        values[j as usize] = absent;
    }
    row.fill(0.0);
    let seen = loss.row(&mut Row {
        positives,
        negatives: values,
        negative_count: batch.n - 1 - positives.len(),
        by_positives,
        by_negatives: row,
    });
    let Some(factor) = factor else {
        return RowSums { seen, ..RowSums::default() };
    };
    // 0 at distance 0: the direction is undefined there.
    let over = |derivative: f32, distance: f32| {
        if distance > 0.0 { factor * derivative / distance } else { 0.0 }
    };
    if L::MEASURE == Measure::Distance {
        for (weight, &distance) in row.iter_mut().zip(values.iter()) {
            *weight = over(*weight, distance);
        }
        for ((&j, &by), &distance) in list.iter().zip(by_positives.iter()).zip(positives.iter()) {
            row[j as usize] = over(by, distance);
        }
    } else {
        lanes::scale(row, factor);
        for (&j, &by) in list.iter().zip(by_positives.iter()) {
            row[j as usize] = factor * by;
        }
    }
    RowSums { seen, weight: lanes::sum(row, |w| w), weights: lanes::count(row, |w| w != 0.0) }
}

/// The distances of sample `i` to all others, from the inner products.
#[inline(always)]
fn distances(batch: &Batch<'_>, i: usize, products: &[f32], to: &mut [f32]) {
    let norm = batch.norms[i];
    let (products, _) = products.as_chunks::<LANES>();
    let (norms, _) = batch.norms.as_chunks::<LANES>();
    let (to, _) = to.as_chunks_mut::<LANES>();
    for (chunk, ((products, norms), to)) in products.iter().zip(norms).zip(to).enumerate() {
        let mut near = false;
        for lane in 0..LANES {
            let both = norm + norms[lane];
            let squared = both - 2.0 * products[lane];
            near |= squared <= NEAR * both;
            to[lane] = lanes::larger(squared, 0.0).sqrt();
        }
        if near {
            for lane in 0..LANES {
                let j = chunk * LANES + lane;
                let both = norm + norms[lane];
                if j < batch.n && j != i && both - 2.0 * products[lane] <= NEAR * both {
                    to[lane] = exact_distance(batch.vector(i), batch.vector(j));
                }
            }
        }
    }
}

#[inline(always)]
fn exact_distance(a: &[f32], b: &[f32]) -> f32 {
    const WIDE: usize = LANES / 2;
    let mut sums = [0f64; WIDE];
    let add = |sum: &mut f64, a: f32, b: f32| {
        let difference = f64::from(a) - f64::from(b);
        *sum += difference * difference;
    };
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<WIDE>(), b.as_chunks::<WIDE>());
    for (a, b) in a.iter().zip(b) {
        for lane in 0..WIDE {
            add(&mut sums[lane], a[lane], b[lane]);
        }
    }
    for (lane, (a, b)) in a_rest.iter().zip(b_rest).enumerate() {
        add(&mut sums[lane], *a, *b);
    }
    sums.iter().sum::<f64>().sqrt() as f32
}

/// The weights of a block of query rows.
struct Weights<'a> {
    measure: Measure,
    sides: Sides,
    /// The first query.
    first: usize,
    /// Number of queries.
    count: usize,
    step: usize,
    values: &'a mut [f32],
    sums: Vec<RowSums>,
}

impl Weights<'_> {
    /// Adds the gradients by two matrix products; what multiplies a sample itself is left to the
    /// end, in `own`.
    fn add_dense(self, batch: &Batch<'_>, gradient: &mut [f32], own: &mut [f64]) {
        let Weights { measure, sides, first, count, step, values, sums } = self;
        let (n, d) = (batch.n, batch.d);
        let sign = if measure == Measure::Distance { -1.0 } else { 1.0 };
        if measure == Measure::Distance && sides != Sides::Gallery {
            for (own, sums) in own[first..].iter_mut().zip(&sums) {
                *own += f64::from(sums.weight);
            }
        }
        if measure == Measure::Distance && sides != Sides::Query {
            add_column_sums(values, step, own);
        }
        if sides == Sides::Both && count == n {
            product::add_transposed(values, step, n);
            let weights = Matrix::new(values, n, n, step);
            product::parallel_product(gradient, d, true, sign, weights, batch.rows(0, n));
            return;
        }
        let weights = Matrix::new(values, count, n, step);
        if sides != Sides::Gallery {
            product::parallel_product(&mut gradient[first * d..], d, true, sign, weights, batch.rows(0, n));
        }
        if sides != Sides::Query {
            product::parallel_product(
                gradient,
                d,
                true,
                sign,
                weights.transposed(),
                batch.rows(first, count),
            );
        }
    }

    /// Adds the gradients pair by pair.
    fn add_sparse(self, batch: &Batch<'_>, gradient: &mut [f32]) {
        let Weights { measure, sides, first, count, step, values, .. } = self;
        let (n, d) = (batch.n, batch.d);
        let rows: Vec<Vec<(u32, f32)>> = values
            .par_chunks(step)
            .map(|row| {
                let mut pairs = Vec::new();
                for (chunk, weights) in row.as_chunks::<LANES>().0.iter().enumerate() {
                    if weights.iter().any(|&weight| weight != 0.0) {
                        let at = |lane: usize| (chunk * LANES + lane) as u32;
                        pairs.extend((0..LANES).filter(|&l| weights[l] != 0.0).map(|l| (at(l), weights[l])));
                    }
                }
                pairs
            })
            .collect();
        let add = |to: &mut [f32], own: &[f32], pairs: &[(u32, f32)]| {
            for &(other, weight) in pairs {
                let other = batch.vector(other as usize);
                match measure {
                    Measure::Distance => {
                        for ((to, own), other) in to.iter_mut().zip(own).zip(other) {
                            *to += weight * (own - other);
                        }
                    }
                    Measure::Similarity => lanes::add_scaled(to, weight, other),
                }
            }
        };
        if sides != Sides::Gallery {
            gradient[first * d..][..count * d].par_chunks_mut(d).zip(&rows).enumerate().for_each(
                |(k, (to, pairs))| {
                    vectorised(|| add(to, batch.vector(first + k), pairs));
                },
            );
        }
        if sides != Sides::Query {
            let (starts, pairs) = by_column(&rows, first, n);
            gradient.par_chunks_mut(d).enumerate().for_each(|(j, to)| {
                vectorised(|| add(to, batch.vector(j), &pairs[starts[j]..starts[j + 1]]));
            });
        }
    }
}

/// The pairs by their gallery sample: where each sample's pairs start, and the pairs (query, weight).
fn by_column(rows: &[Vec<(u32, f32)>], first: usize, n: usize) -> (Vec<usize>, Vec<(u32, f32)>) {
    let mut starts = vec![0; n + 1];
    for &(j, _) in rows.iter().flatten() {
        starts[j as usize + 1] += 1;
    }
    for j in 0..n {
        starts[j + 1] += starts[j];
    }
    let mut next = starts.clone();
    let mut pairs = vec![(0, 0.0); starts[n]];
    for (k, row) in rows.iter().enumerate() {
        for &(j, weight) in row {
            pairs[next[j as usize]] = ((first + k) as u32, weight);
            next[j as usize] += 1;
        }
    }
    (starts, pairs)
}

/// Adds the sum of every column of `values` to `to`.
fn add_column_sums(values: &[f32], step: usize, to: &mut [f64]) {
    const COLUMNS: usize = 4 * LANES;
    to.par_chunks_mut(COLUMNS).enumerate().for_each(|(task, to)| {
        vectorised(|| {
            let mut sums = [0f64; COLUMNS];
            for row in values.chunks_exact(step) {
                for (sum, &value) in sums.iter_mut().zip(&row[task * COLUMNS..]) {
                    *sum += f64::from(value);
                }
            }
            for (to, sum) in to.iter_mut().zip(sums) {
                *to += sum;
            }
        });
    });
}
