//! What was measured of each query.

use super::measure::Measure;
use crate::{Error, Result};

/// The value of each measure for each query, in the order of the queries.
#[derive(Clone, Debug, PartialEq)]
pub struct QueryValues {
    pub(super) measures: Vec<Measure>,
    /// One value per measure and query, query after query.
    pub(super) values: Vec<f64>,
    pub(super) has_match: Vec<bool>,
}

impl QueryValues {
    /// Number of queries.
    pub fn len(&self) -> usize {
        self.has_match.len()
    }

    /// True when there were no queries.
    pub fn is_empty(&self) -> bool {
        self.has_match.is_empty()
    }

    /// What was measured.
    pub fn measures(&self) -> &[Measure] {
        &self.measures
    }

    /// The values of `query`, in the order of [`measures`](Self::measures); 0 where nothing is
    /// relevant to it.
    ///
    /// # Panics
    /// When there is no such query.
    pub fn of(&self, query: usize) -> &[f64] {
        &self.values[query * self.measures.len()..][..self.measures.len()]
    }

    /// Whether `query` has a relevant item.
    ///
    /// # Panics
    /// When there is no such query.
    pub fn has_match(&self, query: usize) -> bool {
        self.has_match[query]
    }

    /// Refuses a value that is NaN or infinite, and counts.
    pub(super) fn check_finite(&self) -> Result<()> {
        let counted = |query: usize| (0..self.measures.len()).map(move |at| (query, at));
        for (query, at) in (0..self.len()).flat_map(counted) {
            if let Some(value) = self.counted(query, at) {
                check_value(&self.measures[at], query, value)?;
            }
        }
        Ok(())
    }

    /// The value that `query` adds to the mean of measure `at`; `None` where the measure leaves it out.
    pub(super) fn counted(&self, query: usize, at: usize) -> Option<f64> {
        let counts = self.has_match[query] || self.measures[at].counts_queries_without_match();
        counts.then(|| self.of(query)[at])
    }

    /// The mean of measure `at` over the queries that count; 0 where there are none.
    pub(super) fn mean(&self, at: usize) -> f64 {
        let (sum, count) = (0..self.len())
            .filter_map(|query| self.counted(query, at))
            .fold((0.0, 0usize), |(sum, count), value| (sum + value, count + 1));
        if count == 0 { 0.0 } else { sum / count as f64 }
    }
}

/// Refuses a value of `measure` that is NaN or infinite.
pub(super) fn check_value(measure: &Measure, query: usize, value: f64) -> Result<()> {
    match value.is_finite() {
        true => Ok(()),
        false => Err(Error::NonFiniteMetric { name: measure.to_string(), query, value }),
    }
}
