//! Walks the blocks of query rows.

use std::cell::RefCell;

use gallerist_util::simd::{Work, vectorize};
use rayon::prelude::*;

use super::lanes::{self, LANES};
use super::product::{self, Matrix};
use super::relatives::Relatives;
use super::{Counts, Measure, Row, RowLoss, Seen, Sides};

/// Values of a block of rows: 32 MiB.
pub(crate) const BLOCK_VALUES: usize = 8 << 20;

/// Rows of a block however long they are, so that the products keep some of their speed.
const FEWEST_ROWS: usize = 8;

/// Rows that one task turns into derivatives.
const TASK_ROWS: usize = 8;

/// Rows of the memory whose norms one task computes.
const NORM_ROWS: usize = 1024;

/// A pair's distance is computed from its differences where its square is at most this part of
/// `|a|^2 + |b|^2`; as in [`gallerist_tensor::pairwise`].
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

/// The batch, whose samples are the queries, and the gallery: the batch and then the memory.
pub(super) struct Batch<'a> {
    x: &'a [f32],
    memory: &'a [f32],
    /// Queries.
    n: usize,
    /// Samples of the gallery.
    g: usize,
    d: usize,
    /// Squared norms of the gallery, padded to whole lanes.
    norms: Vec<f32>,
    relatives: &'a Relatives,
}

impl<'a> Batch<'a> {
    /// `x` and `memory` are rows of `d` values; nothing if a squared norm is not finite.
    pub(super) fn new(x: &'a [f32], memory: &'a [f32], d: usize, relatives: &'a Relatives) -> Option<Self> {
        let (n, m) = (x.len() / d, memory.len() / d);
        assert_eq!(n, relatives.counts().len(), "{n} rows and {} queries", relatives.counts().len());
        let mut norms = vectorize(Norms { x, d });
        let of_memory = memory.par_chunks(NORM_ROWS * d).map(|x| vectorize(Norms { x, d }));
        norms.extend(of_memory.collect::<Vec<_>>().concat());
        // Four times a norm bounds every squared distance.
        if norms.iter().any(|norm| !(4.0 * norm).is_finite()) {
            return None;
        }
        let g = n + m;
        norms.resize(g.next_multiple_of(LANES), 0.0);
        Some(Batch { x, memory, n, g, d, norms, relatives })
    }

    /// Places of a row of values.
    fn step(&self) -> usize {
        self.norms.len()
    }

    /// A sample of the gallery.
    fn vector(&self, j: usize) -> &'a [f32] {
        match j.checked_sub(self.n) {
            Some(j) => &self.memory[j * self.d..][..self.d],
            None => &self.x[j * self.d..][..self.d],
        }
    }

    /// Some queries.
    fn rows(&self, first: usize, count: usize) -> Matrix<'a> {
        Matrix::new(&self.x[first * self.d..], count, self.d, self.d)
    }

    fn memory_rows(&self) -> Matrix<'a> {
        Matrix::new(self.memory, self.g - self.n, self.d, self.d)
    }
}

/// What became of a row besides its derivatives.
#[derive(Clone, Copy, Default)]
struct RowSums {
    seen: Seen,
    /// Sum of the weights of the pairs that give the query a gradient.
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

/// Value, what was seen and gradient, in blocks of about `block_values` values.
pub(super) fn run<L: RowLoss>(
    loss: &L,
    batch: &Batch<'_>,
    want_gradient: bool,
    block_values: usize,
) -> Outcome {
    // Taken, not borrowed: while this thread waits for others it may start on another batch.
    let mut room = BLOCK.take();
    // Handed to the pool once, not once for each of the steps below.
    let outcome = rayon::scope(|_| in_blocks(loss, batch, want_gradient, block_values, &mut room));
    BLOCK.set(room);
    outcome
}

fn in_blocks<L: RowLoss>(
    loss: &L,
    batch: &Batch<'_>,
    want_gradient: bool,
    block_values: usize,
    room: &mut Vec<f32>,
) -> Outcome {
    let Batch { n, g, d, .. } = *batch;
    let step = batch.step();
    let factor = loss.factor(&counts(batch.relatives.counts(), g));
    let block = (block_values / step).max(FEWEST_ROWS).min(n);
    let mut gradient = want_gradient.then(|| vec![0f32; n * d]);
    // Per sample the sum of the weights that multiply the sample itself.
    let mut own_weights = vec![0f64; n];
    let mut seen = Vec::with_capacity(n);
    if room.len() < block * step {
        room.resize(block * step, 0.0);
    }
    for first in (0..n).step_by(block) {
        let count = block.min(n - first);
        let values = &mut room[..count * step];
        if count == n {
            product::symmetric_product(values, step, batch.rows(0, n));
        } else {
            product::product(
                values,
                step,
                false,
                1.0,
                batch.rows(first, count),
                batch.rows(0, n).transposed(),
            );
        }
        if g > n {
            let memory_rows = batch.memory_rows().transposed();
            product::product(&mut values[n..], step, false, 1.0, batch.rows(first, count), memory_rows);
        }
        let factor = want_gradient.then_some(factor as f32);
        let sums = differentiate(loss, batch, first, values, factor);
        seen.extend(sums.iter().map(|sums| sums.seen));
        if let Some(gradient) = &mut gradient {
            let pairs = sums.iter().map(|sums| sums.weights as usize).sum::<usize>();
            let weights =
                Weights { measure: L::MEASURE, sides: loss.sides(), first, count, step, values, sums };
            if pairs <= count * g / SPARSE {
                weights.add_sparse(batch, gradient);
            } else {
                weights.add_dense(batch, gradient, &mut own_weights);
            }
        }
    }
    let shares = loss.shares(&seen);
    if let Some(gradient) = &mut gradient {
        debug_assert!(
            shares.is_none() || loss.sides() == Sides::Query,
            "shares scale the query's gradient alone"
        );
        gradient.par_chunks_mut(d).enumerate().for_each(|(i, row)| {
            let own_weight = own_weights[i] as f32;
            let share = shares.as_ref().map(|shares| shares[i] as f32);
            vectorize(FinishRow { row, own: batch.vector(i), own_weight, share });
        });
    }
    let value = match &shares {
        Some(shares) => {
            seen.iter().zip(shares).map(|(seen, share)| seen.loss * seen.weight * share).sum::<f64>()
        }
        None => seen.iter().map(|seen| seen.loss * seen.weight).sum(),
    };
    Outcome { value: factor * value, seen, gradient }
}

/// Squared norms.
struct Norms<'a> {
    x: &'a [f32],
    d: usize,
}

impl Work for Norms<'_> {
    type Output = Vec<f32>;

    #[inline(always)]
    fn run(self) -> Vec<f32> {
        let mut norms = Vec::with_capacity(self.x.len() / self.d);
        for row in self.x.chunks_exact(self.d) {
            norms.push(lanes::sum(row, |v| v * v));
        }
        norms
    }
}

/// Adds to a row of the gradient what multiplies the sample itself, and scales it.
struct FinishRow<'a> {
    row: &'a mut [f32],
    own: &'a [f32],
    own_weight: f32,
    share: Option<f32>,
}

impl Work for FinishRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        if self.own_weight != 0.0 {
            lanes::add_scaled(self.row, self.own_weight, self.own);
        }
        if let Some(share) = self.share {
            lanes::scale(self.row, share);
        }
    }
}

/// What the queries' numbers of positives make in a gallery of `g`.
fn counts(positives: &[u32], g: usize) -> Counts {
    let mut counts = Counts { queries: positives.len() as u64, ..Counts::default() };
    for &positives in positives {
        let positives = u64::from(positives);
        let negatives = g as u64 - 1 - positives;
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
    let step = batch.step();
    let mut sums = vec![RowSums::default(); block.len() / step];
    block.par_chunks_mut(TASK_ROWS * step).zip(sums.par_chunks_mut(TASK_ROWS)).enumerate().for_each_init(
        Scratch::default,
        |scratch, (task, (rows, sums))| {
            vectorize(Differentiate {
                loss,
                batch,
                first: first + task * TASK_ROWS,
                rows,
                sums,
                factor,
                scratch,
            });
        },
    );
    sums
}

/// The rows of one task.
struct Differentiate<'a, 'b, L> {
    loss: &'a L,
    batch: &'a Batch<'b>,
    first: usize,
    rows: &'a mut [f32],
    sums: &'a mut [RowSums],
    factor: Option<f32>,
    scratch: &'a mut Scratch,
}

impl<L: RowLoss> Work for Differentiate<'_, '_, L> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let step = self.batch.step();
        for (k, (row, sums)) in self.rows.chunks_exact_mut(step).zip(self.sums).enumerate() {
            *sums = differentiate_row(self.loss, self.batch, self.first + k, row, self.factor, self.scratch);
        }
    }
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
    values[batch.g..].fill(absent);
    for &j in list.iter() {
        values[j as usize] = absent;
    }
    row.fill(0.0);
    let seen = loss.row(&mut Row {
        positives,
        negatives: values,
        negative_count: batch.g - 1 - positives.len(),
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
    // The pairs that give the query a gradient.
    let own = if loss.sides() == Sides::Gallery { batch.n } else { 0 };
    RowSums { seen, weight: lanes::sum(&row[own..], |w| w), weights: lanes::count(row, |w| w != 0.0) }
}

/// The distances of query `i` to the gallery, from the inner products.
#[inline(always)]
fn distances(batch: &Batch<'_>, i: usize, products: &[f32], to: &mut [f32]) {
    let norm = batch.norms[i];
    let squared = |product: f32, both: f32| both - 2.0 * product;
    for ((to, &product), &other) in to.iter_mut().zip(products).zip(&batch.norms) {
        *to = lanes::larger(squared(product, norm + other), 0.0).sqrt();
    }
    let is_near = |product: f32, both: f32| squared(product, both) <= NEAR * both;
    let (chunks, _) = products.as_chunks::<LANES>();
    let (norms, _) = batch.norms.as_chunks::<LANES>();
    for (chunk, (products, norms)) in chunks.iter().zip(norms).enumerate() {
        let mut near = false;
        for lane in 0..LANES {
            near |= is_near(products[lane], norm + norms[lane]);
        }
        if near {
            for lane in 0..LANES {
                let j = chunk * LANES + lane;
                if j < batch.g && j != i && is_near(products[lane], norm + norms[lane]) {
                    to[j] = exact_distance(batch.vector(i), batch.vector(j));
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
        if measure == Measure::Distance {
            for (own, sums) in own[first..].iter_mut().zip(&sums) {
                *own += f64::from(sums.weight);
            }
        }
        if measure == Measure::Distance && sides != Sides::Query {
            add_column_sums(values, step, own);
        }
        if batch.g > n {
            let weights = Matrix::new(&values[n..], count, batch.g - n, step);
            product::product(&mut gradient[first * d..], d, true, sign, weights, batch.memory_rows());
        }
        if sides == Sides::Both && count == n {
            product::add_transposed(values, step, n);
            let weights = Matrix::new(values, n, n, step);
            product::product(gradient, d, true, sign, weights, batch.rows(0, n));
            return;
        }
        let weights = Matrix::new(values, count, n, step);
        if sides != Sides::Gallery {
            product::product(&mut gradient[first * d..], d, true, sign, weights, batch.rows(0, n));
        }
        if sides != Sides::Query {
            product::product(gradient, d, true, sign, weights.transposed(), batch.rows(first, count));
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
        if sides != Sides::Gallery || batch.g > n {
            gradient[first * d..][..count * d].par_chunks_mut(d).zip(&rows).enumerate().for_each(
                |(k, (to, pairs))| {
                    let of_memory = pairs.partition_point(|&(j, _)| (j as usize) < n);
                    let pairs = if sides == Sides::Gallery { &pairs[of_memory..] } else { pairs };
                    vectorize(AddPairs { to, own: batch.vector(first + k), pairs, batch, measure });
                },
            );
        }
        if sides != Sides::Query {
            let (starts, pairs) = by_column(&rows, first, n);
            gradient.par_chunks_mut(d).enumerate().for_each(|(j, to)| {
                let pairs = &pairs[starts[j]..starts[j + 1]];
                vectorize(AddPairs { to, own: batch.vector(j), pairs, batch, measure });
            });
        }
    }
}

/// Adds pairs' weights times what they multiply to the gradient of `own`.
struct AddPairs<'a, 'b> {
    to: &'a mut [f32],
    own: &'a [f32],
    pairs: &'a [(u32, f32)],
    batch: &'a Batch<'b>,
    measure: Measure,
}

impl Work for AddPairs<'_, '_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for &(other, weight) in self.pairs {
            let other = self.batch.vector(other as usize);
            match self.measure {
                Measure::Distance => {
                    for ((to, own), other) in self.to.iter_mut().zip(self.own).zip(other) {
                        *to += weight * (own - other);
                    }
                }
                Measure::Similarity => lanes::add_scaled(self.to, weight, other),
            }
        }
    }
}

/// The pairs by their gallery sample, those of the memory left out: where each sample's pairs start, and
/// the pairs (query, weight).
fn by_column(rows: &[Vec<(u32, f32)>], first: usize, n: usize) -> (Vec<usize>, Vec<(u32, f32)>) {
    let inside = |&&(j, _): &&(u32, f32)| (j as usize) < n;
    let mut starts = vec![0; n + 1];
    for &(j, _) in rows.iter().flatten().filter(inside) {
        starts[j as usize + 1] += 1;
    }
    for j in 0..n {
        starts[j + 1] += starts[j];
    }
    let mut next = starts.clone();
    let mut pairs = vec![(0, 0.0); starts[n]];
    for (k, row) in rows.iter().enumerate() {
        for &(j, weight) in row.iter().filter(inside) {
            pairs[next[j as usize]] = ((first + k) as u32, weight);
            next[j as usize] += 1;
        }
    }
    (starts, pairs)
}

/// Adds the sum of every column of `values` to `to`.
fn add_column_sums(values: &[f32], step: usize, to: &mut [f64]) {
    to.par_chunks_mut(COLUMNS).enumerate().for_each(|(task, to)| {
        vectorize(ColumnSums { values, step, first: task * COLUMNS, to });
    });
}

const COLUMNS: usize = 4 * LANES;

/// The sums of some columns.
struct ColumnSums<'a> {
    values: &'a [f32],
    step: usize,
    first: usize,
    to: &'a mut [f64],
}

impl Work for ColumnSums<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let mut sums = [0f64; COLUMNS];
        for row in self.values.chunks_exact(self.step) {
            for (sum, &value) in sums.iter_mut().zip(&row[self.first..]) {
                *sum += f64::from(value);
            }
        }
        for (to, sum) in self.to.iter_mut().zip(sums) {
            *to += sum;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{AllTripletsRows, BatchHardRows, ContrastiveRows, IceRows, NraRows, RllRows};
    use super::*;
    use crate::labels::Labels;

    fn rows(n: usize, d: usize) -> Vec<f32> {
        let mut state = 7u32;
        let mut uniform = || {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) as f32 / (1 << 23) as f32 - 1.0
        };
        let mut rows: Vec<f32> = (0..n * d).map(|_| uniform()).collect();
        for row in rows.chunks_mut(d) {
            let norm = row.iter().map(|v| v * v).sum::<f32>().sqrt();
            row.iter_mut().for_each(|v| *v /= norm);
        }
        rows
    }

    /// A batch of `n` and a memory of `m`.
    fn run_in_blocks(loss: &impl RowLoss, n: usize, m: usize, block_rows: usize) -> Outcome {
        let d = 9;
        let labels: Vec<u32> = (0..(n + m) as u32).map(|i| i * 7 % 5).collect();
        let (of_batch, of_memory) = labels.split_at(n);
        let relatives = Relatives::new(Labels::Classes(of_batch), Some(Labels::Classes(of_memory)));
        let rows = rows(n + m, d);
        let (x, memory) = rows.split_at(n * d);
        let batch = Batch::new(x, memory, d, &relatives).expect("the norms are finite");
        run(loss, &batch, true, block_rows * (n + m).next_multiple_of(LANES))
    }

    /// The engine's ways: dense and sparse, one side and both, in one block and in many, with a memory and
    /// without.
    fn with_every_kind_of_loss(check: impl Fn(&(dyn Fn(usize, usize) -> Outcome + Sync))) {
        let rll = RllRows { alpha: 1.2, margin: 0.4, t_pos: 0.0, t_neg: 10.0, parts: (0.5, 0.5), mass: true };
        for m in [0, 1, 37] {
            check(&|n, block| run_in_blocks(&rll, n, m, block));
            check(&|n, block| run_in_blocks(&NraRows { alpha: 4.0, eps: 1e-4 }, n, m, block));
            check(&|n, block| run_in_blocks(&IceRows { scale: 8.0, paper_gradient: true }, n, m, block));
            check(&|n, block| run_in_blocks(&IceRows { scale: 8.0, paper_gradient: false }, n, m, block));
            check(&|n, block| run_in_blocks(&ContrastiveRows { margin: 1.0 }, n, m, block));
            check(&|n, block| run_in_blocks(&BatchHardRows { margin: 0.3, soft: false }, n, m, block));
            check(&|n, block| run_in_blocks(&AllTripletsRows { margin: 0.3 }, n, m, block));
        }
    }

    #[test]
    fn the_size_of_the_blocks_changes_the_rounding_alone() {
        with_every_kind_of_loss(|run| {
            for n in [1, 7, 8, 9, 65, 130] {
                let whole = run(n, n);
                let gradient = whole.gradient.as_ref().unwrap();
                let largest = gradient.iter().fold(0f32, |a, g| a.max(g.abs()));
                for rows in [8, 9, 64, 129] {
                    let other = run(n, rows);
                    assert!(
                        (other.value - whole.value).abs() <= 1e-5 * whole.value.abs(),
                        "{n} in blocks of {rows}"
                    );
                    for (a, b) in other.gradient.unwrap().iter().zip(gradient) {
                        assert!((a - b).abs() <= 1e-5 * largest, "{n} in blocks of {rows}: {a} {b}");
                    }
                }
            }
        });
    }

    #[test]
    fn the_bits_do_not_depend_on_the_number_of_threads() {
        with_every_kind_of_loss(|run| {
            // One block, and blocks that leave a rest.
            for (n, rows) in [(200, 200), (150, 64)] {
                let bits = |threads: usize| {
                    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
                    let outcome = pool.install(|| run(n, rows));
                    let gradient: Vec<u32> = outcome.gradient.unwrap().iter().map(|v| v.to_bits()).collect();
                    (outcome.value.to_bits(), gradient)
                };
                let one = bits(1);
                assert!(bits(2) == one && bits(5) == one, "{n}");
            }
        });
    }

    #[test]
    fn norms_that_overflow_are_refused() {
        let relatives = Relatives::new(Labels::Classes(&[0]), Some(Labels::Classes(&[0])));
        assert!(Batch::new(&[1.0, 0.0], &[1.0, 0.0], 2, &relatives).is_some());
        for value in [1e20, f32::NAN, f32::INFINITY] {
            assert!(Batch::new(&[value, 0.0], &[1.0, 0.0], 2, &relatives).is_none(), "{value}");
            assert!(Batch::new(&[1.0, 0.0], &[value, 0.0], 2, &relatives).is_none(), "{value}");
        }
    }
}
