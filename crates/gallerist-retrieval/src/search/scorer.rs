//! How rows are checked and scored under each metric.

use std::ops::Range;

use rayon::prelude::*;

use super::metric::Metric;
use crate::error::{Error, Result};
use crate::matrix::{MatrixView, normalize, squared_length};
use crate::product::Panels;

/// The longest squared length whose scores stay finite, sums along the way included.
const MAX_SQUARED_LENGTH: f64 = 1e37;

impl Metric {
    /// Refuses what cannot be scored among `rows`, with the first such row named.
    pub(crate) fn check(self, matrix: MatrixView, rows: Range<usize>, what: &'static str) -> Result<()> {
        let first = rows
            .into_par_iter()
            .with_min_len(256)
            .find_map_first(|row| self.check_row(matrix.row(row), row, what).err());
        first.map_or(Ok(()), Err)
    }

    /// Refuses a row that cannot be scored; `index` names it.
    pub(crate) fn check_row(self, row: &[f32], index: usize, what: &'static str) -> Result<()> {
        let squared_length = squared_length(row);
        // The squares of finite f32 cannot overflow f64.
        if !squared_length.is_finite()
            && let Some(col) = row.iter().position(|value| !value.is_finite())
        {
            return Err(Error::NonFinite { what, row: index, col, value: row[col] });
        }
        if self != Self::Cosine && squared_length > MAX_SQUARED_LENGTH {
            return Err(Error::TooLong { what, row: index, squared_length });
        }
        Ok(())
    }

    /// Refuses a search by another metric than the gallery was made for.
    pub(super) fn check_same(self, asked: Self) -> Result<()> {
        if asked == self {
            return Ok(());
        }
        Err(Error::Option {
            option: "the metric",
            wanted: "the one the gallery was packed for",
            found: "another one".to_owned(),
        })
    }

    /// Brings a row into the form that is multiplied.
    pub(crate) fn prepare(self, row: &mut [f32]) {
        if self == Self::Cosine {
            normalize(row);
        }
    }

    /// What a row adds to all its keys: with -|a|^2 / 2 a key is minus half the squared distance.
    pub(crate) fn bias(self, row: &[f32]) -> f32 {
        match self {
            Self::InnerProduct | Self::Cosine => 0.0,
            Self::Euclidean => (-0.5 * squared_length(row)) as f32,
        }
    }

    /// The number a user reads: a similarity or a distance.
    pub(crate) fn present(self, score: f32) -> f32 {
        match self {
            Self::InnerProduct | Self::Cosine => score,
            // 0 - score and not -score: no distance is -0.
            Self::Euclidean => 0.0 - score,
        }
    }
}

/// Turns the keys of [`product`](crate::product) into scores: larger is better.
pub(crate) struct Scorer<'a> {
    pub(crate) metric: Metric,
    pub(crate) queries: &'a Panels,
    pub(crate) gallery: &'a Panels,
    /// The lowest bias of the gallery: that of its longest row.
    lowest_bias: f32,
}

impl<'a> Scorer<'a> {
    pub(crate) fn new(metric: Metric, queries: &'a Panels, gallery: &'a Panels) -> Self {
        let biases = (0..gallery.rows()).map(|row| gallery.row_bias(row));
        Self { metric, queries, gallery, lowest_bias: biases.fold(0.0, f32::min) }
    }

    /// The score of a pair: the key, or minus the distance.
    #[inline]
    pub(crate) fn score(&self, key: f32, query: usize, item: usize) -> f32 {
        match self.metric {
            Metric::InnerProduct | Metric::Cosine => key,
            Metric::Euclidean => {
                let biases = self.queries.row_bias(query) + self.gallery.row_bias(item);
                // Both sides of the rule in DIRECT_BELOW divided by -2. Biases of rows so short that
                // their squares underflow f32 say nothing.
                if key > biases * DIRECT_BELOW || biases > -1e-30 {
                    let (a, b) = (self.queries.row(query), self.gallery.row(item));
                    let squared: f64 = a.zip(b).map(|(a, b)| (f64::from(a) - f64::from(b)).powi(2)).sum();
                    -(squared.sqrt() as f32)
                } else {
                    -(-2.0 * key).sqrt()
                }
            }
        }
    }

    /// A key: every pair of `query` with a score of at least `floor` has at least this key.
    pub(crate) fn key_floor(&self, query: usize, floor: f32) -> f32 {
        match self.metric {
            Metric::InnerProduct | Metric::Cosine => floor,
            Metric::Euclidean => {
                let half_square = 0.5 * floor * floor * (1.0 + 8.0 * f32::EPSILON);
                (-half_square - self.key_error(query, half_square)).max(f32::MIN)
            }
        }
    }

    /// A key: every pair of `query` with at least this key has a score above `score`.
    pub(crate) fn key_ceiling(&self, query: usize, score: f32) -> f32 {
        match self.metric {
            Metric::InnerProduct | Metric::Cosine => (score + 0.0).next_up(),
            Metric::Euclidean => {
                let half_square = 0.5 * score * score * (1.0 - 8.0 * f32::EPSILON);
                self.key_error(query, half_square) - half_square
            }
        }
    }

    /// The largest difference between a key near minus `half_square` and the key that has the order of the scores.
    ///
    /// It is 0 where scores are computed from keys. Where scores are computed from differences,
    /// it is the error of a key: the bound given in [`product`](crate::product), for rows no
    /// longer than the biases allow. Pairs computed from differences are closer than
    /// [`DIRECT_BELOW`] allows; if `half_square` is larger than that limit, they are on the same side
    /// of it by key and by score.
    fn key_error(&self, query: usize, half_square: f32) -> f32 {
        let lengths = self.queries.row_bias(query).abs() + self.lowest_bias.abs();
        // Some more units for the rounding of the biases and of this bound. Below the normal
        // numbers a rounding is absolute. 2^-24 is half of EPSILON.
        let depth = self.gallery.depth() as f32;
        let error = (depth + 8.0) * (f32::EPSILON * lengths + f32::MIN_POSITIVE);
        if lengths > 1e-30 && half_square > 1.01 * (lengths * DIRECT_BELOW + error) { 0.0 } else { error }
    }
}

/// Below this share of `|a|^2 + |b|^2` a squared distance is summed from the differences.
const DIRECT_BELOW: f32 = 1.0 / 16.0;
