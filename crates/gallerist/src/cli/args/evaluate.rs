//! `gallerist evaluate`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::limits;
use super::named::{help_of_measures, metrics, named};
use crate::device::DeviceChoice;
use crate::network::Products;
use crate::parse_condition;
use crate::retrieval::cluster::Preset;
use crate::retrieval::condition::Condition;
use crate::retrieval::eval::Over;
use crate::retrieval::eval::Pooling;
use crate::retrieval::search::Metric;
use crate::train::CheckpointKind;
use crate::train::limits::MAX_REPEATS;

/// Measure retrieval: every image against all others, or queries against a gallery.
///
/// Published sets of queries and a gallery (Market-1501, DukeMTMC-reID, CUHK03-NP, DeepFashion) use their
/// own protocol without --protocol: it is recorded in the run and in its embeddings files.
///
/// Queries without a relevant image count as misses in Recall@K and are excluded from MAP@R and mAP; the
/// output reports their number. Ties are broken by the lower index and counted. A label `a|b` is a
/// set of labels: two images that share a label are relevant to each other, and the number of shared labels is
/// the relevance grade of NDCG. docs/metrics.md defines every metric.
#[derive(Debug, Args)]
#[command(
    override_usage = "gallerist evaluate [OPTIONS] --run DIR\n       gallerist evaluate [OPTIONS] --embeddings FILE\n       \
    gallerist evaluate [OPTIONS] --query FILE --gallery FILE"
)]
pub(crate) struct Evaluate {
    /// Run directory: embeds its test images, or the images of --query and --gallery, and computes the metrics of its
    /// [evaluation] section
    #[arg(long, value_name = "DIR", conflicts_with_all = ["embeddings", "labels", "query_labels", "query_cameras", "gallery_labels", "gallery_cameras", "cameras", "force"], help_heading = INPUT)]
    pub(crate) run: Option<PathBuf>,
    /// Checkpoint of the run [default: evaluation.checkpoint of the run]
    #[arg(long, value_parser = named::<CheckpointKind>(), requires = "run", conflicts_with = "embeddings", help_heading = INPUT)]
    pub(crate) checkpoint: Option<CheckpointKind>,
    /// Folder that caches decoded images; does not change the embeddings [default: data.cache_folder of the run
    /// file, if it exists]
    #[arg(long, value_name = "DIR", requires = "run", conflicts_with = "embeddings", help_heading = INPUT)]
    pub(crate) cache: Option<PathBuf>,
    /// Stop at the first image that cannot be read, with exit code 2 (key data.strict)
    #[arg(long, requires = "run", conflicts_with = "embeddings", help_heading = INPUT)]
    pub(crate) strict: bool,
    /// Device of the network: auto (a GPU if available), cpu, cuda, cuda:N, wgpu, wgpu:N
    #[arg(long, value_name = "DEVICE", requires = "run", conflicts_with = "embeddings", help_heading = INPUT)]
    pub(crate) device: Option<DeviceChoice>,
    /// Products of the network, on the CPU [default: evaluation.products of the run, else f32]
    #[arg(long, requires = "run", conflicts_with = "embeddings", help_heading = INPUT, value_parser = named::<Products>())]
    pub(crate) products: Option<Products>,
    /// Embeddings (.safetensors, .parquet, .arrow, .feather, .ipc, or .npy of f32 or f64, n x d); each row is a query against
    /// all others. docs/embeddings.md defines the labels of a file
    #[arg(long, value_name = "FILE", help_heading = INPUT)]
    pub(crate) embeddings: Option<PathBuf>,
    /// Labels: .npy of integers, or a text file with one label per line [default: those in the embeddings file]
    #[arg(long, value_name = "FILE", requires = "embeddings", conflicts_with = "query", help_heading = INPUT)]
    pub(crate) labels: Option<PathBuf>,
    /// Embeddings of the queries; with --run, their images
    #[arg(long, value_name = "PATH", requires = "gallery", conflicts_with = "embeddings", help_heading = INPUT)]
    pub(crate) query: Option<PathBuf>,
    /// Use only this split of the images of --query [default: query, if it exists]
    #[arg(long, value_name = "NAME", requires_all = ["run", "query"], conflicts_with = "embeddings", help_heading = INPUT)]
    pub(crate) query_split: Option<String>,
    /// Labels of the queries [default: those in their file]
    #[arg(long, value_name = "FILE", requires = "query", conflicts_with = "embeddings", help_heading = INPUT)]
    pub(crate) query_labels: Option<PathBuf>,
    /// Cameras of the queries: .npy of integers, or a text file with one camera per line [default: those in their file]
    #[arg(long, value_name = "FILE", requires = "query", conflicts_with = "embeddings", help_heading = INPUT)]
    pub(crate) query_cameras: Option<PathBuf>,
    /// Embeddings of the gallery (with --run: its images); or an index, milvus://HOST[:PORT]/COLLECTION or
    /// qdrant://HOST[:PORT]/COLLECTION, whose ranked lists are measured for --query, or for the --embeddings it was built from
    #[arg(long, value_name = "PATH", help_heading = INPUT)]
    pub(crate) gallery: Option<PathBuf>,
    /// Use only this split of the images of --gallery [default: gallery, if it exists]
    #[arg(long, value_name = "NAME", requires_all = ["run", "gallery"], conflicts_with = "embeddings", help_heading = INPUT)]
    pub(crate) gallery_split: Option<String>,
    /// Labels of the gallery [default: those in its file]
    #[arg(long, value_name = "FILE", requires = "gallery", help_heading = INPUT)]
    pub(crate) gallery_labels: Option<PathBuf>,
    /// Cameras of the gallery [default: those in its file]
    #[arg(long, value_name = "FILE", requires = "gallery", help_heading = INPUT)]
    pub(crate) gallery_cameras: Option<PathBuf>,
    /// Cameras of --embeddings [default: those in the file, with --across-cameras]
    #[arg(long, value_name = "FILE", requires = "embeddings", conflicts_with = "query", help_heading = INPUT)]
    pub(crate) cameras: Option<PathBuf>,
    /// Only images that meet a condition on their columns take part, such as 'price < 20 and shop = "x"': as queries
    /// and in the gallery (docs/metadata.md)
    #[arg(long = "where", value_name = "CONDITION", value_parser = parse_condition, conflicts_with_all = ["query_where", "gallery_where"], help_heading = INPUT)]
    pub(crate) condition: Option<Condition>,
    /// Only queries that meet a condition take part
    #[arg(long, value_name = "CONDITION", value_parser = parse_condition, conflicts_with = "embeddings", help_heading = INPUT)]
    pub(crate) query_where: Option<Condition>,
    /// Only images of the gallery that meet a condition take part
    #[arg(long, value_name = "CONDITION", value_parser = parse_condition, conflicts_with = "embeddings", help_heading = INPUT)]
    pub(crate) gallery_where: Option<Condition>,
    /// Compare queries and gallery although they come from different models
    #[arg(long, requires = "gallery", help_heading = INPUT)]
    pub(crate) force: bool,

    /// Rules and metrics of a benchmark: cub200, cars196, sop, inshop, consumer_to_shop, market1501, duke, cuhk03, veri, omniglot, mnist; none: no junk images, cameras ignored [default: from the run file, or the one named in both files]
    #[arg(long, value_name = "NAME", help_heading = MEASURED)]
    pub(crate) protocol: Option<String>,
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with = "recall_at", help_heading = MEASURED)]
    #[arg(help = help_of_measures())]
    pub(crate) metrics: Vec<String>,
    /// Values of K for Recall@K; also computes precision@1, MAP@R and R-precision [default: 1,2,4,8]
    #[arg(long, value_name = "K", value_delimiter = ',', conflicts_with = "protocol", help_heading = MEASURED)]
    pub(crate) recall_at: Vec<usize>,
    /// Distance or similarity of two rows [default: from the run or the file, else cosine]
    #[arg(long, value_name = "METRIC", value_parser = metrics(), help_heading = MEASURED)]
    pub(crate) metric: Option<Metric>,
    /// Skip images with the query's label from the query's own camera (as in person re-identification)
    #[arg(long, conflicts_with_all = ["protocol", "run"], help_heading = MEASURED)]
    pub(crate) across_cameras: bool,

    /// Additional results after re-ranking
    #[arg(long, value_enum, help_heading = FURTHER)]
    pub(crate) rerank: Option<Rerank>,
    /// Neighbourhood size for k-reciprocal neighbours
    #[arg(long, value_name = "N", default_value_t = 20, requires = "rerank", help_heading = FURTHER)]
    pub(crate) k1: usize,
    /// Neighbours averaged in local query expansion, including the image itself; 1: off
    #[arg(long, value_name = "N", default_value_t = 6, requires = "rerank", help_heading = FURTHER)]
    pub(crate) k2: usize,
    /// Weight of the original distance, from 0 to 1
    #[arg(long, value_name = "X", default_value_t = 0.3, requires = "rerank", help_heading = FURTHER)]
    pub(crate) lambda: f64,
    /// Additional results with each query replaced by the mean of itself and its N nearest images
    #[arg(long, value_name = "N", help_heading = FURTHER)]
    pub(crate) query_expansion: Option<usize>,
    /// Weight each neighbour by its similarity to the power of X; 0: equal weights
    #[arg(long, value_name = "X", default_value_t = 0.0, requires = "query_expansion", help_heading = FURTHER)]
    pub(crate) alpha: f64,
    /// Additional results with all query images of one identity and camera merged into one query
    #[arg(long, value_parser = named::<Pooling>(), help_heading = FURTHER)]
    pub(crate) multi_query: Option<Pooling>,
    /// Also compute NMI, AMI and pair F1 of a k-means clustering with one cluster per class
    #[arg(long, help_heading = FURTHER)]
    pub(crate) cluster: bool,
    /// Variant of k-means
    #[arg(long, default_value = "faiss20", value_parser = named::<Preset>(), requires = "cluster", help_heading = FURTHER)]
    pub(crate) kmeans: Preset,
    /// Also compute, over all pairs, true accept rates at false accept rates, equal error rate and area under the ROC curve
    #[arg(long, help_heading = FURTHER)]
    pub(crate) verification: bool,
    /// False accept rates, from 0 to 1
    #[arg(long, value_name = "RATE", value_delimiter = ',', default_value = "0.1,0.01,0.001,0.0001", requires = "verification", help_heading = FURTHER)]
    pub(crate) far: Vec<f64>,
    /// Also measure open-set identification: detection and identification rates (DIR) at false alarm rates. Queries
    /// without a match are the unknown ones; if there are none, half of the classes are taken out of the gallery
    #[arg(long, help_heading = FURTHER)]
    pub(crate) open_set: bool,
    /// False alarm rates of --open-set, from 0 to 1
    #[arg(long, value_name = "RATE", value_delimiter = ',', default_value = "0.1,0.01,0.001", requires = "open_set", help_heading = FURTHER)]
    pub(crate) open_set_far: Vec<f64>,
    /// Also measure few-shot episodes, drawn with --seed: classes x gallery images per class, e.g. 5x1
    #[arg(long, value_name = "WAYSxSHOTS", help_heading = FURTHER)]
    pub(crate) few_shot: Option<WaysShots>,
    /// Query images per class in an episode
    #[arg(long, value_name = "N", default_value_t = 15, requires = "few_shot", help_heading = FURTHER)]
    pub(crate) episode_queries: usize,
    /// Number of episodes
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = limits::count::<MAX_REPEATS>, requires = "few_shot", help_heading = FURTHER)]
    pub(crate) episodes: usize,
    /// Also measure one-shot classification on fixed runs, such as Omniglot's all_runs.zip (or its folder)
    #[arg(long, value_name = "PATH", requires = "run", conflicts_with = "embeddings", help_heading = FURTHER)]
    pub(crate) one_shot: Option<PathBuf>,
    /// Also compute 95 % confidence intervals from N bootstrap resamples
    #[arg(long, value_name = "N", value_parser = limits::count::<MAX_REPEATS>, help_heading = FURTHER)]
    pub(crate) bootstrap: Option<usize>,
    /// Unit of resampling: single queries, or classes with all their queries
    #[arg(long, default_value = "queries", value_parser = named::<Over>(), requires = "bootstrap", help_heading = FURTHER)]
    pub(crate) bootstrap_over: Over,
    /// Seed of bootstrap, k-means, episodes, and the classes that --open-set takes out [default: 0; what the run asks for has its own seed]
    #[arg(long, value_name = "N", help_heading = FURTHER)]
    pub(crate) seed: Option<u64>,

    /// Print everything as JSON on stdout
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) json: bool,
    /// Write an HTML report: metrics, curves, histograms, a map, ranked lists (with pictures if the images are
    /// available)
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub(crate) html: Option<PathBuf>,
}

const INPUT: &str = "Input";
const MEASURED: &str = "Metrics";
const FURTHER: &str = "Additional measurements";
const OUTPUT: &str = "Output";

/// `5x1`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WaysShots {
    pub(crate) ways: usize,
    pub(crate) shots: usize,
}

impl std::str::FromStr for WaysShots {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse().ok().filter(|&number| number > 0);
        let (ways, shots) = text.split_once('x').unwrap_or((text, ""));
        match (number(ways), number(shots)) {
            (Some(ways), Some(shots)) => Ok(WaysShots { ways, shots }),
            _ => Err("wanted two numbers of 1 or more with an x between them, e.g. 5x1".into()),
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Rerank {
    /// k-reciprocal encoding (Zhong et al., 2017)
    KReciprocal,
}
