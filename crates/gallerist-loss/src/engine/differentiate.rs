//! From inner products to the derivatives of the loss, list by list.

use std::sync::{Mutex, PoisonError};

use gallerist_util::simd::Work;
use rayon::prelude::*;

use super::batch::Batch;
use super::lanes::{self, LANES};
use super::list::{Counts, Form, List, ListFunction, ListValue, Measure, Sides};
use super::real::Real;
use crate::miner::{Candidates, Choice, Miner, checked};
use crate::ranking::Progress;

/// Lists that one task differentiates.
const TASK_ROWS: usize = 8;

/// A pair's distance is computed from its differences where its square is at most this part of
/// `|a|^2 + |b|^2`; as in [`gallerist_tensor::pairwise`].
const NEAR: f64 = 1e-2;

/// What the lists of a batch are differentiated with.
pub(super) struct Job<'a, 'b, F> {
    pub(super) loss: &'a dyn ListFunction<F>,
    pub(super) form: Form,
    pub(super) batch: &'a Batch<'b, F>,
    /// The miner that chooses the pairs; `None`: all pairs.
    pub(super) miner: Option<&'a dyn Miner>,
    /// The first query with a choice of the miner that is not among its candidates, and what is wrong with it.
    pub(super) problem: Mutex<Option<(usize, String)>>,
    pub(super) progress: Progress,
    /// Numbers of all pairs.
    pub(super) counts: Counts,
    /// Factor on the derivatives; `None`: no gradient is wanted.
    pub(super) factor: Option<F>,
}

/// The results of a list besides its derivatives.
#[derive(Clone, Copy, Default)]
pub(super) struct RowSums<F> {
    pub(super) seen: ListValue,
    /// Sum of the weights of the pairs that give the query a gradient.
    pub(super) weight: F,
    /// Number of weights other than 0.
    pub(super) weights: u32,
    /// Pairs that the miner kept: positives, negatives, and negatives with their repetitions.
    pub(super) kept: [u32; 3],
}

/// Memory of a thread.
struct Scratch<F> {
    values: Vec<F>,
    list: Vec<u32>,
    positives: Vec<F>,
    by_positives: Vec<F>,
    distances: Vec<F>,
    repeats: Vec<F>,
    partners: Vec<u32>,
    mined: Mined,
}

impl<F> Default for Scratch<F> {
    fn default() -> Self {
        Scratch {
            values: Vec::new(),
            list: Vec::new(),
            positives: Vec::new(),
            by_positives: Vec::new(),
            distances: Vec::new(),
            repeats: Vec::new(),
            partners: Vec::new(),
            mined: Mined::default(),
        }
    }
}

/// A miner's input.
#[derive(Default)]
struct Mined {
    values: Vec<f64>,
    positives: Vec<usize>,
    negatives: Vec<usize>,
}

/// Turns the inner products in `block` into weights, row by row.
///
/// A weight is the derivative of the batch's value by a similarity. For distances it is the derivative divided by the
/// distance, the factor of the difference of the two embeddings.
pub(super) fn differentiate<F: Real>(job: &Job<'_, '_, F>, first: usize, block: &mut [F]) -> Vec<RowSums<F>> {
    let step = job.batch.step();
    let mut sums = vec![RowSums::default(); block.len() / step];
    block.par_chunks_mut(TASK_ROWS * step).zip(sums.par_chunks_mut(TASK_ROWS)).enumerate().for_each_init(
        Scratch::default,
        |scratch, (task, (rows, sums))| {
            F::run(Rows { job, first: first + task * TASK_ROWS, rows, sums, scratch });
        },
    );
    sums
}

/// The rows of one task.
struct Rows<'a, 'b, 'c, F> {
    job: &'a Job<'b, 'c, F>,
    first: usize,
    rows: &'a mut [F],
    sums: &'a mut [RowSums<F>],
    scratch: &'a mut Scratch<F>,
}

impl<F: Real> Work for Rows<'_, '_, '_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let step = self.job.batch.step();
        for (k, (row, sums)) in self.rows.chunks_exact_mut(step).zip(self.sums).enumerate() {
            *sums = differentiate_row(self.job, self.first + k, row, self.scratch);
        }
    }
}

#[inline(always)]
fn differentiate_row<F: Real>(
    job: &Job<'_, '_, F>,
    i: usize,
    row: &mut [F],
    scratch: &mut Scratch<F>,
) -> RowSums<F> {
    let Job { loss, form, batch, .. } = *job;
    scratch.values.resize(row.len(), F::ZERO);
    match form.measure {
        Measure::Distance => distances(batch, i, row, &mut scratch.values),
        Measure::Similarity => scratch.values.copy_from_slice(row),
    }
    batch.relatives.positives(i, &mut scratch.list);
    let choice = job.miner.map(|miner| choose(job, miner, i, row, scratch));
    let Scratch { values, list, positives, by_positives, distances: exact, repeats, partners, .. } = scratch;
    let absent = form.measure.absent_negative();
    let mut kept = [0; 3];
    let mut has_partners = false;
    positives.clear();
    match choice {
        None => {
            for &j in list.iter() {
                positives.push(std::mem::replace(&mut values[j as usize], absent));
            }
            if let Some(own) = batch.own_place(i) {
                values[own] = absent;
            }
            for value in &mut values[batch.g..] {
                *value = absent;
            }
            kept[1] = (batch.candidates() - list.len()) as u32;
        }
        Some(choice) => {
            has_partners = matches!(choice, Choice::Triplets(_));
            repeats.clear();
            repeats.resize(row.len(), F::ZERO);
            list.clear();
            partners.clear();
            match choice {
                Choice::Product { positives, negatives } => {
                    list.extend(positives.iter().map(|&p| p as u32));
                    negatives.iter().for_each(|&n| repeats[n] = F::ONE);
                }
                Choice::Triplets(triplets) => {
                    for (p, n) in triplets {
                        list.push(p as u32);
                        partners.push(n as u32);
                        repeats[n] += F::ONE;
                    }
                }
            }
            positives.extend(list.iter().map(|&j| values[j as usize]));
            for (value, &repeats) in values.iter_mut().zip(repeats.iter()) {
                if repeats > F::ZERO {
                    kept[1] += 1;
                    kept[2] += repeats.wide() as u32;
                } else {
                    *value = absent;
                }
            }
        }
    }
    kept[0] = positives.len() as u32;
    by_positives.clear();
    by_positives.resize(positives.len(), F::ZERO);
    if form.positive_distances {
        exact.clear();
        for at in 0..list.len() {
            exact.push(exact_distance(batch.query(i), batch.vector(list[at] as usize)));
        }
    }
    row.fill(F::ZERO);
    let seen = loss.list(&mut List {
        positives,
        negatives: values,
        negative_count: kept[1] as usize,
        own: if form.measure == Measure::Distance { F::ZERO } else { batch.query_norm(i) },
        distances: exact,
        counts: &job.counts,
        repeats: job.miner.map(|_| &repeats[..]),
        partners: has_partners.then_some(&partners[..]),
        by_positives,
        by_negatives: row,
        progress: job.progress,
    });
    let Some(factor) = job.factor else {
        return RowSums { seen, kept, ..RowSums::default() };
    };
    // 0 at distance 0: the direction is undefined there.
    let over = |derivative: F, distance: F| {
        if distance > F::ZERO { factor * derivative / distance } else { F::ZERO }
    };
    if form.measure == Measure::Distance {
        lanes::update(row, values, over);
        for at in 0..list.len() {
            row[list[at] as usize] = over(by_positives[at], positives[at]);
        }
    } else {
        lanes::scale(row, factor);
        for at in 0..list.len() {
            row[list[at] as usize] = factor * by_positives[at];
        }
    }
    // The pairs that give the query a gradient: all, or those with the memory.
    let first = match form.sides {
        Sides::Gallery if batch.shared == 0 => row.len(),
        Sides::Gallery => batch.shared,
        Sides::Query | Sides::Both => 0,
    };
    let weight = lanes::sum(&row[first..], |w| w);
    RowSums { seen, weight, weights: lanes::count(row, |w| w != F::ZERO), kept }
}

/// The miner's choice for query `i`, whose inner products are in `products`.
fn choose<F: Real>(
    job: &Job<'_, '_, F>,
    miner: &dyn Miner,
    i: usize,
    products: &[F],
    scratch: &mut Scratch<F>,
) -> Choice {
    let Scratch { values, list, mined, repeats, .. } = scratch;
    let g = job.batch.g;
    let read = match (miner.reads_similarities(), job.form.measure) {
        (true, _) => products,
        (false, Measure::Distance) => values,
        (false, Measure::Similarity) => {
            repeats.resize(products.len(), F::ZERO);
            distances(job.batch, i, products, repeats);
            repeats
        }
    };
    mined.values.clear();
    mined.values.extend(read[..g].iter().map(|value| value.wide()));
    mined.positives.clear();
    mined.positives.extend(list.iter().map(|&j| j as usize));
    mined.negatives.clear();
    let own = job.batch.own_place(i);
    mined.negatives.extend((0..g).filter(|&j| Some(j) != own && list.binary_search(&(j as u32)).is_err()));
    let candidates = Candidates {
        query: i,
        values: &mined.values,
        positives: &mined.positives,
        negatives: &mined.negatives,
        dimensions: job.batch.d,
        step: job.progress.step,
    };
    let (choice, problem) = checked(miner, &candidates);
    if let Some(problem) = problem {
        let mut first = job.problem.lock().unwrap_or_else(PoisonError::into_inner);
        if first.as_ref().is_none_or(|(query, _)| i < *query) {
            *first = Some((i, problem));
        }
    }
    choice
}

/// The distances of query `i` to the gallery, from the inner products.
#[inline(always)]
fn distances<F: Real>(batch: &Batch<'_, F>, i: usize, products: &[F], to: &mut [F]) {
    let (norm, own) = (batch.query_norm(i), batch.own_place(i));
    let (two, nearby) = (F::of(2.0), F::of(NEAR));
    let squared = |product: F, both: F| both - two * product;
    assert!(to.len() == products.len() && to.len() == batch.norms.len(), "rows of different lengths");
    for j in 0..to.len() {
        to[j] = lanes::larger(squared(products[j], norm + batch.norms[j]), F::ZERO).sqrt();
    }
    let is_near = |product: F, both: F| squared(product, both) <= nearby * both;
    let (chunks, _) = products.as_chunks::<LANES>();
    let (norms, _) = batch.norms.as_chunks::<LANES>();
    for chunk in 0..chunks.len() {
        let (products, norms) = (&chunks[chunk], &norms[chunk]);
        let mut near = false;
        for lane in 0..LANES {
            near |= is_near(products[lane], norm + norms[lane]);
        }
        if near {
            for lane in 0..LANES {
                let j = chunk * LANES + lane;
                if j < batch.g && Some(j) != own && is_near(products[lane], norm + norms[lane]) {
                    to[j] = exact_distance(batch.query(i), batch.vector(j));
                }
            }
        }
    }
}

#[inline(always)]
fn exact_distance<F: Real>(a: &[F], b: &[F]) -> F {
    const WIDE: usize = LANES / 2;
    let mut sums = [0f64; WIDE];
    let add = |sum: &mut f64, a: F, b: F| {
        let difference = a.wide() - b.wide();
        *sum += difference * difference;
    };
    let ((a, a_rest), (b, b_rest)) = (a.as_chunks::<WIDE>(), b.as_chunks::<WIDE>());
    for i in 0..a.len() {
        for lane in 0..WIDE {
            add(&mut sums[lane], a[i][lane], b[i][lane]);
        }
    }
    for lane in 0..a_rest.len() {
        add(&mut sums[lane], a_rest[lane], b_rest[lane]);
    }
    F::of(lanes::total(sums).sqrt())
}
