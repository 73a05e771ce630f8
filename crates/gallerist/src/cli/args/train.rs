//! `gallerist train`.

use std::path::PathBuf;

use clap::Args;

use crate::device::DeviceChoice;

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
