//! `gallerist train`.

use std::path::PathBuf;

use clap::Args;

use super::init::InitArgs;
use crate::device::DeviceChoice;

/// Train an embedding network, evaluate it, and write a report.
///
/// `--images` makes a run file as `gallerist init` does, keeps it in the run directory (init.toml), and trains by it.
///
/// Writes to the run directory: the resolved configuration (config.toml), the checkpoints
/// (checkpoints/last.safetensors and best.safetensors), the log (log.jsonl), the embeddings of the
/// test images (embeddings.safetensors; or query.safetensors and gallery.safetensors where the test set has
/// queries and a gallery), the metrics (metrics.json) and the report (report.html).
///
/// images.csv lists the images of training and validation, and the test images that data.test_fraction holds out.
/// broken_images.json lists the images that could not be read, and timing.json has the times.
///
/// Ctrl-C writes a checkpoint and stops. `--resume DIR` continues the run; on the CPU the result is bit-identical
/// to that of an uninterrupted run.
///
/// `mpirun -n 4 gallerist train CONFIG` trains by four processes, which share every batch (feature `mpi`;
/// docs/scaling.md).
#[derive(Debug, Args)]
#[command(
    override_usage = "gallerist train [OPTIONS] CONFIG\n       gallerist train [OPTIONS] --images PATH...\n       \
    gallerist train [OPTIONS] --resume DIR"
)]
pub(crate) struct Train {
    /// Run file (TOML); `gallerist config --print-defaults` lists every key
    #[arg(required_unless_present_any = ["resume", "images"], conflicts_with_all = ["resume", "images", "test", "weights", "preset", "minutes", "force_data"])]
    pub(crate) config: Option<PathBuf>,
    /// Training images in place of a run file: a published data set, a folder with one folder for each class, a CSV
    /// or TSV manifest, or a zip or tar archive
    #[arg(long, value_name = "PATH", num_args = 1.., conflicts_with_all = ["resume", "force_data"])]
    pub(crate) images: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) given: InitArgs,
    /// Override a key of the run file, e.g. --set train.steps=500 (repeatable)
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "resume")]
    pub(crate) set: Vec<String>,
    /// Profile the run: a summary at the end, details in profile.json of the run directory (key log.profile)
    #[arg(long, conflicts_with = "resume")]
    pub(crate) profile: bool,
    /// Run directory; must not contain another run [default: runs/NAME, NAME from the run file or the
    /// images, numbered]
    #[arg(long, value_name = "DIR", conflicts_with = "resume")]
    pub(crate) out: Option<PathBuf>,
    /// Continue an interrupted run from its last checkpoint
    #[arg(long, value_name = "DIR", conflicts_with_all = ["test", "weights", "preset", "minutes"])]
    pub(crate) resume: Option<PathBuf>,
    /// Continue also if images, labels, cameras or splits have changed since the run was stopped, with the images as they
    /// are now
    #[arg(long, requires = "resume")]
    pub(crate) force_data: bool,
    /// Stop at the first image that cannot be read, with exit code 2 (key data.strict). Without it, another image of its
    /// class takes its place, and the exit code is 1
    #[arg(long)]
    pub(crate) strict: bool,
    /// Device of the network: auto (a GPU if available), cpu, cuda, cuda:N, wgpu, wgpu:N [default: from the run
    /// file, else auto]
    #[arg(long, value_name = "DEVICE")]
    pub(crate) device: Option<DeviceChoice>,
    /// Print the summary as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}
