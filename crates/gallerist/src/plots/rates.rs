//! Curves over ranks: CMC, precision against recall.

use std::borrow::Borrow;

use gallerist_report::figure::{self, Cmc, Figure, PrecisionRecall};
use gallerist_retrieval::eval::{self, Evaluation, Measure};
use gallerist_train::Result;

use super::source::Source;
use super::text::joined;

/// Steps of the recall axis, in percent.
const STEP: usize = 2;

/// CMC curves: the fraction of queries with a relevant row among the first 1 to `ranks`, for each source.
///
/// # Errors
///
/// When there are no labels, too few rows, or no ranks.
pub fn cmc<S: Borrow<Source>>(sources: &[S], ranks: usize) -> Result<Figure> {
    let measures: Vec<Measure> = (1..=ranks).map(|k| Measure::at(&eval::Cmc, k)).collect();
    let mut notes = Vec::new();
    let mut runs = Vec::new();
    for source in sources {
        let source: &Source = source.borrow();
        let evaluation = source.measure("a CMC curve", measures.clone())?.evaluation;
        notes.push(queries(source, &evaluation));
        runs.push(Cmc {
            name: source.name.clone(),
            shares: evaluation.metrics.iter().map(|(_, v)| v).collect(),
        });
    }
    let title = "Share of queries with a match by each rank (CMC), %";
    Ok(figure::cmc(title, &joined(&notes), &runs))
}

/// Precision-recall curves: interpolated precision at each recall, averaged over the queries, for each source.
///
/// # Errors
///
/// When there are no labels, or too few rows.
pub fn pr<S: Borrow<Source>>(sources: &[S]) -> Result<Figure> {
    let levels: Vec<usize> = (STEP..=100).step_by(STEP).collect();
    let measures: Vec<Measure> =
        levels.iter().copied().map(|percent| Measure::at(&eval::PrecisionAtRecall, percent)).collect();
    let mut notes = Vec::new();
    let mut runs = Vec::new();
    for source in sources {
        let source: &Source = source.borrow();
        let evaluation = source.measure("a precision-recall curve", measures.clone())?.evaluation;
        notes.push(queries(source, &evaluation));
        let precisions = evaluation.metrics.iter().map(|(_, value)| value);
        let points = levels.iter().map(|&percent| percent as f64 / 100.0).zip(precisions).collect();
        runs.push(PrecisionRecall { name: source.name.clone(), points });
    }
    let note = format!("The mean of each query's interpolated precision. {}", joined(&notes));
    Ok(figure::pr("Precision against recall, %", &note, &runs))
}

/// Name of a source with a description of its queries and gallery.
fn queries(source: &Source, evaluation: &Evaluation) -> (String, String) {
    let left_out = match evaluation.queries_without_match {
        0 => String::new(),
        n => format!(" {n} queries without a match are left out."),
    };
    (source.name.clone(), format!("{}{left_out}", source.described(evaluation)))
}
