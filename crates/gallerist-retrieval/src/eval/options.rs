//! What to measure, and how rows are compared.

use super::map_at_r::MapAtR;
use super::measure::Measure;
use super::precision::Precision;
use super::r_precision::RPrecision;
use super::recall::Recall;
use super::relevant_ranks::RelevantRanks;
use crate::search::Metric;

/// What to measure, and how rows are compared.
#[derive(Clone, Debug, PartialEq)]
pub struct EvalOptions {
    /// How rows are compared; the cosine by default.
    pub metric: Metric,
    /// What is measured, in this order. The default is Recall@1, 2, 4, 8, precision@1, MAP@R and
    /// R-precision.
    pub measures: Vec<Measure>,
}

impl Default for EvalOptions {
    fn default() -> Self {
        Self::recall_at(&[1, 2, 4, 8])
    }
}

impl EvalOptions {
    /// Recall at each of `ks`, precision@1, MAP@R and R-precision, rows compared by the cosine.
    pub fn recall_at(ks: &[usize]) -> Self {
        let mut measures: Vec<_> = ks.iter().map(|&k| Measure::at(&Recall, k)).collect();
        measures.extend([Measure::at(&Precision, 1), Measure::of_all(&MapAtR), Measure::of_all(&RPrecision)]);
        Self { metric: Metric::Cosine, measures }
    }

    pub(super) fn fill(&self, ranks: &RelevantRanks, out: &mut [f64]) {
        for (measure, out) in self.measures.iter().zip(out) {
            *out = measure.of(ranks);
        }
    }
}
