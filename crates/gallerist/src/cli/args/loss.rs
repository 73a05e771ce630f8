//! `gallerist loss`.

use std::path::PathBuf;

use clap::Args;

use crate::device::DeviceChoice;

/// Compute a loss and its gradient on embeddings from a file.
///
/// The computation uses f64 for files of f64 and f32 for all others. A label `a|b` is a set of labels: two
/// samples that share a label are positives of each other. Rows are not normalized unless --normalize is given.
///
/// Learned parameters have a row for each class. Labels from 0 to C - 1 are these rows; names are numbered in byte order,
/// as in training. With a checkpoint in its run directory, labels are the classes of the run.
#[derive(Debug, Args)]
pub(crate) struct Loss {
    /// List all losses and miners with their parameters and defaults, and all presets
    #[arg(long, conflicts_with_all = ["loss", "preset", "set", "miner", "embeddings", "json"])]
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
    /// Embeddings (.safetensors, .parquet, .arrow, .feather, .ipc, or .npy of f32 or f64, n x d)
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
    /// Training steps that are done, for losses and miners with a schedule
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) step: usize,
    /// Training steps in all, for losses whose schedule depends on it (rll with t_neg_end)
    #[arg(long, value_name = "N")]
    pub(crate) steps: Option<usize>,
    /// Device of the loss: auto (a GPU if available), cpu, cuda, cuda:N, wgpu, wgpu:N
    #[arg(long, value_name = "DEVICE", default_value_t = DeviceChoice::Cpu)]
    pub(crate) device: DeviceChoice,
    /// Seed of the proxies and of random choices; a miner has its own key `seed`
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print the value, the per-query values and the counts as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}
