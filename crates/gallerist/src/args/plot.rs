//! `gallerist plot`.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use gallerist::report::figure;
use gallerist::train::limits::MAX_REPEATS;

use super::limits::count;

/// Draw a run, or several side by side, as SVG or PNG.
///
/// An SVG follows the reader's choice of light or dark by itself. No display is needed, and no
/// installed font: letters beyond Latin, Greek and Cyrillic need an SVG.
#[derive(Debug, Args)]
pub(crate) struct Plot {
    #[command(subcommand)]
    pub(crate) kind: Kind,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Kind {
    Curves(Curves),
    Ranked(Ranked),
    Map(Map),
    Cmc(Cmc),
    Pr(Pr),
    Distances(Distances),
    Clusters(Clusters),
    Report(Report),
}

/// Where the figure goes, and how it looks.
#[derive(Debug, Args)]
pub(crate) struct Out {
    /// Where the figure goes (.svg or .png)
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Fix the colours [default: an SVG follows the reader, a PNG is light]
    #[arg(long, value_enum)]
    pub(crate) theme: Option<Theme>,
}

/// What is drawn: the test embeddings of a run, or embeddings from anywhere.
#[derive(Debug, Args)]
pub(crate) struct One {
    /// Run directory
    #[arg(required_unless_present_any = ["embeddings", "query"], conflicts_with_all = ["embeddings", "query"])]
    pub(crate) run: Option<PathBuf>,
    /// Embeddings from anywhere (.safetensors, or .npy of f32 or f64, n x d) instead of a run
    #[arg(long, value_name = "FILE", conflicts_with = "query")]
    pub(crate) embeddings: Option<PathBuf>,
    /// Labels: .npy of integers or a text file, one label a line [default: those in the embeddings file]
    #[arg(long, value_name = "FILE", requires = "embeddings")]
    pub(crate) labels: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) split: Split,
}

/// Several sets of embeddings.
#[derive(Debug, Args)]
pub(crate) struct Several {
    /// Run directories
    #[arg(value_name = "RUN", required_unless_present_any = ["embeddings", "query"])]
    pub(crate) runs: Vec<PathBuf>,
    /// Embeddings from anywhere (.safetensors, or .npy of f32 or f64, n x d), after the runs (repeatable)
    #[arg(long, value_name = "FILE")]
    pub(crate) embeddings: Vec<PathBuf>,
    /// Labels of each --embeddings: .npy of integers or a text file, one label a line (repeatable)
    /// [default: those in the embeddings file]
    #[arg(long, value_name = "FILE", requires = "embeddings")]
    pub(crate) labels: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) split: Split,
}

/// Queries and the gallery that they are compared with.
#[derive(Debug, Args)]
pub(crate) struct Split {
    /// Embeddings of queries, compared with those of --gallery (where several are drawn, repeatable)
    #[arg(long, value_name = "FILE", requires = "gallery")]
    pub(crate) query: Vec<PathBuf>,
    /// Embeddings of the gallery of each --query
    #[arg(long, value_name = "FILE", requires = "query")]
    pub(crate) gallery: Vec<PathBuf>,
    /// Labels of each --query [default: those in its file]
    #[arg(long, value_name = "FILE", requires = "query")]
    pub(crate) query_labels: Vec<PathBuf>,
    /// Labels of each --gallery [default: those in its file]
    #[arg(long, value_name = "FILE", requires = "gallery")]
    pub(crate) gallery_labels: Vec<PathBuf>,
    /// Cameras of each --query, one a line or .npy of integers [default: those in its file]
    #[arg(long, value_name = "FILE", requires = "query")]
    pub(crate) query_cameras: Vec<PathBuf>,
    /// Cameras of each --gallery [default: those in its file]
    #[arg(long, value_name = "FILE", requires = "gallery")]
    pub(crate) gallery_cameras: Vec<PathBuf>,
    /// A benchmark's rules for --query, --gallery and --embeddings, as of `evaluate`; none: no junk, no cameras
    /// [default: the protocol that both files name]
    #[arg(long, value_name = "NAME")]
    pub(crate) protocol: Option<String>,
}

/// Training curves: loss, pairs, distances, dimensions, gradient, validation; several runs in the same charts
#[derive(Debug, Args)]
pub(crate) struct Curves {
    /// Run directories
    #[arg(value_name = "RUN", required = true)]
    pub(crate) runs: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) out: Out,
}

/// Ranked lists: the query left, its first results with right and wrong framed, the distance under each
#[derive(Debug, Args)]
pub(crate) struct Ranked {
    #[command(flatten)]
    pub(crate) of: One,
    /// Which queries: of the lowest or highest average precision, drawn at random, or of the classes that
    /// are most often taken for each other
    #[arg(long, value_enum, default_value_t = Which::Worst)]
    pub(crate) queries: Which,
    /// How many queries, or pairs of classes
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) count: usize,
    /// Queries by the end of their path, or by a label (repeatable)
    #[arg(long, value_name = "NAME", conflicts_with_all = ["queries", "count"])]
    pub(crate) named: Vec<String>,
    /// Results for each query
    #[arg(short, value_name = "K", default_value_t = 10)]
    pub(crate) k: usize,
    /// Draws the random queries
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) out: Out,
}

/// A map of the embedding space, coloured by class, with thumbnails where there is room
///
/// t-SNE of 13,180 x 64 embeddings takes about 15 seconds on one core. Embeddings of two dimensions are
/// drawn as they are. The same embeddings give the same map.
#[derive(Debug, Args)]
pub(crate) struct Map {
    #[command(flatten)]
    pub(crate) of: One,
    /// How rows become points: t-SNE keeps neighbours, pca shows the two directions of largest variance
    #[arg(long, value_enum, default_value_t = Method::Tsne)]
    pub(crate) method: Method,
    /// t-SNE: about how many neighbours count
    #[arg(long, default_value_t = gallerist::plots::Tsne::default().perplexity)]
    pub(crate) perplexity: f32,
    /// t-SNE: steps of gradient descent
    #[arg(long, default_value_t = gallerist::plots::Tsne::default().steps, value_parser = count::<MAX_REPEATS>)]
    pub(crate) steps: usize,
    /// Dots only
    #[arg(long)]
    pub(crate) no_thumbnails: bool,
    #[command(flatten)]
    pub(crate) out: Out,
}

/// The share of queries with a match among the first 1, 2, 3… results (cumulative matching characteristic)
#[derive(Debug, Args)]
pub(crate) struct Cmc {
    #[command(flatten)]
    pub(crate) of: Several,
    /// Ranks that are drawn
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = count::<100_000>)]
    pub(crate) ranks: usize,
    #[command(flatten)]
    pub(crate) out: Out,
}

/// Precision against recall, interpolated, the mean over the queries
#[derive(Debug, Args)]
pub(crate) struct Pr {
    #[command(flatten)]
    pub(crate) of: Several,
    #[command(flatten)]
    pub(crate) out: Out,
}

/// Distances of pairs of one class beside those of pairs of two classes, and how much they overlap
#[derive(Debug, Args)]
pub(crate) struct Distances {
    #[command(flatten)]
    pub(crate) of: Several,
    /// Draws a million pairs of each kind where there are more
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) out: Out,
}

/// Clusters of k-means as contact sheets, those that mix most classes first
#[derive(Debug, Args)]
pub(crate) struct Clusters {
    #[command(flatten)]
    pub(crate) of: One,
    /// Number of clusters [default: that of the classes]
    #[arg(long, value_name = "N")]
    pub(crate) clusters: Option<usize>,
    /// Clusters that are drawn
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub(crate) count: usize,
    /// Chooses the first centres
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) out: Out,
}

/// The report of a run again, or of several side by side, as one HTML file that works offline
#[derive(Debug, Args)]
pub(crate) struct Report {
    /// Run directories
    #[arg(value_name = "RUN", required = true)]
    pub(crate) runs: Vec<PathBuf>,
    /// Where the page goes (.html)
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Which {
    Worst,
    Best,
    Random,
    Confused,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Method {
    Tsne,
    Pca,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Theme {
    Light,
    Dark,
}

impl From<Theme> for figure::Theme {
    fn from(theme: Theme) -> Self {
        match theme {
            Theme::Light => Self::Light,
            Theme::Dark => Self::Dark,
        }
    }
}
