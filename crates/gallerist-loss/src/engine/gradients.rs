//! From the derivatives by pairs to the gradients by embeddings.

use bytemuck::{Pod, Zeroable};
use gallerist_util::simd::{Work, vectorize};
use rayon::prelude::*;

use super::batch::Batch;
use super::differentiate::RowSums;
use super::lanes::{self, LANES};
use super::list::{Measure, Sides};
use super::product::{self, Matrix};
use super::real::Real;

/// The weights of a block of query rows.
pub(super) struct Weights<'a, F> {
    pub(super) measure: Measure,
    pub(super) sides: Sides,
    /// The first query.
    pub(super) first: usize,
    /// Number of queries.
    pub(super) count: usize,
    pub(super) step: usize,
    pub(super) values: &'a mut [F],
    pub(super) sums: Vec<RowSums<F>>,
}

/// The gradient of some rows.
pub(super) struct Gradient<'a, F> {
    /// Row by row.
    pub(super) rows: &'a mut [F],
    /// Per row the sum of the weights that multiply the row itself, to be added at the end.
    pub(super) own: Vec<f64>,
}

impl<'a, F: Real> Gradient<'a, F> {
    /// A gradient of 0, to be accumulated in `rows`.
    pub(super) fn new(rows: &'a mut [F], d: usize) -> Self {
        rows.par_chunks_mut(ZEROS).for_each(|values| values.fill(F::ZERO));
        let own = vec![0.0; rows.len() / d];
        Gradient { rows, own }
    }
}

/// Values that one task sets to 0.
const ZEROS: usize = 1 << 16;

/// The gradients that are wanted.
pub(super) struct Gradients<'a, F> {
    /// Of the queries.
    pub(super) queries: Option<Gradient<'a, F>>,
    /// Of a gallery of other rows.
    pub(super) gallery: Option<Gradient<'a, F>>,
}

impl<F: Real> Weights<'_, F> {
    /// Adds the gradients by matrix products.
    pub(super) fn add_dense(self, batch: &Batch<'_, F>, to: &mut Gradients<'_, F>) {
        if batch.shared == 0 {
            return self.add_dense_apart(batch, to);
        }
        let Weights { measure, sides, first, count, step, values, sums } = self;
        let Some(Gradient { rows: gradient, own }) = &mut to.queries else { return };
        let (n, d) = (batch.n, batch.d);
        let sign = sign(measure);
        if measure == Measure::Distance {
            for (own, sums) in own[first..].iter_mut().zip(&sums) {
                *own += sums.weight.wide();
            }
        }
        if measure == Measure::Distance && sides != Sides::Query {
            add_column_sums(values, step, own);
        }
        if batch.g > n {
            let weights = Matrix::new(&values[n..], count, batch.g - n, step);
            product::product(&mut gradient[first * d..], d, true, sign, weights, batch.other_rows());
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

    /// [`Weights::add_dense`] where the gallery is other rows.
    fn add_dense_apart(self, batch: &Batch<'_, F>, to: &mut Gradients<'_, F>) {
        let Weights { measure, sides, first, count, step, values, sums } = self;
        let (g, d, sign) = (batch.g, batch.d, sign(measure));
        let weights = Matrix::new(values, count, g, step);
        if let Some(to) = to.queries.as_mut().filter(|_| sides != Sides::Gallery) {
            if measure == Measure::Distance {
                for (own, sums) in to.own[first..].iter_mut().zip(&sums) {
                    *own += sums.weight.wide();
                }
            }
            product::product(&mut to.rows[first * d..], d, true, sign, weights, batch.other_rows());
        }
        if let Some(to) = to.gallery.as_mut().filter(|_| sides != Sides::Query) {
            if measure == Measure::Distance {
                add_column_sums(values, step, &mut to.own);
            }
            product::product(to.rows, d, true, sign, weights.transposed(), batch.rows(first, count));
        }
    }

    /// Adds the gradients pair by pair.
    pub(super) fn add_sparse(self, batch: &Batch<'_, F>, to: &mut Gradients<'_, F>) {
        let Weights { measure, sides, first, count, step, values, .. } = self;
        let (shared, d) = (batch.shared, batch.d);
        let rows: Vec<Vec<(u32, F)>> = values
            .par_chunks(step)
            .map(|row| {
                let mut pairs = Vec::new();
                for (chunk, weights) in row.as_chunks::<LANES>().0.iter().enumerate() {
                    if weights.iter().any(|&weight| weight != F::ZERO) {
                        let at = |lane: usize| (chunk * LANES + lane) as u32;
                        pairs.extend(
                            (0..LANES).filter(|&l| weights[l] != F::ZERO).map(|l| (at(l), weights[l])),
                        );
                    }
                }
                pairs
            })
            .collect();
        let others = batch.g > shared && (shared > 0 || sides != Sides::Gallery);
        if let Some(queries) = to.queries.as_mut().filter(|_| sides != Sides::Gallery || others) {
            queries.rows[first * d..][..count * d].par_chunks_mut(d).zip(&rows).enumerate().for_each(
                |(k, (to, pairs))| {
                    let of_others = pairs.partition_point(|&(j, _)| (j as usize) < shared);
                    let pairs = if sides == Sides::Gallery { &pairs[of_others..] } else { pairs };
                    let own = batch.query(first + k);
                    vectorize(AddPairs { to, own, pairs, of: |j| batch.vector(j), measure });
                },
            );
        }
        // The samples of the gallery that learn, and their gradient.
        let (learning, gallery) = match shared {
            0 => (batch.g, to.gallery.as_mut()),
            _ => (shared, to.queries.as_mut()),
        };
        if let Some(gallery) = gallery.filter(|_| sides != Sides::Query) {
            let (starts, pairs) = by_column(&rows, first, learning);
            gallery.rows.par_chunks_mut(d).enumerate().for_each(|(j, to)| {
                let pairs = &pairs[starts[j]..starts[j + 1]];
                let own = batch.vector(j);
                vectorize(AddPairs { to, own, pairs, of: |i| batch.query(i), measure });
            });
        }
    }
}

fn sign<F: Real>(measure: Measure) -> F {
    if measure == Measure::Distance { -F::ONE } else { F::ONE }
}

/// Adds pairs' weights times what they multiply to the gradient of `own`.
struct AddPairs<'a, F, O> {
    to: &'a mut [F],
    own: &'a [F],
    pairs: &'a [(u32, F)],
    /// The other row of a pair.
    of: O,
    measure: Measure,
}

impl<'a, F: Real, O: Fn(usize) -> &'a [F]> Work for AddPairs<'a, F, O> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for &(other, weight) in self.pairs {
            let other = (self.of)(other as usize);
            match self.measure {
                Measure::Distance => {
                    assert!(self.own.len() == other.len() && self.to.len() == other.len());
                    for k in 0..other.len() {
                        self.to[k] += weight * (self.own[k] - other[k]);
                    }
                }
                Measure::Similarity => lanes::add_scaled(self.to, weight, other),
            }
        }
    }
}

/// The pairs by their gallery sample, of the first `n` samples: where each sample's pairs start, and
/// the pairs (query, weight).
fn by_column<F: Real>(rows: &[Vec<(u32, F)>], first: usize, n: usize) -> (Vec<usize>, Vec<(u32, F)>) {
    let inside = |&&(j, _): &&(u32, F)| (j as usize) < n;
    let mut starts = vec![0; n + 1];
    for &(j, _) in rows.iter().flatten().filter(inside) {
        starts[j as usize + 1] += 1;
    }
    for j in 0..n {
        starts[j + 1] += starts[j];
    }
    let mut next = starts.clone();
    let mut pairs = vec![(0, F::ZERO); starts[n]];
    for (k, row) in rows.iter().enumerate() {
        for &(j, weight) in row.iter().filter(inside) {
            pairs[next[j as usize]] = ((first + k) as u32, weight);
            next[j as usize] += 1;
        }
    }
    (starts, pairs)
}

/// Adds the sum of every column of `values` to `to`.
fn add_column_sums<F: Real>(values: &[F], step: usize, to: &mut [f64]) {
    to.par_chunks_mut(COLUMNS).enumerate().for_each(|(task, to)| {
        vectorize(ColumnSums { values, step, first: task * COLUMNS, to });
    });
}

/// Adds to each sample of the gallery its parts of the losses of a block's lists, and in how many of them it is a
/// positive and a negative that has a derivative.
pub(super) fn add_parts<F: Real>(values: &[F], step: usize, sums: &[RowSums<F>], to: &mut [Part]) {
    to.par_chunks_mut(COLUMNS).enumerate().for_each(|(task, to)| {
        vectorize(Parts { values, step, sums, first: task * COLUMNS, to });
    });
}

/// The part of a sample of the gallery in the losses of the lists.
#[repr(C)]
#[derive(Clone, Copy, Default, Pod, Zeroable)]
pub(super) struct Part {
    pub(super) loss: f64,
    pub(super) mined_positives: u32,
    pub(super) mined_negatives: u32,
}

/// The parts of some columns.
struct Parts<'a, F> {
    values: &'a [F],
    step: usize,
    sums: &'a [RowSums<F>],
    first: usize,
    to: &'a mut [Part],
}

impl<F: Real> Work for Parts<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let (mut loss, mut below, mut above) = ([0f64; COLUMNS], [0u32; COLUMNS], [0u32; COLUMNS]);
        let columns = COLUMNS.min(self.step - self.first);
        for (row, sums) in self.values.chunks_exact(self.step).zip(self.sums) {
            let row = &row[self.first..][..columns];
            let [of_positives, of_negatives] = sums.seen.loss_per_derivative;
            for k in 0..columns {
                let weight = row[k];
                let per = if weight < F::ZERO { of_positives } else { of_negatives };
                loss[k] += weight.wide() * per;
                below[k] = below[k].wrapping_add(u32::from(weight < F::ZERO));
                above[k] = above[k].wrapping_add(u32::from(weight > F::ZERO));
            }
        }
        for k in 0..self.to.len() {
            self.to[k].loss += loss[k];
            self.to[k].mined_positives += below[k];
            self.to[k].mined_negatives += above[k];
        }
    }
}

const COLUMNS: usize = 4 * LANES;

/// The sums of some columns.
struct ColumnSums<'a, F> {
    values: &'a [F],
    step: usize,
    first: usize,
    to: &'a mut [f64],
}

impl<F: Real> Work for ColumnSums<'_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let mut sums = [0f64; COLUMNS];
        let columns = COLUMNS.min(self.step - self.first);
        for row in self.values.chunks_exact(self.step) {
            let row = &row[self.first..][..columns];
            for k in 0..columns {
                sums[k] += row[k].wide();
            }
        }
        for k in 0..self.to.len() {
            self.to[k] += sums[k];
        }
    }
}
