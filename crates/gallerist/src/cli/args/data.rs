//! `gallerist data`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::limits;
use super::named::metrics;
use super::shared::PartArgs;
use crate::IssuesOptions;
use crate::parse_condition;
use crate::retrieval::condition::Condition;
use crate::retrieval::issues::IssueOptions;
use crate::retrieval::search::Metric;
use crate::train::limits::MAX_THREADS;

/// Inspect image sets.
#[derive(Debug, Args)]
pub(crate) struct Data {
    #[command(subcommand)]
    pub(crate) command: DataCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    Info(DataInfo),
    Issues(Box<DataIssues>),
}

/// Summarize a data set: images, classes, splits, broken files, duplicates.
///
/// Decodes every image and compares the counts with the published ones. Duplicates are images with
/// identical pixels; a duplicate of a training image in another split is a leak.
///
/// Exit code 1: images are broken or missing, or there are leaks.
#[derive(Debug, Args)]
pub(crate) struct DataInfo {
    /// Images: a published data set, a folder with one folder per class, a flat folder, a CSV or TSV manifest, or a zip or
    /// tar archive of any of these
    #[arg(required = true)]
    pub(crate) path: Vec<PathBuf>,
    /// A separate test set; the PATHs are then the training set
    #[arg(long, value_name = "PATH")]
    pub(crate) test: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) part: PartArgs,
    /// Decoding threads; 0: one per core
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = limits::count::<MAX_THREADS>)]
    pub(crate) threads: usize,
    /// Print the full result as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Find likely wrong labels, near-duplicates, outliers, and classes that should be one.
///
/// Compares the embeddings of all images with each other and writes into the folder --out: issues.html, a page with
/// pictures; issues.csv, with the empty columns `action` and `new_label` to fill and give
/// to --relabel; issues.json.
/// Several files are compared as one set. Near-duplicates across splits (`embed` writes a column `split` for sets with
/// several) or across files are a group of their own: a test with images of the training set is too easy.
///
/// docs/clean-data.md explains the methods and measures what they find.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gallerist embed --run runs/photos --images photos --out photos.safetensors\n  \
    gallerist data issues --embeddings photos.safetensors --out issues\n  \
    gallerist data issues --embeddings train.safetensors test.safetensors --out issues")]
pub(crate) struct DataIssues {
    /// Embeddings with labels and paths, as `gallerist embed` writes them
    #[arg(long, value_name = "FILE", required = true, num_args = 1..)]
    pub(crate) embeddings: Vec<PathBuf>,
    /// Folder for the results; created if it does not exist
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// One label per row (.npy of integers, or text with one label a line) [default: those of the embeddings]
    #[arg(long, value_name = "FILE")]
    pub(crate) labels: Option<PathBuf>,
    /// Compare only images that meet a condition on their columns, such as 'price < 20 and shop = "x"' (docs/metadata.md)
    #[arg(long = "where", value_name = "CONDITION", value_parser = parse_condition)]
    pub(crate) condition: Option<Condition>,
    /// Column with the split of each image (train, test, query, gallery); near-duplicates across splits are a group of
    /// their own [default: split, if the embeddings have it]
    #[arg(long, value_name = "COLUMN")]
    pub(crate) split_column: Option<String>,
    /// The images, for the page [default: the places that they were embedded from]
    #[arg(long, value_name = "PATH", num_args = 1..)]
    pub(crate) images: Vec<PathBuf>,
    /// How rows are compared: cosine or euclidean [default: as the embeddings declare, else cosine]
    #[arg(long, value_name = "METRIC", value_parser = metrics(), hide_possible_values = true)]
    pub(crate) metric: Option<Metric>,
    /// Report labels that are wrong with at least this probability, 0 to 1; 0: all images, ranked
    #[arg(long, value_name = "P", default_value_t = IssueOptions::default().probability)]
    pub(crate) probability: f64,
    /// Nearest images of a class that define the distance to it
    #[arg(long, value_name = "N", default_value_t = IssueOptions::default().per_class)]
    pub(crate) per_class: usize,
    /// Near-duplicates: largest distance as a share of the median distance of an image to its nearest neighbour
    #[arg(long, value_name = "SHARE", default_value_t = IssueOptions::default().duplicates)]
    pub(crate) duplicates: f64,
    /// Outliers: smallest modified z-score of the mean distance to the nearest neighbours
    #[arg(long, value_name = "Z", default_value_t = IssueOptions::default().outliers)]
    pub(crate) outliers: f64,
    /// Nearest neighbours for outliers
    #[arg(short, value_name = "K", default_value_t = IssueOptions::default().k)]
    pub(crate) k: usize,
    /// Classes that should be one: smallest mixing, from 0 (separate) to 1 (cannot be told apart)
    #[arg(long, value_name = "SHARE", default_value_t = IssueOptions::default().mixing)]
    pub(crate) mixing: f64,
    /// The table, with tabs between the values if it ends in .tsv, else .csv; --relabel reads both
    /// [default: issues.csv in the folder]
    #[arg(long, value_name = "FILE")]
    pub(crate) table: Option<PathBuf>,
    /// Overwrite a table whose columns `action` and `new_label` are filled
    #[arg(long)]
    pub(crate) force: bool,
    /// Most images, groups or pairs in each section of the page
    #[arg(long, value_name = "N", default_value_t = IssuesOptions::default().shown)]
    pub(crate) shown: usize,
    /// Print the full result as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

impl DataIssues {
    pub(crate) fn options(&self) -> IssuesOptions {
        IssuesOptions {
            issues: IssueOptions {
                k: self.k,
                per_class: self.per_class,
                probability: self.probability,
                duplicates: self.duplicates,
                outliers: self.outliers,
                mixing: self.mixing,
                ..IssueOptions::default()
            },
            metric: self.metric,
            labels: self.labels.clone(),
            condition: self.condition.clone(),
            split_column: self.split_column.clone(),
            images: self.images.clone(),
            table: self.table.clone(),
            force: self.force,
            shown: self.shown,
        }
    }
}
