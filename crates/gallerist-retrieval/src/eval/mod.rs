//! Retrieval metrics.
//!
//! Everything follows from the ranks of a query's relevant items. Those are found by counting,
//! for each relevant item, the gallery items that come before it; nothing is sorted and no list is
//! cut off. The order is the search's: distance, then the lower index.
//!
//! The rules:
//! - A query never finds itself: its own row is left out by index, so that an exact duplicate
//!   counts as what it is.
//! - A query without any relevant item is a miss in Recall@K, precision@K and the reciprocal
//!   rank, and is left out of the metrics that divide by the number of relevant items;
//!   [`Evaluation::queries_without_match`] counts such queries.
//! - Items with equal scores stand in the order of their indices. That order says nothing about
//!   the embedding, so [`Evaluation::ties`] counts the queries it decides, and
//!   [`Evaluation::notes`] says so. An embedding that maps everything to one point gets what the
//!   order of the files gives it, which is about chance, and one tie per query.

mod average_precision;
mod cmc;
mod map_at_r;
mod measure;
mod ndcg;
mod precision;
mod r_precision;
mod ranks;
mod recall;
mod reciprocal_rank;
mod report;

use crate::search::Metric;
use crate::{Error, Matrix, MatrixView, Result};

pub use average_precision::{average_precision, average_precision_trapezoid};
pub use cmc::cmc_at_k;
pub use map_at_r::map_at_r;
pub use measure::Measure;
pub use ndcg::ndcg;
pub use precision::precision_at_k;
pub use r_precision::r_precision;
pub use ranks::RelevantRanks;
pub use recall::recall_at_k;
pub use reciprocal_rank::reciprocal_rank;
pub use report::{Evaluation, Metrics};

use ranks::{Problem, Side};

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
        let mut measures: Vec<_> = ks.iter().map(|&k| Measure::Recall(k)).collect();
        measures.extend([Measure::Precision(1), Measure::MapAtR, Measure::RPrecision]);
        Self { metric: Metric::Cosine, measures }
    }
}

/// Measures `embeddings` with every row as a query against all the others.
///
/// `labels` has one entry per row; rows with equal labels are relevant to each other. Time is
/// that of `rows^2 * dimension / 2` multiply-adds (twice that where a class has more than 32 rows);
/// memory that of one packed copy of the embeddings beside them.
///
/// # Errors
/// [`Error::Count`] when there is not one label per row, [`Error::Empty`], [`Error::NonFinite`],
/// [`Error::TooLong`], and [`Error::Option`] for a measure at 0.
pub fn evaluate(embeddings: &Matrix, labels: &[u32], options: &EvalOptions) -> Result<Evaluation> {
    let side = Side { embeddings: embeddings.view(), labels, cameras: None };
    let problem = Problem { queries: side, gallery: side, same: true, junk: None };
    run("every image against the rest", &problem, options)
}

/// Measures queries against a gallery of other images, as In-shop Clothes does.
///
/// Labels are one per row; gallery rows with the query's label are relevant to it
/// ([`labels::encode_both`](crate::labels::encode_both) numbers both alike).
///
/// # Errors
/// As [`evaluate`], and [`Error::Dimensions`].
pub fn evaluate_split(
    queries: &Matrix,
    query_labels: &[u32],
    gallery: &Matrix,
    gallery_labels: &[u32],
    options: &EvalOptions,
) -> Result<Evaluation> {
    let queries = Side { embeddings: queries.view(), labels: query_labels, cameras: None };
    let gallery = Side { embeddings: gallery.view(), labels: gallery_labels, cameras: None };
    run("queries against a gallery", &Problem { queries, gallery, same: false, junk: None }, options)
}

/// Embeddings of a re-identification set: an identity and a camera for each.
#[derive(Clone, Copy, Debug)]
pub struct Sightings<'a> {
    /// One embedding per row.
    pub embeddings: &'a Matrix,
    /// The identity of each row.
    pub identities: &'a [u32],
    /// The camera of each row.
    pub cameras: &'a [u32],
}

/// Measures re-identification as the Market-1501 script does.
///
/// Gallery items that show the query's identity from the query's own camera, and all items whose
/// identity is `junk` (-1 in Market-1501), are skipped: they are neither right nor wrong and take
/// up no rank. Distractors (0000 there) are items like any other that no query looks for.
///
/// # Errors
/// As [`evaluate_split`].
pub fn evaluate_across_cameras(
    queries: Sightings,
    gallery: Sightings,
    junk: Option<u32>,
    options: &EvalOptions,
) -> Result<Evaluation> {
    let side = |sightings: Sightings<'_>| {
        if sightings.cameras.len() != sightings.embeddings.rows() {
            return Err(Error::Count {
                what: "cameras",
                rows: "embeddings",
                wanted: sightings.embeddings.rows(),
                found: sightings.cameras.len(),
            });
        }
        Ok(())
    };
    side(queries)?;
    side(gallery)?;
    let problem = Problem {
        queries: Side {
            embeddings: queries.embeddings.view(),
            labels: queries.identities,
            cameras: Some(queries.cameras),
        },
        gallery: Side {
            embeddings: gallery.embeddings.view(),
            labels: gallery.identities,
            cameras: Some(gallery.cameras),
        },
        same: false,
        junk,
    };
    run("queries against the other cameras' images", &problem, options)
}

fn run(protocol: &str, problem: &Problem, options: &EvalOptions) -> Result<Evaluation> {
    let measures = &options.measures;
    for measure in measures {
        measure.check()?;
    }
    problem.check()?;
    let per_query = ranks::measure_queries(problem, options.metric, measures.len(), |ranks, out| {
        for (measure, out) in measures.iter().zip(out) {
            *out = measure.of(ranks);
        }
    })?;

    let mut metrics = Metrics::default();
    for (at, measure) in measures.iter().enumerate() {
        let (mut sum, mut count) = (0.0, 0usize);
        for (row, query) in per_query.queries.iter().enumerate() {
            if query.has_match || measure.counts_queries_without_match() {
                sum += per_query.values[row * measures.len() + at];
                count += 1;
            }
        }
        // No query to measure: the metric does not exist, and says 0 beside the count.
        metrics.push(measure.to_string(), if count == 0 { 0.0 } else { sum / count as f64 });
    }
    let queries = per_query.queries.len();
    let ties = per_query.queries.iter().filter(|query| query.tied).count();
    let mut notes = Vec::new();
    if ties > 0 {
        notes.push(format!(
            "{ties} of {queries} queries have an irrelevant item exactly as close as a relevant \
             one; the lower index decides, which says nothing about the embedding"
        ));
    }
    let zero_rows = |matrix: MatrixView| {
        let zero = |row: &usize| matrix.row(*row).iter().all(|&value| value == 0.0);
        (0..matrix.rows()).filter(zero).count()
    };
    Ok(Evaluation {
        protocol: protocol.to_owned(),
        metric: options.metric,
        metrics,
        queries,
        gallery: per_query.gallery,
        queries_without_match: per_query.queries.iter().filter(|query| !query.has_match).count(),
        ties,
        zero_rows: zero_rows(problem.gallery.embeddings)
            + if problem.same { 0 } else { zero_rows(problem.queries.embeddings) },
        notes,
    })
}

impl Problem<'_> {
    fn check(&self) -> Result<()> {
        for (rows, side) in [("queries", &self.queries), ("gallery rows", &self.gallery)] {
            let (matrix, labels) = (side.embeddings, side.labels);
            if matrix.rows() == 0 {
                return Err(Error::Empty { what: rows.trim_end_matches(" rows") });
            }
            if matrix.rows() != labels.len() {
                return Err(Error::Count {
                    what: "labels",
                    rows: if self.same { "embeddings" } else { rows },
                    wanted: matrix.rows(),
                    found: labels.len(),
                });
            }
        }
        let (queries, gallery) = (self.queries.embeddings.cols(), self.gallery.embeddings.cols());
        if queries != gallery {
            return Err(Error::Dimensions { queries, gallery });
        }
        Ok(())
    }
}
