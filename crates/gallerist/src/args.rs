//! The command line, parsed into plain structs.

pub(crate) mod index;
mod limits;
pub(crate) mod plot;
mod serve;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use gallerist::data::{LabelFrom, Layout, OpenOptions};
use gallerist::device::DeviceChoice;
use gallerist::train::limits::{MAX_REPEATS, MAX_THREADS};

pub(crate) use serve::Serve;

/// Deep metric learning and image retrieval.
#[derive(Debug, Parser)]
#[command(name = "gallerist", version, max_term_width = 100, arg_required_else_help = true)]
#[command(
    after_help = "Exit codes: 0 done; 1 done, with something to look at (named on stderr); 2 could not run; \
    130 interrupted (a checkpoint was written)."
)]
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
/// The run directory gets the resolved configuration (config.toml), the checkpoints
/// (checkpoints/last.safetensors and best.safetensors), the log (log.jsonl), the embeddings of the
/// test images (embeddings.safetensors; of queries and a gallery, query.safetensors and gallery.safetensors),
/// the metrics (metrics.json) and the report (report.html).
///
/// Ctrl-C writes a checkpoint and stops; `--resume DIR` goes on, on the processor to the same result to the last
/// bit.
#[derive(Debug, Args)]
#[command(override_usage = "gallerist train [OPTIONS] CONFIG\n       gallerist train [OPTIONS] --resume DIR")]
pub(crate) struct Train {
    /// Run file (TOML); `gallerist config --print-defaults` shows every key
    #[arg(required_unless_present = "resume", conflicts_with = "resume")]
    pub(crate) config: Option<PathBuf>,
    /// Change a key of the run file, e.g. --set train.steps=500 (repeatable)
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "resume")]
    pub(crate) set: Vec<String>,
    /// Measure where the time goes: a line at the end, all of it in the run's profile.json (log.profile)
    #[arg(long, conflicts_with = "resume")]
    pub(crate) profile: bool,
    /// Run directory; it must not hold another run [default: runs/NAME of the run file, numbered]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub(crate) out: Option<PathBuf>,
    /// Go on with an interrupted run from its last checkpoint
    #[arg(long, value_name = "DIR")]
    pub(crate) resume: Option<PathBuf>,
    /// Where the network computes: auto (a GPU if there is one), cpu, cuda, cuda:N, wgpu, wgpu:N [default: the run
    /// file's, which is auto unless set]
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<DeviceChoice>,
    /// Print the summary as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Embed images with a trained network.
///
/// Writes one row per image. A `.safetensors` file holds labels, paths, cameras and the model's
/// fingerprint beside the embeddings; a `.npy` file holds the embeddings alone (f32, n x d).
#[derive(Debug, Args)]
pub(crate) struct Embed {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// A published data set, a folder of class folders, a flat folder, a CSV manifest
    /// (path,label[,camera][,split]), a zip of any of these, or one image (repeatable)
    #[arg(long, value_name = "PATH", required = true)]
    pub(crate) images: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) part: PartArgs,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Name of the images' source, which with their paths makes their ids: give the same name after the images were
    /// moved [default: the absolute path of the images]
    #[arg(long, value_name = "NAME")]
    pub(crate) source: Option<String>,
    /// Where the embeddings go (.safetensors or .npy)
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// How the embeddings are stored
    #[arg(long, value_enum, default_value_t = Precision::F32)]
    pub(crate) precision: Precision,
    /// Folder in which decoded images are kept and found again; the embeddings are the same [default: the run file's
    /// data.cache_folder, where that is there]
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) rows: RowArgs,
    /// Heads of the network that make the embedding, e.g. L,M [default: the run file's, else all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) head: Vec<String>,
    /// How several heads become one row [default: the run file's, else concat-then-normalize]
    #[arg(long, value_enum)]
    pub(crate) combine: Option<Combine>,
    /// Print a summary as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Rewrite embeddings in another format or precision, or join several files into one gallery.
///
/// Every command reads every precision. Files that carry a checksum are checked against it, and
/// every value must be finite. What not all files have, labels for one, is left out.
#[derive(Debug, Args)]
pub(crate) struct Convert {
    /// Embeddings (.safetensors, or .npy of f32 or f64, n x d)
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Where the embeddings go (.safetensors or .npy)
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// How the embeddings are stored
    #[arg(long, value_enum, default_value_t = Precision::F32)]
    pub(crate) precision: Precision,
    /// Join embeddings of different networks or metrics, though distances between them mean nothing
    #[arg(long)]
    pub(crate) mix_models: bool,
    /// Print a summary as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Measure retrieval: every image against all the others, or queries against a gallery.
///
/// The protocol of a published set of queries and a gallery (Market-1501, DukeMTMC-reID, CUHK03-NP, DeepFashion) is
/// applied without --protocol: the run and its embeddings files name it.
///
/// Queries without a relevant image count as misses in Recall@K and are left out of MAP@R and mAP; the
/// result says how many there were. Ties are broken by the lower index and counted. Labels `a|b` are
/// sets: two images that share a label are relevant to each other, and the number of shared labels is
/// the grade of NDCG. docs/metrics.md defines every metric.
#[derive(Debug, Args)]
#[command(
    override_usage = "gallerist evaluate [OPTIONS] --run DIR\n       gallerist evaluate [OPTIONS] --embeddings FILE\n       \
    gallerist evaluate [OPTIONS] --query FILE --gallery FILE"
)]
pub(crate) struct Evaluate {
    /// Run directory: embeds its test images again, or the images of --query and --gallery, and measures what its
    /// [evaluation] asks for
    #[arg(long, value_name = "DIR", conflicts_with_all = ["embeddings", "labels", "query_labels", "query_cameras", "gallery_labels", "gallery_cameras", "force"], help_heading = INPUT)]
    pub(crate) run: Option<PathBuf>,
    /// Which of the run's checkpoints
    #[arg(long, value_enum, default_value_t = Which::Best, requires = "run", help_heading = INPUT)]
    pub(crate) checkpoint: Which,
    /// Folder in which decoded images are kept and found again; the embeddings are the same [default: the run file's
    /// data.cache_folder, where that is there]
    #[arg(long, value_name = "DIR", requires = "run", help_heading = INPUT)]
    pub(crate) cache: Option<PathBuf>,
    /// Where the run's network computes: auto (a GPU if there is one), cpu, cuda, cuda:N, wgpu, wgpu:N
    #[arg(long, value_name = "DEVICE", requires = "run", help_heading = INPUT)]
    pub(crate) device: Option<DeviceChoice>,
    /// Embeddings (.safetensors, or .npy of f32 or f64, n x d), each row a query against the others. A .safetensors file
    /// may hold labels of int32 or int64: docs/embeddings.md
    #[arg(long, value_name = "FILE", help_heading = INPUT)]
    pub(crate) embeddings: Option<PathBuf>,
    /// Labels: .npy of integers or a text file, one label a line [default: those in the embeddings file]
    #[arg(long, value_name = "FILE", requires = "embeddings", help_heading = INPUT)]
    pub(crate) labels: Option<PathBuf>,
    /// Embeddings of the queries; with --run, their images
    #[arg(long, value_name = "PATH", requires = "gallery", conflicts_with = "embeddings", help_heading = INPUT)]
    pub(crate) query: Option<PathBuf>,
    /// Take only this split of the images of --query [default: query, where they have it]
    #[arg(long, value_name = "NAME", requires_all = ["run", "query"], help_heading = INPUT)]
    pub(crate) query_split: Option<String>,
    /// Labels of the queries [default: those in their file]
    #[arg(long, value_name = "FILE", requires = "query", help_heading = INPUT)]
    pub(crate) query_labels: Option<PathBuf>,
    /// Cameras of the queries, one a line or .npy of integers [default: those in their file]
    #[arg(long, value_name = "FILE", requires = "query", help_heading = INPUT)]
    pub(crate) query_cameras: Option<PathBuf>,
    /// Embeddings of the gallery, with --run its images; or an index or milvus://HOST[:PORT]/COLLECTION, whose lists
    /// are measured: with --query, or with the --embeddings that it was made of
    #[arg(long, value_name = "PATH", help_heading = INPUT)]
    pub(crate) gallery: Option<PathBuf>,
    /// Take only this split of the images of --gallery [default: gallery, where they have it]
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
    /// Compare embeddings although queries and gallery name different models
    #[arg(long, requires = "gallery", help_heading = INPUT)]
    pub(crate) force: bool,

    /// A benchmark's rules and metrics: cub200, cars196, sop, inshop, consumer_to_shop, market1501, duke, cuhk03, omniglot, mnist; none: no junk, no cameras [default: what the run file says, or both files name]
    #[arg(long, value_name = "NAME", help_heading = MEASURED)]
    pub(crate) protocol: Option<String>,
    /// What is measured: recall@K, precision@K, map@r, r_precision, map, map_trapezoid, mrr, ndcg, ndcg@K, ndcg_exp, ndcg_exp@K, cmc@K, precision_at_recall@K (in per cent) [default: the protocol's, else recall@1,2,4,8, precision@1, map@r, r_precision]
    #[arg(long, value_name = "NAME", value_delimiter = ',', conflicts_with = "recall_at", help_heading = MEASURED)]
    pub(crate) metrics: Vec<String>,
    /// The K of Recall@K, with precision@1, MAP@R and R-precision [default: 1,2,4,8]
    #[arg(long, value_name = "K", value_delimiter = ',', conflicts_with = "protocol", help_heading = MEASURED)]
    pub(crate) recall_at: Vec<usize>,
    /// How rows are compared [default: as the run or the file says, else cosine]
    #[arg(long, value_enum, help_heading = MEASURED)]
    pub(crate) metric: Option<Metric>,
    /// Skip images of the query's label from the query's own camera (the protocols of persons do)
    #[arg(long, conflicts_with_all = ["protocol", "run"], help_heading = MEASURED)]
    pub(crate) across_cameras: bool,

    /// Measure again after re-ranking
    #[arg(long, value_enum, help_heading = FURTHER)]
    pub(crate) rerank: Option<Rerank>,
    /// Neighbours that must be mutual
    #[arg(long, value_name = "N", default_value_t = 20, requires = "rerank", help_heading = FURTHER)]
    pub(crate) k1: usize,
    /// Neighbours whose vectors are averaged, the image itself among them; 1: none
    #[arg(long, value_name = "N", default_value_t = 6, requires = "rerank", help_heading = FURTHER)]
    pub(crate) k2: usize,
    /// Share of the original distance, from 0 to 1
    #[arg(long, value_name = "X", default_value_t = 0.3, requires = "rerank", help_heading = FURTHER)]
    pub(crate) lambda: f64,
    /// Measure again with each query replaced by the mean of itself and its N nearest images
    #[arg(long, value_name = "N", help_heading = FURTHER)]
    pub(crate) query_expansion: Option<usize>,
    /// Weight neighbours by this power of their similarity; 0: all alike
    #[arg(long, value_name = "X", default_value_t = 0.0, requires = "query_expansion", help_heading = FURTHER)]
    pub(crate) alpha: f64,
    /// Measure again with all query images of an identity and a camera as one query
    #[arg(long, value_enum, help_heading = FURTHER)]
    pub(crate) multi_query: Option<Pooling>,
    /// NMI, AMI and pair F1 of a k-means clustering, one cluster a class
    #[arg(long, help_heading = FURTHER)]
    pub(crate) cluster: bool,
    /// Which k-means
    #[arg(long, value_enum, default_value_t = KMeans::Faiss20, requires = "cluster", help_heading = FURTHER)]
    pub(crate) kmeans: KMeans,
    /// True accept rates at false accept rates over all pairs, equal error rate, area under the ROC curve
    #[arg(long, help_heading = FURTHER)]
    pub(crate) verification: bool,
    /// The false accept rates, from 0 to 1
    #[arg(long, value_name = "RATE", value_delimiter = ',', default_value = "0.1,0.01,0.001,0.0001", requires = "verification", help_heading = FURTHER)]
    pub(crate) far: Vec<f64>,
    /// Retrieval in small galleries drawn with --seed: classes x gallery images a class, e.g. 5x1
    #[arg(long, value_name = "WAYSxSHOTS", help_heading = FURTHER)]
    pub(crate) few_shot: Option<WaysShots>,
    /// Query images a class in an episode
    #[arg(long, value_name = "N", default_value_t = 15, requires = "few_shot", help_heading = FURTHER)]
    pub(crate) episode_queries: usize,
    /// Episodes
    #[arg(long, value_name = "N", default_value_t = 600, value_parser = limits::count::<MAX_REPEATS>, requires = "few_shot", help_heading = FURTHER)]
    pub(crate) episodes: usize,
    /// One-shot classification on given runs, such as Omniglot's all_runs.zip (or its folder)
    #[arg(long, value_name = "PATH", requires = "run", help_heading = FURTHER)]
    pub(crate) one_shot: Option<PathBuf>,
    /// 95 % confidence intervals from N resamples
    #[arg(long, value_name = "N", value_parser = limits::count::<MAX_REPEATS>, help_heading = FURTHER)]
    pub(crate) bootstrap: Option<usize>,
    /// What is drawn: single queries, or classes with all their queries
    #[arg(long, value_enum, default_value_t = Over::Queries, requires = "bootstrap", help_heading = FURTHER)]
    pub(crate) bootstrap_over: Over,
    /// Seed of the bootstrap, of k-means and of the episodes
    #[arg(long, value_name = "N", default_value_t = 0, help_heading = FURTHER)]
    pub(crate) seed: u64,

    /// Print everything as JSON on stdout
    #[arg(long, help_heading = OUTPUT)]
    pub(crate) json: bool,
    /// Write the report as a page: metrics, curves, histograms, a map, ranked lists (with pictures where the images
    /// can be found)
    #[arg(long, value_name = "FILE", help_heading = OUTPUT)]
    pub(crate) html: Option<PathBuf>,
}

const INPUT: &str = "Input";
const MEASURED: &str = "What is measured";
const FURTHER: &str = "Further rows";
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

/// Search a gallery with query images: the K nearest by exact search, or by that of an index.
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
    /// Which of the run's checkpoints [default: the one that embedded the gallery]
    #[arg(long, value_enum)]
    pub(crate) checkpoint: Option<Which>,
    #[command(flatten)]
    pub(crate) device: DeviceArgs,
    /// Print the ranked lists as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a page with the pictures
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
    /// Where the gallery's images are, for the page [default: where they were embedded from]
    #[arg(long, value_name = "PATH", requires = "html")]
    pub(crate) images: Option<PathBuf>,
}

/// Compute a loss and its gradient on embeddings from a file.
///
/// Files of f64 are computed in f64, others in f32. Labels `a|b` are sets: two samples that share a
/// label are positives of each other. Losses take the rows as they are; see --normalize.
#[derive(Debug, Args)]
pub(crate) struct Loss {
    /// Show all losses and miners with their parameters and defaults, and the presets
    #[arg(long)]
    pub(crate) list: bool,
    /// The loss
    #[arg(long, value_name = "NAME", required_unless_present_any = ["list", "preset"], conflicts_with = "preset")]
    pub(crate) loss: Option<String>,
    /// A paper's named setting of a loss
    #[arg(long, value_name = "NAME")]
    pub(crate) preset: Option<String>,
    /// A parameter of the loss, e.g. --set alpha=1.2 (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Which pairs the loss looks at: all, semi_hard, hard, distance_weighted, multi_similarity
    #[arg(long, value_name = "NAME")]
    pub(crate) miner: Option<String>,
    /// A parameter of the miner, e.g. --miner-set epsilon=0.2 (repeatable)
    #[arg(long, value_name = "KEY=VALUE", requires = "miner")]
    pub(crate) miner_set: Vec<String>,
    /// Embeddings (.npy of f32 or f64, n x d, or .safetensors)
    #[arg(long, value_name = "FILE", required_unless_present = "list")]
    pub(crate) embeddings: Option<PathBuf>,
    /// Labels: .npy of integers or text, one label a line [default: those in the embeddings file]
    #[arg(long, value_name = "FILE")]
    pub(crate) labels: Option<PathBuf>,
    /// Embeddings of earlier batches that lengthen every ranked list (cross-batch memory), m x d; constants
    #[arg(long, value_name = "FILE")]
    pub(crate) memory: Option<PathBuf>,
    /// Labels of the memory [default: those in its file]
    #[arg(long, value_name = "FILE", requires = "memory")]
    pub(crate) memory_labels: Option<PathBuf>,
    /// Scale the rows to length 1 first; the gradient is that of the rows as they are in the file
    #[arg(long)]
    pub(crate) normalize: bool,
    /// Write the gradient of the value, n x d, of the embeddings' type
    #[arg(long, value_name = "FILE.npy")]
    pub(crate) gradient: Option<PathBuf>,
    /// Parameters that the loss learns (proxies, class weights), instead of newly drawn ones:
    /// safetensors by name, or a run's checkpoint
    #[arg(long, value_name = "FILE")]
    pub(crate) parameters: Option<PathBuf>,
    /// Write the parameters that the loss learns, safetensors of f32
    #[arg(long, value_name = "FILE")]
    pub(crate) save_parameters: Option<PathBuf>,
    /// Steps done, for losses and miners that change in the course of training
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) step: usize,
    /// Where the loss computes: auto (a GPU if there is one), cpu, cuda, cuda:N, wgpu, wgpu:N
    #[arg(long, value_name = "DEVICE", default_value_t = DeviceChoice::Cpu)]
    pub(crate) device: DeviceChoice,
    /// Seed of proxies and of random draws
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print value, per-query values and counts as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Look at image sets before they are used.
#[derive(Debug, Args)]
pub(crate) struct Data {
    #[command(subcommand)]
    pub(crate) command: DataCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    Info(DataInfo),
}

/// Say what a data set holds: images, classes, splits, broken files, duplicates.
///
/// Every image is decoded. Counts are held against the published ones. Duplicates are images with
/// the same pixels; one in training and one elsewhere is a leak.
///
/// Exit code 1: images are broken or missing, or there are leaks.
#[derive(Debug, Args)]
pub(crate) struct DataInfo {
    /// A published data set, a folder of class folders, a flat folder, a CSV manifest, or a zip of any of
    /// these
    #[arg(required = true)]
    pub(crate) path: Vec<PathBuf>,
    /// A test set of its own: the PATHs are the training set
    #[arg(long, value_name = "PATH")]
    pub(crate) test: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) part: PartArgs,
    /// Threads that decode; 0: one per core
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = limits::count::<MAX_THREADS>)]
    pub(crate) threads: usize,
    /// Print all of it as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Look at files of weights, fetch them, make a model of them, and give a model to other programs.
///
/// Read are safetensors, PyTorch's .pth and .pt (nothing in them is executed) and checkpoints, with the
/// names of torchvision, of the bn_inception and MXNet mobilenetv2 weights in circulation, and our own.
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

/// Show the public weights that `fetch` knows.
#[derive(Debug, Args)]
pub(crate) struct WeightsList {
    /// Print them as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Fetch a file of weights and check its SHA-256.
///
/// The file grows as FILE.part and is moved to its place when it is whole; a transfer that broke off goes on
/// where it stopped. A wrong checksum is refused.
#[derive(Debug, Args)]
pub(crate) struct WeightsFetch {
    /// A name that `weights list` shows, or an address (http or https)
    #[arg(value_name = "NAME|URL")]
    pub(crate) source: String,
    /// SHA-256 that the file must have, 8 to 64 hexadecimal digits; needed for an address
    #[arg(long, value_name = "HEX")]
    pub(crate) sha256: Option<String>,
    /// Where it goes: a file, or a directory
    #[arg(long, value_name = "PATH", default_value = ".")]
    pub(crate) out: PathBuf,
    /// Print a summary as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show the tensors of a file, or what a network would take of them.
#[derive(Debug, Args)]
pub(crate) struct WeightsInspect {
    /// File of weights
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Run file whose [network] is to take them
    #[arg(long, value_name = "CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Change a key of the run file, as in `train`
    #[arg(long, value_name = "KEY=VALUE", requires = "config")]
    pub(crate) set: Vec<String>,
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Make a model of a file of weights, without training.
///
/// The directory is like a run's, so that `embed`, `evaluate`, `search` and `weights export` take it. With
/// `network.dimensions=0` the embedding is the network's features as they are.
#[derive(Debug, Args)]
pub(crate) struct WeightsImport {
    /// File of weights
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// Run file with the [network] and the [image] that fit them
    #[arg(long, value_name = "CONFIG")]
    pub(crate) config: PathBuf,
    /// Change a key of the run file, as in `train`
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Directory to make
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Print what became of the tensors as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Write a trained network for other programs.
///
/// `.safetensors` has the tensors with PyTorch's names; `.onnx` has the model from prepared images `images`
/// [batch, channels, height, width] to `embedding` [batch, dimensions]. How images are prepared is in the
/// file's metadata.
#[derive(Debug, Args)]
pub(crate) struct WeightsExport {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Where it goes (.safetensors or .onnx)
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    #[command(flatten)]
    pub(crate) rows: RowArgs,
    /// Heads of the network that make the embedding, e.g. L,M [default: the run file's, else all] (.onnx)
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) head: Vec<String>,
    /// How several heads become one row [default: the run file's, else concat-then-normalize] (.onnx)
    #[arg(long, value_enum)]
    pub(crate) combine: Option<Combine>,
}

/// Show the run file's keys and defaults.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Config {
    /// Print a run file with every key, its default and what it means
    #[arg(long, conflicts_with = "check")]
    pub(crate) print_defaults: bool,
    /// Check a run file and print it resolved
    #[arg(long, value_name = "CONFIG")]
    pub(crate) check: Option<PathBuf>,
    /// Change a key, as in `train`
    #[arg(long, value_name = "KEY=VALUE", requires = "check")]
    pub(crate) set: Vec<String>,
    /// Print JSON instead of TOML
    #[arg(long)]
    pub(crate) json: bool,
}

/// Print a shell's completion script.
#[derive(Debug, Args)]
pub(crate) struct Completions {
    /// The shell
    #[arg(value_enum)]
    pub(crate) shell: clap_complete::Shell,
}

/// Which part of an image set, and how it is laid out.
#[derive(Debug, Args)]
pub(crate) struct PartArgs {
    /// Take only this split: train, test, query, gallery, as the data set's layout, the column
    /// `split` of a manifest or the names of folders have it [default: all]
    #[arg(long, value_name = "NAME")]
    pub(crate) split: Option<String>,
    /// How the files are laid out: manifest, cub200_2011, cub200_2010, cars196, sop, inshop,
    /// consumer_to_shop, market1501, dukemtmc, cuhk03_np_detected, cuhk03_np_labeled, mnist, omniglot,
    /// folders [default: told by the content]
    #[arg(long, value_name = "NAME")]
    pub(crate) layout: Option<Layout>,
    /// Cut images to their bounding boxes (CUB-200, Cars196, DeepFashion)
    #[arg(long)]
    pub(crate) crop_boxes: bool,
    /// Which part of a label is the class: path (`Fruit/Apple`) or leaf (`Apple`)
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

/// The length of the rows.
#[derive(Debug, Args)]
pub(crate) struct RowArgs {
    /// Rows of length 1 (yes), or as the network gives them (no) [default: as the run compares its embeddings,
    /// evaluation.metric: yes for cosine, no for euclidean]
    #[arg(long, value_enum, value_name = "YES|NO", hide_possible_values = true)]
    normalize: Option<YesNo>,
    /// The older name of --normalize no
    #[arg(long, hide = true, conflicts_with = "normalize")]
    raw: bool,
}

impl RowArgs {
    /// The model with the rows asked for.
    pub(crate) fn of(&self, model: gallerist::model::Model) -> gallerist::model::Model {
        match (self.normalize, self.raw) {
            (Some(answer), _) => model.normalized(answer == YesNo::Yes),
            (None, true) => model.normalized(false),
            (None, false) => model,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
enum YesNo {
    Yes,
    No,
}

/// Where the network computes.
#[derive(Debug, Args)]
pub(crate) struct DeviceArgs {
    /// Where the network computes: auto (a GPU if there is one), cpu, cuda, cuda:N, wgpu, wgpu:N
    #[arg(long, value_name = "DEVICE", default_value_t = DeviceChoice::Auto)]
    pub(crate) device: DeviceChoice,
}

/// Which trained network.
#[derive(Debug, Args)]
pub(crate) struct ModelArgs {
    /// Run directory
    #[arg(long, value_name = "DIR")]
    pub(crate) run: PathBuf,
    /// Which of the run's checkpoints
    #[arg(long, value_enum, default_value_t = Which::Best)]
    pub(crate) checkpoint: Which,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Which {
    /// With the best validation
    Best,
    /// After the last step
    Last,
}

impl From<Which> for gallerist_learn::train::Which {
    fn from(which: Which) -> Self {
        match which {
            Which::Best => Self::Best,
            Which::Last => Self::Last,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum Precision {
    /// 4 bytes a value, as the network gave it
    F32,
    /// 2 bytes a value: 8 bits of precision (.safetensors only)
    Bf16,
    /// 1 byte a value: 255 steps between plus and minus the row's largest (.safetensors only)
    Int8,
}

impl Precision {
    pub(crate) fn code(self) -> Option<gallerist::retrieval::Code> {
        match self {
            Precision::F32 => None,
            Precision::Bf16 => Some(gallerist::retrieval::Code::Bf16),
            Precision::Int8 => Some(gallerist::retrieval::Code::Int8),
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Combine {
    /// Raw outputs one after the other, then scaled to length 1
    ConcatThenNormalize,
    /// Each head scaled to length 1 first
    NormalizeThenConcat,
}

impl From<Combine> for gallerist_learn::network::Combine {
    fn from(combine: Combine) -> Self {
        match combine {
            Combine::ConcatThenNormalize => Self::ConcatThenNormalize,
            Combine::NormalizeThenConcat => Self::NormalizeThenConcat,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Metric {
    /// Rows scaled to length 1; similarity is their product
    Cosine,
    /// Euclidean distance of the rows as they are
    Euclidean,
    /// Inner product of the rows as they are
    InnerProduct,
}

impl From<Metric> for gallerist_retrieval::search::Metric {
    fn from(metric: Metric) -> Self {
        match metric {
            Metric::Cosine => Self::Cosine,
            Metric::Euclidean => Self::Euclidean,
            Metric::InnerProduct => Self::InnerProduct,
        }
    }
}

#[derive(Clone, Copy, Debug, ValueEnum)]
#[value(rename_all = "snake_case")]
pub(crate) enum Rerank {
    /// By k-reciprocal neighbours (Zhong et al., 2017)
    KReciprocal,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Pooling {
    /// The mean of each value
    Average,
    /// The largest of each value
    Max,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum KMeans {
    /// 20 iterations from one start of random rows
    Faiss20,
    /// The best of 10 starts by k-means++, 300 iterations each
    Sklearn10,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Over {
    /// Single queries
    Queries,
    /// Classes with all their queries
    Classes,
}
