//! `gallerist embed`.

use std::path::PathBuf;

use clap::Args;

use super::named::{Precision, named, precisions};
use super::shared::{DeviceArgs, ModelArgs, PartArgs, RowArgs};
use crate::network::Combine;

/// Embed images with a trained network.
///
/// Writes one row per image. A `.safetensors` file stores the embeddings with their labels, paths, cameras and
/// the model's fingerprint; a `.npy` file stores the embeddings only (f32, n x d).
#[derive(Debug, Args)]
pub(crate) struct Embed {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Images: a published data set, a folder with one folder per class, a flat folder, a CSV or TSV manifest
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
    #[arg(long, default_value = "f32", value_parser = precisions())]
    pub(crate) precision: Precision,
    /// Folder that caches decoded images; does not change the embeddings [default: data.cache_folder of the run
    /// file, if it exists]
    #[arg(long, value_name = "DIR")]
    pub(crate) cache: Option<PathBuf>,
    /// Stop at the first image that cannot be read, with exit code 2. Without it, such images are left out and reported,
    /// and the exit code is 1
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) rows: RowArgs,
    /// Heads of the network that form the embedding, e.g. L,M [default: from the run file, else all]
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub(crate) head: Vec<String>,
    /// How the outputs of several heads are combined [default: from the run file, else concat-then-normalize]
    #[arg(long, value_parser = named::<Combine>())]
    pub(crate) combine: Option<Combine>,
    /// Print a summary as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}
