//! The command line, parsed into plain structs.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

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
    Evaluate(Evaluate),
    Search(Search),
    Loss(Loss),
    Config(Config),
    Completions(Completions),
}

/// Train an embedding network from a run file, evaluate it, and write a report.
///
/// The run directory gets the resolved configuration (config.toml), the checkpoints
/// (checkpoints/last.safetensors and best.safetensors), the log (log.jsonl), the embeddings of the
/// test images (embeddings.safetensors), the metrics (metrics.json) and the report (report.html).
///
/// Ctrl-C writes a checkpoint and stops; `--resume DIR` goes on, to the same result to the last bit.
#[derive(Debug, Args)]
#[command(override_usage = "gallerist train [OPTIONS] CONFIG\n       gallerist train [OPTIONS] --resume DIR")]
pub(crate) struct Train {
    /// Run file (TOML); `gallerist config --print-defaults` shows every key
    #[arg(required_unless_present = "resume", conflicts_with = "resume")]
    pub(crate) config: Option<PathBuf>,
    /// Change a key of the run file, e.g. --set train.steps=500 (repeatable)
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "resume")]
    pub(crate) set: Vec<String>,
    /// Run directory; it must not hold another run [default: runs/NAME of the run file, numbered]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub(crate) out: Option<PathBuf>,
    /// Go on with an interrupted run from its last checkpoint
    #[arg(long, value_name = "DIR")]
    pub(crate) resume: Option<PathBuf>,
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
    /// A folder of class folders, a flat folder, a CSV manifest (path,label[,camera][,split]), a zip
    /// of any of these, or one image (repeatable)
    #[arg(long, value_name = "PATH", required = true)]
    pub(crate) images: Vec<PathBuf>,
    /// Take only the rows of a manifest with this split
    #[arg(long, value_name = "NAME")]
    pub(crate) split: Option<String>,
    /// Where the embeddings go (.safetensors or .npy)
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Write the network's output as it is instead of rows of length 1
    #[arg(long)]
    pub(crate) raw: bool,
    /// Print a summary as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Measure retrieval: every image is a query against all the others.
///
/// Queries without a relevant image count as misses in Recall@K and are left out of MAP@R; the
/// result says how many there were. Ties are broken by the lower index and counted.
#[derive(Debug, Args)]
pub(crate) struct Evaluate {
    /// Run directory: embeds its test images again and measures them
    #[arg(long, value_name = "DIR", required_unless_present = "embeddings", conflicts_with_all = ["embeddings", "labels"])]
    pub(crate) run: Option<PathBuf>,
    /// Which of the run's checkpoints
    #[arg(long, value_enum, default_value_t = Which::Best, conflicts_with = "embeddings")]
    pub(crate) checkpoint: Which,
    /// Embeddings (.safetensors, or .npy of f32 or f64, n x d)
    #[arg(long, value_name = "FILE")]
    pub(crate) embeddings: Option<PathBuf>,
    /// Labels: .npy of integers or a text file, one label a line [default: those in the embeddings file]
    #[arg(long, value_name = "FILE", requires = "embeddings")]
    pub(crate) labels: Option<PathBuf>,
    /// The K of Recall@K
    #[arg(long, value_name = "K", value_delimiter = ',', default_value = "1,2,4,8")]
    pub(crate) recall_at: Vec<usize>,
    /// How rows are compared
    #[arg(long, value_enum, default_value_t = Metric::Cosine)]
    pub(crate) metric: Metric,
    /// Print the metrics as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Search a gallery with query images: the K nearest by exact search.
#[derive(Debug, Args)]
pub(crate) struct Search {
    /// Embeddings of the gallery, as written by `embed` or `train` (.safetensors)
    #[arg(long, value_name = "FILE")]
    pub(crate) gallery: PathBuf,
    /// Query images
    #[arg(long, value_name = "IMAGE", required = true, num_args = 1..)]
    pub(crate) query: Vec<PathBuf>,
    /// Results per query
    #[arg(short, value_name = "K", default_value_t = 10)]
    pub(crate) k: usize,
    /// Run directory of the network [default: the one that embedded the gallery]
    #[arg(long, value_name = "DIR")]
    pub(crate) run: Option<PathBuf>,
    /// Which of the run's checkpoints [default: the one that embedded the gallery]
    #[arg(long, value_enum)]
    pub(crate) checkpoint: Option<Which>,
    /// Print the ranked lists as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
    /// Write a page with the pictures
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

/// Compute a loss and its gradient on embeddings from a file.
///
/// Files of f64 are computed in f64, others in f32. Labels `a|b` are sets: two samples that share a
/// label are positives of each other. Losses take the rows as they are; see --normalize.
#[derive(Debug, Args)]
pub(crate) struct Loss {
    /// Show all losses with their parameters and defaults, and the presets
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
    /// Embeddings (.npy of f32 or f64, n x d, or .safetensors)
    #[arg(long, value_name = "FILE", required_unless_present = "list")]
    pub(crate) embeddings: Option<PathBuf>,
    /// Labels: .npy of integers or text, one label a line [default: those in the embeddings file]
    #[arg(long, value_name = "FILE")]
    pub(crate) labels: Option<PathBuf>,
    /// Scale the rows to length 1 first; the gradient is that of the rows as they are in the file
    #[arg(long)]
    pub(crate) normalize: bool,
    /// Write the gradient of the value, n x d, of the embeddings' type
    #[arg(long, value_name = "FILE.npy")]
    pub(crate) gradient: Option<PathBuf>,
    /// Steps done, for losses that change in the course of training
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) step: usize,
    /// Seed of proxies and of random draws
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print value, per-query values and counts as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
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

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Metric {
    /// Rows scaled to length 1; similarity is their product
    Cosine,
    /// Euclidean distance of the rows as they are
    Euclidean,
}
