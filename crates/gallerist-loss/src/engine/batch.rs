//! The rows of a batch and of the memory.

use gallerist_util::simd::{Work, vectorize};
use rayon::prelude::*;

use super::lanes::{self, LANES};
use super::product::Matrix;
use super::real::Real;
use super::relatives::Relatives;

/// Rows of the memory whose norms one task computes.
const NORM_ROWS: usize = 1024;

/// The batch, whose samples are the queries, and the gallery: the batch and then the memory.
pub(super) struct Batch<'a, F> {
    pub(super) x: &'a [F],
    pub(super) memory: &'a [F],
    /// Queries.
    pub(super) n: usize,
    /// Samples of the gallery.
    pub(super) g: usize,
    pub(super) d: usize,
    /// Squared norms of the gallery, padded to whole lanes.
    pub(super) norms: Vec<F>,
    pub(super) relatives: &'a Relatives,
}

impl<'a, F: Real> Batch<'a, F> {
    /// `x` and `memory` are rows of `d` values; nothing if a squared norm is not finite.
    pub(super) fn new(x: &'a [F], memory: &'a [F], d: usize, relatives: &'a Relatives) -> Option<Self> {
        let (n, m) = (x.len() / d, memory.len() / d);
        assert_eq!(n, relatives.counts().len(), "{n} rows and {} queries", relatives.counts().len());
        let mut norms = vectorize(Norms { x, d });
        let of_memory = memory.par_chunks(NORM_ROWS * d).map(|x| vectorize(Norms { x, d }));
        norms.extend(of_memory.collect::<Vec<_>>().concat());
        // Four times a norm bounds every squared distance.
        if norms.iter().any(|norm| !(F::of(4.0) * *norm).wide().is_finite()) {
            return None;
        }
        let g = n + m;
        norms.resize(g.next_multiple_of(LANES), F::ZERO);
        Some(Batch { x, memory, n, g, d, norms, relatives })
    }

    /// Places of a row of values.
    #[inline]
    pub(super) fn step(&self) -> usize {
        self.norms.len()
    }

    /// A sample of the gallery.
    #[inline]
    pub(super) fn vector(&self, j: usize) -> &'a [F] {
        match j.checked_sub(self.n) {
            Some(j) => &self.memory[j * self.d..][..self.d],
            None => &self.x[j * self.d..][..self.d],
        }
    }

    /// Some queries.
    pub(super) fn rows(&self, first: usize, count: usize) -> Matrix<'a, F> {
        Matrix::new(&self.x[first * self.d..], count, self.d, self.d)
    }

    pub(super) fn memory_rows(&self) -> Matrix<'a, F> {
        Matrix::new(self.memory, self.g - self.n, self.d, self.d)
    }
}

/// Squared norms.
struct Norms<'a, F> {
    x: &'a [F],
    d: usize,
}

impl<F: Real> Work for Norms<'_, F> {
    type Output = Vec<F>;

    #[inline(always)]
    fn run(self) -> Vec<F> {
        let mut norms = Vec::with_capacity(self.x.len() / self.d);
        for row in self.x.chunks_exact(self.d) {
            norms.push(lanes::sum(row, |v| v * v));
        }
        norms
    }
}
