//! What an evaluation reports.

use serde::{Deserialize, Serialize};

use super::metrics::Metrics;
use super::ties::TieBounds;
use crate::search::Metric;

/// The metrics of one evaluation, with the information that is needed to interpret them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Evaluation {
    /// Which images were queries, and what they were compared with.
    pub protocol: String,
    /// How rows were compared.
    pub metric: Metric,
    /// `recall@1`, `map@r`, … by name; each the mean over its queries, from 0 to 1.
    pub metrics: Metrics,
    /// Number of queries.
    pub queries: usize,
    /// Number of gallery items, junk not counted.
    pub gallery: usize,
    /// Gallery items that the protocol skips for every query.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub junk: usize,
    /// Queries to which no gallery item is relevant.
    pub queries_without_match: usize,
    /// Queries for which an irrelevant item is exactly as close as a relevant one.
    pub ties: usize,
    /// The metrics that depend on the order of items exactly as close, with their lowest and highest value
    /// over all orders.
    #[serde(default, skip_serializing_if = "Metrics::is_empty")]
    pub tie_bounds: Metrics<TieBounds>,
    /// Embeddings that are all zero; their cosine with everything is 0.
    pub zero_rows: usize,
    /// What a reader of the numbers should know.
    pub notes: Vec<String>,
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}
