//! `gallerist threshold`.

use std::path::PathBuf;

use clap::Args;

use super::named::{metrics, named};
use crate::parse_condition;
use crate::retrieval::condition::Condition;
use crate::retrieval::eval::FalseRate;
use crate::retrieval::search::Metric;

/// Calibrate the threshold at which a result is a match, for a wanted false match rate.
///
/// Prints the most permissive threshold with this rate, the miss rate that it costs, the rate on identities that it
/// was not calibrated on, and an upper bound that holds with the given confidence for other identities like these.
/// The bound counts identities, not pairs: pairs that share an identity are dependent. The embeddings must be of
/// identities that the network was not trained on. docs/threshold.md defines the rates and cites the sources.
///
/// A rate per comparison of 0.001 is about 10 false matches in a search of 10,000 images. Use --per search to limit the
/// share of searches that return a false match.
#[derive(Debug, Args)]
#[command(override_usage = "gallerist threshold [OPTIONS] --embeddings FILE\n       \
    gallerist threshold [OPTIONS] --per search --query FILE --gallery FILE")]
pub(crate) struct Threshold {
    /// Embeddings (.safetensors, .npy, .parquet, .arrow, .feather or .ipc); per search, half of the identities are taken out of
    /// the gallery
    #[arg(long, value_name = "FILE", required_unless_present = "query", conflicts_with_all = ["query", "gallery", "query_labels", "gallery_labels", "force"])]
    pub(crate) embeddings: Option<PathBuf>,
    /// Labels: .npy of integers, or a text file with one label per line [default: those in the embeddings file]
    #[arg(long, value_name = "FILE", requires = "embeddings", conflicts_with = "query")]
    pub(crate) labels: Option<PathBuf>,
    /// Cameras, one per image: pairs of one identity and camera do not count [default: those in the embeddings file
    /// if its protocol uses cameras]
    #[arg(long, value_name = "FILE", requires = "embeddings", conflicts_with = "query")]
    pub(crate) cameras: Option<PathBuf>,
    /// Embeddings of the queries; those without an image of their label in the gallery are the unknown identities
    #[arg(long, value_name = "FILE", requires = "gallery")]
    pub(crate) query: Option<PathBuf>,
    /// Labels of the queries [default: those in their file]
    #[arg(long, value_name = "FILE", requires = "query")]
    pub(crate) query_labels: Option<PathBuf>,
    /// Embeddings of the gallery
    #[arg(long, value_name = "FILE", requires = "query")]
    pub(crate) gallery: Option<PathBuf>,
    /// Labels of the gallery [default: those in its file]
    #[arg(long, value_name = "FILE", requires = "gallery")]
    pub(crate) gallery_labels: Option<PathBuf>,
    /// Only embeddings that meet a condition on their columns take part, such as 'price < 20 and shop = "x"'
    /// (docs/metadata.md)
    #[arg(long = "where", value_name = "CONDITION", value_parser = parse_condition)]
    pub(crate) condition: Option<Condition>,
    /// Wanted false match rate, above 0 and at most 0.5
    #[arg(long, value_name = "RATE", default_value_t = 0.001)]
    pub(crate) far: f64,
    /// What the rate counts
    #[arg(long, default_value = "comparison", value_parser = named::<FalseRate>())]
    pub(crate) per: FalseRate,
    /// Confidence of the bound, from 0.5 to below 1
    #[arg(long, value_name = "SHARE", default_value_t = 0.95)]
    pub(crate) confidence: f64,
    /// Choose a stricter threshold, whose bound is at most RATE; an error if there are too few identities
    #[arg(long)]
    pub(crate) guarantee: bool,
    /// Times that the identities are divided into two halves, one to calibrate and one to measure; 0: not
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) splits: usize,
    /// Leave out the images with this label, for example distractors (repeatable)
    #[arg(long, value_name = "LABEL")]
    pub(crate) leave_out: Vec<String>,
    /// How rows are compared [default: as the file declares, else cosine]
    #[arg(long, value_name = "METRIC", value_parser = metrics())]
    pub(crate) metric: Option<Metric>,
    /// Compare embeddings of different networks or metrics, with a warning
    #[arg(long, requires = "query")]
    pub(crate) force: bool,
    /// Seed of the halves and of the identities that are taken out
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) seed: u64,
    /// Write the threshold into this embeddings file (.safetensors) or index; `search` and `serve` then mark results
    /// as match or near. An index built from the file has it, too (repeatable)
    #[arg(long, value_name = "FILE")]
    pub(crate) save: Vec<PathBuf>,
    /// Print the result as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}
