//! The rows of the queries and of their gallery.

use gallerist_util::simd::{Work, vectorize};
use rayon::prelude::*;

use super::lanes::{self, LANES};
use super::product::Matrix;
use super::real::Real;
use super::relatives::Relatives;

/// Rows whose norms one task computes.
const NORM_ROWS: usize = 1024;

/// The queries and the gallery: the queries themselves and then a memory, or other rows alone.
pub(super) struct Batch<'a, F> {
    pub(super) x: &'a [F],
    /// The rows of the gallery that are no queries.
    pub(super) others: &'a [F],
    /// Queries.
    pub(super) n: usize,
    /// Places at the start of the gallery that are the queries: `n`, or 0 where the gallery is other rows alone, which
    /// then get a gradient of their own.
    pub(super) shared: usize,
    /// Samples of the gallery.
    pub(super) g: usize,
    pub(super) d: usize,
    /// Squared norms of the gallery, padded to whole lanes.
    pub(super) norms: Vec<F>,
    /// Squared norms of the queries; empty where the gallery begins with them.
    query_norms: Vec<F>,
    pub(super) relatives: &'a Relatives,
}

impl<'a, F: Real> Batch<'a, F> {
    /// `x` and `others` are rows of `d` values; nothing if a squared norm is not finite.
    pub(super) fn new(x: &'a [F], others: &'a [F], d: usize, relatives: &'a Relatives) -> Option<Self> {
        let n = x.len() / d;
        assert_eq!(n, relatives.counts().len(), "{n} rows and {} queries", relatives.counts().len());
        let shared = if relatives.are_apart() { 0 } else { n };
        let (mut norms, mut query_norms) = (squared_norms(x, d), Vec::new());
        if shared == 0 {
            query_norms = std::mem::take(&mut norms);
        }
        norms.extend(squared_norms(others, d));
        // Four times a norm bounds every squared distance.
        let fits = |norm: &F| (F::of(4.0) * *norm).wide().is_finite();
        if !norms.iter().all(fits) || !query_norms.iter().all(fits) {
            return None;
        }
        let g = norms.len();
        norms.resize(row_places::<F>(g), F::ZERO);
        Some(Batch { x, others, n, shared, g, d, norms, query_norms, relatives })
    }

    /// Places of a row of values.
    #[inline]
    pub(super) fn step(&self) -> usize {
        self.norms.len()
    }

    /// The place of query `i` in the gallery.
    #[inline]
    pub(super) fn own_place(&self, i: usize) -> Option<usize> {
        (self.shared > 0).then_some(i)
    }

    /// Samples of the gallery besides a query itself.
    #[inline]
    pub(super) fn candidates(&self) -> usize {
        self.g - usize::from(self.shared > 0)
    }

    /// A query.
    #[inline]
    pub(super) fn query(&self, i: usize) -> &'a [F] {
        &self.x[i * self.d..][..self.d]
    }

    /// The squared norm of a query.
    #[inline]
    pub(super) fn query_norm(&self, i: usize) -> F {
        if self.shared > 0 { self.norms[i] } else { self.query_norms[i] }
    }

    /// A sample of the gallery.
    #[inline]
    pub(super) fn vector(&self, j: usize) -> &'a [F] {
        match j.checked_sub(self.shared) {
            Some(j) => &self.others[j * self.d..][..self.d],
            None => &self.x[j * self.d..][..self.d],
        }
    }

    /// Some queries.
    pub(super) fn rows(&self, first: usize, count: usize) -> Matrix<'a, F> {
        Matrix::new(&self.x[first * self.d..], count, self.d, self.d)
    }

    /// The samples of the gallery that are no queries.
    pub(super) fn other_rows(&self) -> Matrix<'a, F> {
        Matrix::new(self.others, self.g - self.shared, self.d, self.d)
    }
}

/// Places of a row of `g` values: whole lanes. Rows that begin a multiple of 1 KiB apart would share few sets of the caches.
fn row_places<F>(g: usize) -> usize {
    let places = g.next_multiple_of(LANES);
    if (places * size_of::<F>()).is_multiple_of(1024) { places + LANES } else { places }
}

fn squared_norms<F: Real>(x: &[F], d: usize) -> Vec<F> {
    if x.len() <= NORM_ROWS * d {
        return vectorize(Norms { x, d });
    }
    x.par_chunks(NORM_ROWS * d).map(|x| vectorize(Norms { x, d })).collect::<Vec<_>>().concat()
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
