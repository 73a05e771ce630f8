//! From the derivatives by pairs to the gradients by embeddings.

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

impl<F: Real> Weights<'_, F> {
    /// Adds the gradients by two matrix products; what multiplies a sample itself is left to the
    /// end, in `own`.
    pub(super) fn add_dense(self, batch: &Batch<'_, F>, gradient: &mut [F], own: &mut [f64]) {
        let Weights { measure, sides, first, count, step, values, sums } = self;
        let (n, d) = (batch.n, batch.d);
        let sign = if measure == Measure::Distance { -F::ONE } else { F::ONE };
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
    pub(super) fn add_sparse(self, batch: &Batch<'_, F>, gradient: &mut [F]) {
        let Weights { measure, sides, first, count, step, values, .. } = self;
        let (n, d) = (batch.n, batch.d);
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
struct AddPairs<'a, 'b, F> {
    to: &'a mut [F],
    own: &'a [F],
    pairs: &'a [(u32, F)],
    batch: &'a Batch<'b, F>,
    measure: Measure,
}

impl<F: Real> Work for AddPairs<'_, '_, F> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        for &(other, weight) in self.pairs {
            let other = self.batch.vector(other as usize);
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

/// The pairs by their gallery sample, those of the memory left out: where each sample's pairs start, and
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
