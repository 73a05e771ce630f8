//! `gallerist plot`.

use std::path::PathBuf;

use crate::report::figure::Theme;
use crate::train::limits::MAX_REPEATS;
use clap::{Args, Subcommand, ValueEnum};

use super::limits::count;
use super::named::named;
use super::shared::WhereArgs;

/// Plot one or several runs as SVG or PNG.
///
/// An SVG follows the light or dark theme of the viewer. A display or installed fonts are not required;
/// a PNG can show Latin, Greek and Cyrillic letters only.
#[derive(Debug, Args)]
pub(crate) struct Plot {
    #[command(subcommand)]
    pub(crate) kind: Kind,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Kind {
    Curves(Curves),
    Ranked(Ranked),
    Map(MapArgs),
    Cmc(Cmc),
    Pr(Pr),
    Distances(Distances),
    OpenSet(OpenSet),
    Clusters(Clusters),
    Report(ReportArgs),
}

/// Output file and theme of the figure.
#[derive(Debug, Args)]
pub(crate) struct Out {
    /// Output file (.svg or .png)
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Colour theme [default: an SVG follows the viewer, a PNG is light]
    #[arg(long, value_parser = named::<Theme>())]
    pub(crate) theme: Option<Theme>,
}

/// Input: the test embeddings of a run, or other embeddings.
#[derive(Debug, Args)]
pub(crate) struct One {
    /// Run directory
    #[arg(required_unless_present_any = ["embeddings", "query"], conflicts_with_all = ["embeddings", "labels", "query", "gallery", "query_labels", "gallery_labels", "query_cameras", "gallery_cameras", "force"])]
    pub(crate) run: Option<PathBuf>,
    /// Embeddings to plot instead of a run (.safetensors, .parquet, .arrow, .feather, .ipc, or .npy of f32 or f64,
    /// n x d)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["query", "gallery", "query_labels", "gallery_labels", "query_cameras", "gallery_cameras", "force"])]
    pub(crate) embeddings: Option<PathBuf>,
    /// Labels: .npy of integers, or a text file with one label per line [default: those in the embeddings file]
    #[arg(long, value_name = "FILE", requires = "embeddings", conflicts_with = "query")]
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
    /// Embeddings to plot after the runs (.safetensors, .parquet, .arrow, .feather, .ipc, or .npy of f32 or f64, n x d;
    /// repeatable)
    #[arg(long, value_name = "FILE")]
    pub(crate) embeddings: Vec<PathBuf>,
    /// Labels of each --embeddings: .npy of integers, or a text file with one label per line (repeatable)
    /// [default: those in the embeddings file]
    #[arg(long, value_name = "FILE", requires = "embeddings")]
    pub(crate) labels: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) split: Split,
}

/// Queries and their gallery.
#[derive(Debug, Args)]
pub(crate) struct Split {
    /// Embeddings of queries, compared with --gallery (repeatable in plots of several inputs)
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
    /// Cameras of each --query: .npy of integers, or a text file with one camera per line [default: those in its file]
    #[arg(long, value_name = "FILE", requires = "query")]
    pub(crate) query_cameras: Vec<PathBuf>,
    /// Cameras of each --gallery [default: those in its file]
    #[arg(long, value_name = "FILE", requires = "gallery")]
    pub(crate) gallery_cameras: Vec<PathBuf>,
    /// Rules of a benchmark for --query, --gallery and --embeddings, as in `evaluate`; none: no junk images, cameras
    /// ignored [default: the protocol named in both files]
    #[arg(long, value_name = "NAME")]
    pub(crate) protocol: Option<String>,
    /// Compare embeddings of different networks or metrics, with a warning
    #[arg(long, requires = "query")]
    pub(crate) force: bool,
    #[command(flatten)]
    pub(crate) part: WhereArgs,
}

/// Training curves: loss, pairs, distances, dimensions, gradient, validation; several runs share the charts
#[derive(Debug, Args)]
pub(crate) struct Curves {
    /// Run directories
    #[arg(value_name = "RUN", required = true)]
    pub(crate) runs: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) out: Out,
}

/// Ranked lists: each query with its first results, correct and wrong ones marked, with their distances
#[derive(Debug, Args)]
pub(crate) struct Ranked {
    #[command(flatten)]
    pub(crate) of: One,
    /// Choice of queries: lowest (worst) or highest (best) average precision, random, or from the most confused pairs
    /// of classes
    #[arg(long, value_enum, default_value_t = QuerySelection::Worst)]
    pub(crate) queries: QuerySelection,
    /// Number of queries, or of pairs of classes
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub(crate) count: usize,
    /// Choose queries by the end of their path or by their label (repeatable)
    #[arg(long, value_name = "NAME", conflicts_with_all = ["queries", "count"])]
    pub(crate) named: Vec<String>,
    /// Results per query
    #[arg(short, value_name = "K", default_value_t = 10)]
    pub(crate) k: usize,
    /// Seed of the random queries
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) out: Out,
}

/// Map of the embedding space, coloured by class, with thumbnails where they fit
///
/// t-SNE of 13,180 x 64 embeddings takes about 17 seconds of CPU time. Two-dimensional embeddings are
/// plotted without projection. The map is deterministic.
#[derive(Debug, Args)]
pub(crate) struct MapArgs {
    #[command(flatten)]
    pub(crate) of: One,
    /// Projection: tsne preserves neighbours, pca shows the two directions of largest variance
    #[arg(long, value_enum, default_value_t = Projection::Tsne)]
    pub(crate) method: Projection,
    /// t-SNE: perplexity, the effective number of neighbours
    #[arg(long, default_value_t = crate::plots::Tsne::default().perplexity)]
    pub(crate) perplexity: f32,
    /// t-SNE: gradient descent steps
    #[arg(long, default_value_t = crate::plots::Tsne::default().steps, value_parser = count::<MAX_REPEATS>)]
    pub(crate) steps: usize,
    /// Draw points only
    #[arg(long)]
    pub(crate) no_thumbnails: bool,
    #[command(flatten)]
    pub(crate) out: Out,
}

/// Cumulative matching characteristic (CMC): fraction of queries with a match among the first 1, 2, 3… results
#[derive(Debug, Args)]
pub(crate) struct Cmc {
    #[command(flatten)]
    pub(crate) of: Several,
    /// Number of ranks
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = count::<100_000>)]
    pub(crate) ranks: usize,
    #[command(flatten)]
    pub(crate) out: Out,
}

/// Interpolated precision-recall curve, the mean over all queries
#[derive(Debug, Args)]
pub(crate) struct Pr {
    #[command(flatten)]
    pub(crate) of: Several,
    #[command(flatten)]
    pub(crate) out: Out,
}

/// Histograms of distances within and between classes, and their overlap
#[derive(Debug, Args)]
pub(crate) struct Distances {
    #[command(flatten)]
    pub(crate) of: Several,
    /// Seed of the sample, used when there are more than a million pairs of a kind
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) out: Out,
}

/// Open-set identification: how many images of known classes are identified (DIR) while images of unknown classes raise
/// few false alarms (FAR), over a logarithmic axis of the false alarm rate
///
/// Images are identified by their nearest item, if it is within a threshold. DIR and FAR are shares of searches. Queries
/// whose label is not in the gallery are the unknown ones; without a gallery, or if each query has a match, half of the
/// classes are taken out of the gallery. See docs/threshold.md.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  \
    gallerist plot open-set runs/rll runs/ice --out open-set.svg\n  \
    gallerist plot open-set --query query.safetensors --gallery gallery.safetensors --out open-set.svg\n  \
    gallerist plot open-set --embeddings a.safetensors --embeddings b.safetensors --where 'shop = \"x\"' --out open-set.png")]
pub(crate) struct OpenSet {
    #[command(flatten)]
    pub(crate) of: Several,
    /// Seed of the classes that are taken out of the gallery
    #[arg(long, default_value_t = 0)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) out: Out,
}

/// Contact sheets of k-means clusters, those with the most mixed classes first
#[derive(Debug, Args)]
pub(crate) struct Clusters {
    #[command(flatten)]
    pub(crate) of: One,
    /// Number of clusters [default: the number of classes]
    #[arg(long, value_name = "N")]
    pub(crate) clusters: Option<usize>,
    /// Number of clusters to plot
    #[arg(long, value_name = "N", default_value_t = 12)]
    pub(crate) count: usize,
    /// Seed of the initial centres
    #[arg(long, default_value_t = 1)]
    pub(crate) seed: u64,
    #[command(flatten)]
    pub(crate) out: Out,
}

/// Report of one run, or of several runs in comparison, as one self-contained HTML file
#[derive(Debug, Args)]
pub(crate) struct ReportArgs {
    /// Run directories
    #[arg(value_name = "RUN", required = true)]
    pub(crate) runs: Vec<PathBuf>,
    /// Output file (.html)
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) part: WhereArgs,
}

/// Which queries are drawn.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum QuerySelection {
    Worst,
    Best,
    Random,
    Confused,
}

/// How embeddings become points of the plane.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Projection {
    Tsne,
    Pca,
}
