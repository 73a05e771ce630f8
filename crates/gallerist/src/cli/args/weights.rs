//! `gallerist weights`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::named::named;
use super::shared::{ModelArgs, RowArgs};
use crate::network::Combine;

/// Download, inspect, import and export weights.
///
/// Reads safetensors, PyTorch's .pth and .pt (no code in them is executed) and checkpoints. Tensor names may
/// be those of torchvision, timm, of the public bn_inception and MXNet mobilenetv2 weights, or our own.
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
    #[arg(long, value_parser = named::<Combine>())]
    pub(crate) combine: Option<Combine>,
}
