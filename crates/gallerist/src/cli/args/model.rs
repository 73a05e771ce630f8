//! `gallerist model`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::named::named;
use super::shared::{ModelArgs, PartArgs};
use crate::DEFAULT_CALIBRATION_IMAGES;
use crate::onnx::Engine;

/// Inspect and use models of other programs (ONNX); measure a network for int8.
///
/// An ONNX model is a frozen extractor of features: it is computed as it is. A head on its features can be trained with
/// `[network] kind = "onnx"` in a run file.
#[derive(Debug, Args)]
pub(crate) struct Model {
    #[command(subcommand)]
    pub(crate) command: ModelCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ModelCommand {
    Inspect(ModelInspect),
    Import(ModelImport),
    Calibrate(ModelCalibrate),
}

/// Show inputs, outputs and size of an ONNX model, and which of its operators are not supported.
///
/// The exit code is 1 if there are such operators.
#[derive(Debug, Args)]
pub(crate) struct ModelInspect {
    /// ONNX model
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// What is to compute the model
    #[arg(long, default_value = "rten", value_parser = named::<Engine>())]
    pub(crate) engine: Engine,
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Use an ONNX model without training.
///
/// Writes a run directory that `embed`, `evaluate` and `search` accept, and for whose embeddings `serve` takes uploads. The
/// embedding is the output of the model. The directory names the model by its path and SHA-256.
#[derive(Debug, Args)]
pub(crate) struct ModelImport {
    /// ONNX model
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// What computes the model: network.engine of the run file. A text tower has text.engine
    #[arg(long, value_parser = named::<Engine>())]
    pub(crate) engine: Option<Engine>,
    /// Run file with further sections, such as [image]
    #[arg(long, value_name = "CONFIG")]
    pub(crate) config: Option<PathBuf>,
    /// Override a key of the run file, as in `train`: image.mean, image.std, image.size, network.output, network.rows
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Directory to create
    #[arg(long, value_name = "DIR")]
    pub(crate) out: PathBuf,
    /// Print a summary as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

const DEFAULT_COUNT: NonZeroUsize = NonZeroUsize::new(DEFAULT_CALIBRATION_IMAGES).expect("not 0");

/// Measure the ranges of a network's values, so that it can embed in int8.
///
/// Writes them into the run directory, where `embed`, `search`, `serve` and `evaluate` find them with --products int8, or with
/// `evaluation.products = "int8"` in the run file. Prints how far the embeddings in int8 are from those in f32. Choose images such
/// as those of the gallery. Networks of convolutions embed 2 to 4 times as fast in int8 on CPUs with AVX-512 VNNI, and up to 8 times
/// as fast with AMX.
#[derive(Debug, Args)]
pub(crate) struct ModelCalibrate {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Images, as in `embed` (repeatable)
    #[arg(long, value_name = "PATH", required = true)]
    pub(crate) images: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) part: PartArgs,
    /// Images that are measured, evenly spaced in the set
    #[arg(long, value_name = "N", default_value_t = DEFAULT_COUNT)]
    pub(crate) count: NonZeroUsize,
    /// Print a summary as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}
