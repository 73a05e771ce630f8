//! Retrieval metrics.
//!
//! [`evaluate`] and [`evaluate_split`] cover the usual cases; a [`Task`] adds cameras,
//! label sets, re-ranking and the value of each query, of which [`Bootstrap`] makes intervals. Other
//! evaluations are [`verify`] (pairs), [`calibrate`] (the threshold of a match), [`open_set`] (searches for unknown classes), [`few_shot`] and [`one_shot`] (episodes). A [`Protocol`] has the rules of a
//! benchmark, and a [`Plan`] runs everything; a [`ShardedEvaluation`] joins the counts of a gallery that is stored in shards.
//!
//! Everything follows from the ranks of a query's relevant items. Those are found by counting,
//! for each relevant item, the gallery items that come before it; nothing is sorted and no list is
//! cut off. The order is the search's: distance, then the lower index.
//!
//! The rules:
//! - A query never finds itself: its own row is left out by index, so that an exact duplicate
//!   counts as a result.
//! - A query without any relevant item is a miss in Recall@K, precision@K and the reciprocal
//!   rank, and is left out of the metrics that divide by the number of relevant items;
//!   [`Evaluation::queries_without_match`] counts such queries.
//! - Items with equal scores have the order of their indices. That order says nothing about the
//!   embedding, so [`Evaluation::ties`] counts the queries it may decide, [`Evaluation::tie_bounds`]
//!   has the lowest and highest value of each metric over all orders, and [`Evaluation::notes`]
//!   names the metrics for which they differ by more than 0.0005. An embedding that maps everything
//!   to one point gets what the order of the files gives it, which is about chance, one tie per
//!   query, and that note.

mod average_precision;
mod bootstrap;
mod by_rows;
mod classes;
mod cmc;
mod counts;
mod few_shot;
mod input;
mod listed;
mod map_at_r;
mod measure;
mod metrics;
mod multi_query;
mod ndcg;
mod one_label;
mod one_set;
mod one_shot;
mod options;
mod plan;
mod precision;
mod precision_at_recall;
mod protocol;
mod query_values;
mod r_precision;
mod rank_metric;
mod ranked;
mod ranks;
mod recall;
mod reciprocal_rank;
mod relevance;
mod relevant_ranks;
mod report;
mod row_labels;
mod shards;
mod task;
mod threshold;
mod ties;
mod unmatched;
mod verdict;
mod verification;

use crate::{Matrix, Result};

pub use average_precision::{
    AveragePrecision, TrapezoidPrecision, average_precision, average_precision_trapezoid,
};
pub use bootstrap::{Bootstrap, Interval, Intervals, Over};
pub(crate) use by_rows::Rescore;
pub use classes::RowClasses;
pub use cmc::{Cmc, cmc_at_k};
pub use few_shot::{FewShot, FewShotOptions, few_shot};
pub use input::check_rows;
pub use listed::{Listed, evaluate_index};
pub use map_at_r::{MapAtR, map_at_r};
pub use measure::Measure;
pub use metrics::Metrics;
pub use multi_query::{Pooled, Pooling, pool_queries};
pub use ndcg::{Gain, Ndcg, ndcg, ndcg_at};
pub use one_set::OneSet;
pub use one_shot::{OneShot, Trial, one_shot};
pub use options::EvalOptions;
pub use plan::{EvaluationReport, EvaluationRow, Further, Labelled, Named, Plan, Rules, SideInfo};
pub use precision::{Precision, precision_at_k};
pub use precision_at_recall::{PrecisionAtRecall, precision_at_recall};
pub use protocol::{JUNK, PROTOCOLS, Protocol, Setting};
pub use query_values::QueryValues;
pub use r_precision::{RPrecision, r_precision};
pub use rank_metric::{Cutoff, Range, RankMetric};
pub use ranked::{Ranked, RankedItem};
pub use recall::{Recall, recall_at_k};
pub use reciprocal_rank::{ReciprocalRank, reciprocal_rank};
pub use relevance::{Relevance, SharedLabels};
pub use relevant_ranks::RelevantRanks;
pub use report::Evaluation;
pub use row_labels::RowLabels;
pub use shards::{LabelledShard, PlaceCount, QueryCounts, ShardedEvaluation, Totals};
pub use task::{Measured, Side, Task, evaluate_graded};
pub use threshold::{
    Calibration, Decision, FalseRate, HeldOut, Identification, MatchRule, OpenSet, OpenSetOptions,
    ThresholdOptions, calibrate, open_set,
};
pub use ties::TieBounds;
pub use verdict::Verdict;
pub use verification::{Operating, Verification, VerificationOptions, verify};

/// How much of `all` a share of it is, in whole units: the false matches that a rate allows.
fn allowed(rate: f64, all: f64) -> f64 {
    // 0.29 * 100 is 28.999999999999996.
    (rate * all * (1.0 + 1e-12)).floor()
}

/// Measures `embeddings` with every row as a query against all the others.
///
/// `labels` has one entry per row; rows with equal labels are relevant to each other. Time is
/// that of `rows^2 * dimension / 2` multiply-adds (twice that where a class has more than 32 rows);
/// memory that of one packed copy in addition to the embeddings.
///
/// # Errors
/// [`Error::Count`](crate::Error::Count) when there is not one label per row, [`Error::Empty`](crate::Error::Empty), [`Error::NonFinite`](crate::Error::NonFinite),
/// [`Error::TooLong`](crate::Error::TooLong), and [`Error::Option`](crate::Error::Option) for a measure at 0.
pub fn evaluate(embeddings: &Matrix, labels: &[u32], options: &EvalOptions) -> Result<Evaluation> {
    Ok(Task::every_row(Side::classes(embeddings, labels)).measure(options)?.evaluation)
}

/// Measures queries against a gallery of other images, as In-shop Clothes does.
///
/// Labels are one per row; gallery rows with the query's label are relevant to it
/// ([`labels::encode_both`](crate::labels::encode_both) numbers both alike).
///
/// # Errors
/// As [`evaluate`], and [`Error::Dimensions`](crate::Error::Dimensions).
pub fn evaluate_split(
    queries: &Matrix,
    query_labels: &[u32],
    gallery: &Matrix,
    gallery_labels: &[u32],
    options: &EvalOptions,
) -> Result<Evaluation> {
    let task = Task::split(Side::classes(queries, query_labels), Side::classes(gallery, gallery_labels));
    Ok(task.measure(options)?.evaluation)
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

impl<'a> Sightings<'a> {
    /// The same as one side of a [`Task`].
    pub fn side(self) -> Side<'a> {
        Side::classes(self.embeddings, self.identities).with_cameras(self.cameras)
    }
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
    let task = Task::split(queries.side(), gallery.side()).without(junk);
    Ok(task.measure(options)?.evaluation)
}
