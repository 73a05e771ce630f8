//! The command line, parsed into plain structs.

pub(crate) mod index;
mod limits;
mod named;
pub(crate) mod plot;
mod serve;

use std::path::PathBuf;

use crate::data::{DatasetLayout, LabelFrom, OpenOptions};
use crate::device::DeviceChoice;
use crate::retrieval::search::Metric;
use crate::train::limits::{MAX_REPEATS, MAX_THREADS};
use clap::{Args, Parser, Subcommand, ValueEnum};

pub(crate) use serve::Serve;

/// Deep metric learning and image retrieval.
#[derive(Debug, Parser)]
#[command(name = "gallerist", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 success; 1 success with findings (listed on stderr); 2 error; \
    130 interrupted (a checkpoint was written).")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Train(Train),
    Embed(Embed),
    Convert(Convert),
    Evaluate(Box<Evaluate>),
    Search(Search),
    Index(index::Index),
    Plot(plot::Plot),
    Serve(Serve),
    Loss(Loss),
    Data(Data),
    Weights(Weights),
    Config(Config),
    Completions(Completions),
}

/// Train an embedding network from a run file, evaluate it, and write a report.
///
/// Writes to the run directory: the resolved configuration (config.toml), the checkpoints
/// (checkpoints/last.safetensors and best.safetensors), the log (log.jsonl), the embeddings of the
/// test images (embeddings.safetensors; or query.safetensors and gallery.safetensors where the test set has
/// queries and a gallery), the metrics (metrics.json) and the report (report.html).
///
/// Ctrl-C writes a checkpoint and stops. `--resume DIR` continues the run; on the CPU the result is bit-identical
/// to that of an uninterrupted run.
#[derive(Debug, Args)]
#[command(override_usage = "gallerist train [OPTIONS] CONFIG\n       gallerist train [OPTIONS] --resume DIR")]
pub(crate) struct Train {
    /// Run file (TOML); `gallerist config --print-defaults` lists every key
    #[arg(required_unless_present = "resume", conflicts_with = "resume")]
    pub(crate) config: Option<PathBuf>,
    /// Override a key of the run file, e.g. --set train.steps=500 (repeatable)
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "resume")]
    pub(crate) set: Vec<String>,
    /// Profile the run: a summary at the end, details in profile.json of the run directory (key log.profile)
    #[arg(long, conflicts_with = "resume")]
    pub(crate) profile: bool,
    /// Run directory; must not contain another run [default: runs/NAME, NAME from the run file, numbered]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub(crate) out: Option<PathBuf>,
    /// Continue an interrupted run from its last checkpoint
    #[arg(long, value_name = "DIR")]
    pub(crate) resume: Option<PathBuf>,
    /// Device of the network: auto (a GPU if available), cpu, cuda, cuda:N, wgpu, wgpu:N [default: from the run
    /// file, else auto]
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<DeviceChoice>,
    /// Print the summary as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Embed images with a trained network.
///
/// Writes one row per image. A `.safetensors` file stores the embeddings with their labels, paths, cameras and
/// the model's fingerprint; a `.npy` file stores the embeddings only (f32, n x d).
#[derive(Debug, Args)]
pub(crate) struct Embed {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Images: a published data set, a folder with one folder per class, a flat folder, a CSV manifest
    /// (path,label[,camera][,split]), a zip archive of any of these, or one image (repeatable)
    #[arg(long, value_name = "PATH", required = true)]
    pub(crate) images: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) part: PartArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Name of the image source. Item ids are computed from source and path: use the same name after moving the
    /// images [default: the absolute path of the images]
    #[arg(long, value_name = "NAME")]
    pub(crate) source: Option<String>,
    /// Output file (.safetensors or .npy)
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Number format of the stored embeddings
    #[arg(long, value_enum, default_value_t = Precision::F32)]
    pub(crate) precision: Precision,
    /// Folder that caches decoded images; does not change the embeddings [default: data.cache_folder of the run
    /// file, if it exists]
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) rows: RowArgs,
    /// Heads of the network that form the embedding, e.g. L,M [default: from the run file, else all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) head: Vec<String>,
    /// How the outputs of several heads are combined [default: from the run file, else concat-then-normalize]
    #[arg(long, value_enum)]
    pub(crate) combine: Option<Combine>,
    /// Print a summary as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Convert embeddings to another format or precision, or join several files.
///
/// Every command reads every precision. Checksums are verified where a file has one, and
/// every value must be finite. Optional data (labels, for example) is written only if all files have it.
#[derive(Debug, Args)]
pub(crate) struct Convert {
    /// Embeddings (.safetensors, or .npy of f32 or f64, n x d)
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Output file (.safetensors or .npy)
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Number format of the stored embeddings
    #[arg(long, value_enum, default_value_t = Precision::F32)]
    pub(crate) precision: Precision,
    /// Allow files of different networks or metrics; distances between their rows are meaningless
    #[arg(long)]
    pub(crate) mix_models: bool,
    /// Print a summary as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

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
    #[arg(long, value_name = "DIR", conflicts_with_all = ["embeddings", "labels", "query_labels", "query_cameras", "gallery_labels", "gallery_cameras", "force"], help_heading = INPUT)]
    pub(crate) run: Option<PathBuf>,
    /// Checkpoint of the run
    #[arg(long, value_enum, default_value_t = Which::Best, requires = "run", help_heading = INPUT)]
    pub(crate) checkpoint: Which,
    /// Folder that caches decoded images; does not change the embeddings [default: data.cache_folder of the run
    /// file, if it exists]
    #[arg(long, value_name = "DIR", requires = "run", help_heading = INPUT)]
    pub(crate) cache: Option<PathBuf>,
    /// Device of the network: auto (a GPU if available), cpu, cuda, cuda:N, wgpu, wgpu:N
    #[arg(long, value_name = "DEVICE", requires = "run", help_heading = INPUT)]
    pub(crate) device: Option<DeviceChoice>,
    /// Embeddings (.safetensors, or .npy of f32 or f64, n x d); each row is a query against all others. A .safetensors
    /// file may contain labels of int32 or int64: docs/embeddings.md
    #[arg(long, value_name = "FILE", help_heading = INPUT)]
    pub(crate) embeddings: Option<PathBuf>,
    /// Labels: .npy of integers, or a text file with one label per line [default: those in the embeddings file]
    #[arg(long, value_name = "FILE", requires = "embeddings", help_heading = INPUT)]
    pub(crate) labels: Option<PathBuf>,
    /// Embeddings of the queries; with --run, their images
    #[arg(long, value_name = "PATH", requires = "gallery", conflicts_with = "embeddings", help_heading = INPUT)]
    pub(crate) query: Option<PathBuf>,
    /// Use only this split of the images of --query [default: query, if it exists]
    #[arg(long, value_name = "NAME", requires_all = ["run", "query"], help_heading = INPUT)]
    pub(crate) query_split: Option<String>,
    /// Labels of the queries [default: those in their file]
    #[arg(long, value_name = "FILE", requires = "query", help_heading = INPUT)]
    pub(crate) query_labels: Option<PathBuf>,
    /// Cameras of the queries: .npy of integers, or a text file with one camera per line [default: those in their file]
    #[arg(long, value_name = "FILE", requires = "query", help_heading = INPUT)]
    pub(crate) query_cameras: Option<PathBuf>,
    /// Embeddings of the gallery (with --run: its images); or an index or milvus://HOST[:PORT]/COLLECTION, whose
    /// ranked lists are measured for --query, or for the --embeddings it was built from
    #[arg(long, value_name = "PATH", help_heading = INPUT)]
    pub(crate) gallery: Option<PathBuf>,
    /// Use only this split of the images of --gallery [default: gallery, if it exists]
    #[arg(long, value_name = "NAME", requires_all = ["run", "gallery"], help_heading = INPUT)]
    pub(crate) gallery_split: Option<String>,
    /// Labels of the gallery [default: those in its file]
    #[arg(long, value_name = "FILE", requires = "gallery", help_heading = INPUT)]
    pub(crate) gallery_labels: Option<PathBuf>,
    /// Cameras of the gallery [default: those in its file]
    #[arg(long, value_name = "FILE", requires = "gallery", help_heading = INPUT)]
    pub(crate) gallery_cameras: Option<PathBuf>,
    /// Cameras of --embeddings [default: those in the file, with --across-cameras]
    #[arg(long, value_name = "FILE", requires = "embeddings", help_heading = INPUT)]
    pub(crate) cameras: Option<PathBuf>,
    /// Compare queries and gallery although they come from different models
    #[arg(long, requires = "gallery", help_heading = INPUT)]
    pub(crate) force: bool,

    /// Rules and metrics of a benchmark: cub200, cars196, sop, inshop, consumer_to_shop, market1501, duke, cuhk03, omniglot, mnist; none: no junk images, cameras ignored [default: from the run file, or the one named in both files]
    #[arg(long, value_name = "NAME", help_heading = MEASURED)]
    pub(crate) protocol: Option<String>,
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with = "recall_at", help_heading = MEASURED)]
    #[arg(help = named::help_of_measures())]
    pub(crate) metrics: Vec<String>,
    /// Values of K for Recall@K; also computes precision@1, MAP@R and R-precision [default: 1,2,4,8]
    #[arg(long, value_name = "K", value_delimiter = ',', conflicts_with = "protocol", help_heading = MEASURED)]
    pub(crate) recall_at: Vec<usize>,
    /// Distance or similarity of two rows [default: from the run or the file, else cosine]
    #[arg(long, value_name = "METRIC", value_parser = named::metrics(), help_heading = MEASURED)]
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
    #[arg(long, value_enum, help_heading = FURTHER)]
    pub(crate) multi_query: Option<Pooling>,
    /// Also compute NMI, AMI and pair F1 of a k-means clustering with one cluster per class
    #[arg(long, help_heading = FURTHER)]
    pub(crate) cluster: bool,
    /// Variant of k-means
    #[arg(long, value_enum, default_value_t = KMeans::Faiss20, requires = "cluster", help_heading = FURTHER)]
    pub(crate) kmeans: KMeans,
    /// Also compute, over all pairs, true accept rates at false accept rates, equal error rate and area under the ROC curve
    #[arg(long, help_heading = FURTHER)]
    pub(crate) verification: bool,
    /// False accept rates, from 0 to 1
    #[arg(long, value_name = "RATE", value_delimiter = ',', default_value = "0.1,0.01,0.001,0.0001", requires = "verification", help_heading = FURTHER)]
    pub(crate) far: Vec<f64>,
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
    #[arg(long, value_name = "PATH", requires = "run", help_heading = FURTHER)]
    pub(crate) one_shot: Option<PathBuf>,
    /// Also compute 95 % confidence intervals from N bootstrap resamples
    #[arg(long, value_name = "N", value_parser = limits::count::<MAX_REPEATS>, help_heading = FURTHER)]
    pub(crate) bootstrap: Option<usize>,
    /// Unit of resampling: single queries, or classes with all their queries
    #[arg(long, value_enum, default_value_t = Over::Queries, requires = "bootstrap", help_heading = FURTHER)]
    pub(crate) bootstrap_over: Over,
    /// Seed of bootstrap, k-means and episodes
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = FURTHER)]
    pub(crate) seed: u64,

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

/// Find the K nearest gallery items of each query image, by exact search or with an index.
#[derive(Debug, Args)]
pub(crate) struct Search {
    /// Embeddings of the gallery, as written by `embed` or `train` (.safetensors), an index, or
    /// milvus://HOST[:PORT]/COLLECTION
    #[arg(long, value_name = "FILE")]
    pub(crate) gallery: PathBuf,
    /// Query images
    #[arg(long, value_name = "IMAGE", required = true, num_args = 1..)]
    pub(crate) query: Vec<PathBuf>,
    /// Results per query
    #[arg(short, value_name = "K", default_value_t = 10, value_parser = limits::count::<1_000_000_000>)]
    pub(crate) k: usize,
    /// Run directory of the network [default: the one that embedded the gallery]
    #[arg(long, value_name = "DIR")]
    pub(crate) run: Option<PathBuf>,
    /// Checkpoint of the run [default: the one that embedded the gallery]
    #[arg(long, value_enum)]
    pub(crate) checkpoint: Option<Which>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Print the ranked lists as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the ranked lists with pictures as an HTML page
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Images of the gallery, for --html [default: the path they were embedded from]
    #[arg(long, value_name = "PATH", requires = "html")]
    pub(crate) images: Option<PathBuf>,
}

/// Compute a loss and its gradient on embeddings from a file.
///
/// The computation uses f64 for files of f64 and f32 for all others. A label `a|b` is a set of labels: two
/// samples that share a label are positives of each other. Rows are not normalized unless --normalize is given.
#[derive(Debug, Args)]
pub(crate) struct Loss {
    /// List all losses and miners with their parameters and defaults, and all presets
    #[arg(long)]
    pub(crate) list: bool,
    /// Name of the loss
    #[arg(long, value_name = "NAME", required_unless_present_any = ["list", "preset"], conflicts_with = "preset")]
    pub(crate) loss: Option<String>,
    /// Preset: a loss with the settings of a paper
    #[arg(long, value_name = "NAME")]
    pub(crate) preset: Option<String>,
    /// Set a parameter of the loss, e.g. --set alpha=1.2 (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Miner, which selects the pairs of the loss: all, semi_hard, hard, distance_weighted, multi_similarity
    #[arg(long, value_name = "NAME")]
    pub(crate) miner: Option<String>,
    /// Set a parameter of the miner, e.g. --miner-set epsilon=0.2 (repeatable)
    #[arg(long, value_name = "KEY=VALUE", requires = "miner")]
    pub(crate) miner_set: Vec<String>,
    /// Embeddings (.npy of f32 or f64, n x d, or .safetensors)
    #[arg(long, value_name = "FILE", required_unless_present = "list")]
    pub(crate) embeddings: Option<PathBuf>,
    /// Labels: .npy of integers, or a text file with one label per line [default: those in the embeddings file]
    #[arg(long, value_name = "FILE")]
    pub(crate) labels: Option<PathBuf>,
    /// Cross-batch memory: embeddings of earlier batches, m x d, added to every ranked list; they get no gradient
    #[arg(long, value_name = "FILE")]
    pub(crate) memory: Option<PathBuf>,
    /// Labels of the cross-batch memory [default: those in its file]
    #[arg(long, value_name = "FILE", requires = "memory")]
    pub(crate) memory_labels: Option<PathBuf>,
    /// Scale rows to length 1 before the loss; the gradient is with respect to the rows of the file
    #[arg(long)]
    pub(crate) normalize: bool,
    /// Write the gradient of the loss with respect to the embeddings: n x d, same dtype
    #[arg(long, value_name = "FILE.npy")]
    pub(crate) gradient: Option<PathBuf>,
    /// Learned parameters of the loss (proxies, class weights) instead of random ones:
    /// a safetensors file with tensors by name, or a checkpoint of a run
    #[arg(long, value_name = "FILE")]
    pub(crate) parameters: Option<PathBuf>,
    /// Write the learned parameters of the loss (safetensors, f32)
    #[arg(long, value_name = "FILE")]
    pub(crate) save_parameters: Option<PathBuf>,
    /// Training step, for losses and miners with a schedule
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) step: usize,
    /// Device of the loss: auto (a GPU if available), cpu, cuda, cuda:N, wgpu, wgpu:N
    #[arg(long, value_name = "DEVICE", default_value_t = DeviceChoice::Cpu)]
    pub(crate) device: DeviceChoice,
    /// Seed of the proxies and of random sampling
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print the value, the per-query values and the counts as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Inspect image sets.
#[derive(Debug, Args)]
pub(crate) struct Data {
    #[command(subcommand)]
    pub(crate) command: DataCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    Info(DataInfo),
}

/// Summarize a data set: images, classes, splits, broken files, duplicates.
///
/// Decodes every image and compares the counts with the published ones. Duplicates are images with
/// identical pixels; a duplicate of a training image in another split is a leak.
///
/// Exit code 1: images are broken or missing, or there are leaks.
#[derive(Debug, Args)]
pub(crate) struct DataInfo {
    /// Images: a published data set, a folder with one folder per class, a flat folder, a CSV manifest, or a zip
    /// archive of any of these
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

/// Download, inspect, import and export weights.
///
/// Reads safetensors, PyTorch's .pth and .pt (no code in them is executed) and checkpoints. Tensor names may
/// be those of torchvision, of the public bn_inception and MXNet mobilenetv2 weights, or our own.
#[derive(Debug, Args)]
pub(crate) struct Weights {
    #[command(subcommand)]
    pub(crate) command: WeightsCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum WeightsCommand {
    List(WeightsList),
    Fetch(WeightsFetch),
    Inspect(WeightsInspect),
    Import(WeightsImport),
    Export(WeightsExport),
}

/// List the public weights that `fetch` can download.
#[derive(Debug, Args)]
pub(crate) struct WeightsList {
    /// Print them as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Download a file of weights and verify its SHA-256.
///
/// Downloads to FILE.part and renames it when it is complete; an interrupted download is resumed.
/// A file with a wrong checksum is rejected.
#[derive(Debug, Args)]
pub(crate) struct WeightsFetch {
    /// A name from `weights list`, or a URL (http or https)
    #[arg(value_name = "NAME|URL")]
    pub(crate) source: String,
    /// Expected SHA-256, 8 to 64 hexadecimal digits; required for a URL
    #[arg(long, value_name = "HEX")]
    pub(crate) sha256: Option<String>,
    /// Output file or directory
    #[arg(long, value_name = "PATH", default_value = ".")]
    pub(crate) out: PathBuf,
    /// Print a summary as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show the tensors of a file, or which of them a network would load.
#[derive(Debug, Args)]
pub(crate) struct WeightsInspect {
    /// File of weights
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Run file whose [network] would load them
    #[arg(long, value_name = "CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Override a key of the run file, as in `train`
    #[arg(long, value_name = "KEY=VALUE", requires = "config")]
    pub(crate) set: Vec<String>,
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Create a model from a file of weights, without training.
///
/// Writes a run directory that `embed`, `evaluate`, `search` and `weights export` accept. With
/// `network.dimensions=0` the embedding is the unchanged feature vector of the network.
#[derive(Debug, Args)]
pub(crate) struct WeightsImport {
    /// File of weights
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Run file with the matching [network] and [image] sections
    #[arg(long, value_name = "CONFIG")]
    pub(crate) config: PathBuf,
    /// Override a key of the run file, as in `train`
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Directory to create
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Print how each tensor was used as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Export a trained network for other programs.
///
/// `.safetensors` contains the tensors with PyTorch's names. `.onnx` contains the model, with the input `images`
/// [batch, channels, height, width] (preprocessed) and the output `embedding` [batch, dimensions]. The metadata
/// of the file describes the preprocessing.
#[derive(Debug, Args)]
pub(crate) struct WeightsExport {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Output file (.safetensors or .onnx)
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) rows: RowArgs,
    /// Heads of the network that form the embedding, e.g. L,M [default: from the run file, else all] (.onnx)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) head: Vec<String>,
    /// How the outputs of several heads are combined [default: from the run file, else concat-then-normalize] (.onnx)
    #[arg(long, value_enum)]
    pub(crate) combine: Option<Combine>,
}

/// Show the keys and defaults of run files.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Config {
    /// Print a run file with every key, its default and its meaning
    #[arg(long, conflicts_with = "check")]
    pub(crate) print_defaults: bool,
    /// Check a run file and print the resolved configuration
    #[arg(long, value_name = "CONFIG")]
    pub(crate) check: Option<PathBuf>,
    /// Override a key, as in `train`
    #[arg(long, value_name = "KEY=VALUE", requires = "check")]
    pub(crate) set: Vec<String>,
    /// Print JSON instead of TOML
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print a completion script for a shell.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// Shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// Split, layout and labels of an image set.
#[derive(Debug, Args)]
pub(crate) struct PartArgs {
    /// Use only this split: train, test, query or gallery, as defined by the data set's layout, the column
    /// `split` of a manifest, or folder names [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) split: Option<String>,
    /// Layout of the files: manifest, cub200_2011, cub200_2010, cars196, sop, inshop,
    /// consumer_to_shop, market1501, dukemtmc, cuhk03_np_detected, cuhk03_np_labeled, mnist, omniglot,
    /// folders [default: detected from the content]
    #[arg(long, value_name = "NAME")]
    pub(crate) layout: Option<DatasetLayout>,
    /// Crop images to their bounding boxes (CUB-200, Cars196, DeepFashion)
    #[arg(long)]
    pub(crate) crop_boxes: bool,
    /// Part of a hierarchical label that is the class: path (`Fruit/Apple`) or leaf (`Apple`)
    #[arg(long, value_name = "PART", default_value_t)]
    pub(crate) label_from: LabelFrom,
}

impl PartArgs {
    pub(crate) fn options(&self) -> OpenOptions {
        OpenOptions {
            layout: self.layout,
            split: self.split.clone(),
            crop_boxes: self.crop_boxes,
            label_from: self.label_from,
            ..OpenOptions::default()
        }
    }
}

/// Normalization of the rows.
#[derive(Debug, Args)]
pub(crate) struct RowArgs {
    /// Scale rows to length 1 (yes), or write the outputs of the network unchanged (no) [default: by the run's
    /// evaluation.metric: yes for cosine, no for euclidean]
    #[arg(long, value_enum, value_name = "YES|NO", hide_possible_values = true)]
    normalize: Option<YesNo>,
    /// The older name of --normalize no
    #[arg(long, hide = true, conflicts_with = "normalize")]
    raw: bool,
}

impl RowArgs {
    /// Whether rows are scaled; `None`: as the metric of the run asks for.
    pub(crate) fn normalize(&self) -> Option<bool> {
        match (self.normalize, self.raw) {
            (Some(answer), _) => Some(answer == YesNo::Yes),
            (None, true) => Some(false),
            (None, false) => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum YesNo {
    Yes,
    No,
}

/// Device of the network.
#[derive(Debug, Args)]
pub(crate) struct DeviceArgs {
    /// Device of the network: auto (a GPU if available), cpu, cuda, cuda:N, wgpu, wgpu:N
    #[arg(long, value_name = "DEVICE", default_value_t = DeviceChoice::Auto)]
    pub(crate) device: DeviceChoice,
}

/// A trained network.
#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// Run directory
    #[arg(long, value_name = "DIR")]
    pub(crate) run: PathBuf,
    /// Checkpoint of the run
    #[arg(long, value_enum, default_value_t = Which::Best)]
    pub(crate) checkpoint: Which,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Which {
    /// The one with the best validation result
    Best,
    /// The one of the last step
    Last,
}

impl From<Which> for gallerist_train::Which {
    fn from(which: Which) -> Self {
        match which {
            Which::Best => Self::Best,
            Which::Last => Self::Last,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum Precision {
    /// 4 bytes per value, exact
    F32,
    /// 2 bytes per value: 8 bits of precision (.safetensors only)
    Bf16,
    /// 1 byte per value: 255 steps between plus and minus the largest magnitude of the row (.safetensors only)
    Int8,
}

impl Precision {
    pub(crate) fn code(self) -> Option<crate::retrieval::Code> {
        match self {
            Precision::F32 => None,
            Precision::Bf16 => Some(crate::retrieval::Code::Bf16),
            Precision::Int8 => Some(crate::retrieval::Code::Int8),
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Combine {
    /// Concatenate the outputs, then scale to length 1
    ConcatThenNormalize,
    /// Scale each output to length 1, then concatenate
    NormalizeThenConcat,
}

impl From<Combine> for gallerist_nn::Combine {
    fn from(combine: Combine) -> Self {
        match combine {
            Combine::ConcatThenNormalize => Self::ConcatThenNormalize,
            Combine::NormalizeThenConcat => Self::NormalizeThenConcat,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Rerank {
    /// k-reciprocal encoding (Zhong et al., 2017)
    KReciprocal,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Pooling {
    /// Mean of each dimension
    Average,
    /// Maximum of each dimension
    Max,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum KMeans {
    /// One random start, 20 iterations
    Faiss20,
    /// Best of 10 k-means++ starts, up to 300 iterations each
    Sklearn10,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Over {
    /// Single queries
    Queries,
    /// Classes with all their queries
    Classes,
}

impl From<Pooling> for crate::retrieval::eval::Pooling {
    fn from(pooling: Pooling) -> Self {
        match pooling {
            Pooling::Average => Self::Average,
            Pooling::Max => Self::Max,
        }
    }
}

impl From<KMeans> for crate::retrieval::cluster::Preset {
    fn from(kmeans: KMeans) -> Self {
        match kmeans {
            KMeans::Faiss20 => Self::Faiss20,
            KMeans::Sklearn10 => Self::Sklearn10,
        }
    }
}

impl From<Over> for crate::retrieval::eval::Over {
    fn from(over: Over) -> Self {
        match over {
            Over::Queries => Self::Queries,
            Over::Classes => Self::Classes,
        }
    }
}
