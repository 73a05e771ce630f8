//! `gallerist embed`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;

use super::named::{Precision, named, precisions};
use super::shared::{ComputeArgs, ModelArgs, PartArgs, RowArgs};
use crate::network::Combine;
use crate::retrieval::shards::Shard;
use crate::{DEFAULT_PART_IMAGES, ShardFormat};

const DEFAULT_PART: NonZeroUsize = NonZeroUsize::new(DEFAULT_PART_IMAGES).expect("not 0");

/// Embed images with a trained network.
///
/// Writes one row per image. A `.safetensors` file stores the embeddings with their labels, paths, cameras and
/// the model's fingerprint; a `.npy` file stores the embeddings only (f32, n x d). Parquet and Arrow files need a program
/// that was built with `--features arrow` (docs/embeddings.md).
///
/// With --shards and --shard, one of many processes embeds its part of a long manifest (docs/shards.md).
#[derive(Debug, Args)]
pub(crate) struct Embed {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// Images: a published data set, a folder with one folder per class, a flat folder, a CSV or TSV manifest
    /// (path,label[,camera][,split]), a zip or tar archive of any of these, or one image (repeatable). A program built with
    /// --features object-store also takes addresses: s3://BUCKET/PATH, gs://, az://, https://
    #[arg(long, value_name = "PATH", required_unless_present = "shards", conflicts_with_all = ["shards", "shard", "format", "part_images"])]
    pub(crate) images: Vec<PathBuf>,
    /// CSV or TSV manifest (path[,label][,camera][,split] and further columns) that is divided into shards: equal parts of
    /// its bytes. --out is then a folder
    #[arg(long, value_name = "MANIFEST", requires = "shard")]
    pub(crate) shards: Option<PathBuf>,
    /// The shard to embed: its number, from 0, and the number of shards, such as 7/1000. A shard that is whole is left as it
    /// is; one that was interrupted is continued. Images that cannot be read are listed by `gallerist merge`
    #[arg(long, value_name = "I/N", requires = "shards")]
    pub(crate) shard: Option<Shard>,
    /// Format of the file of a shard
    #[arg(long, default_value = "safetensors", requires = "shards", value_parser = named::<ShardFormat>())]
    pub(crate) format: ShardFormat,
    /// Images of a shard after which its rows are kept on disk, so that an interrupted process continues there
    #[arg(long = "part", value_name = "IMAGES", default_value_t = DEFAULT_PART, requires = "shards")]
    pub(crate) part_images: NonZeroUsize,
    #[command(flatten)]
    pub(crate) part: PartArgs,
    #[command(flatten)]
    pub(crate) compute: ComputeArgs,
    /// Name of the image source. Item ids are computed from source and path: use the same name after moving the
    /// images [default: the absolute path of the images]
    #[arg(long, value_name = "NAME")]
    pub(crate) source: Option<String>,
    /// Output file (.safetensors, .npy, .parquet, .arrow, .feather or .ipc); with --shards, the folder of all shards
    #[arg(long, value_name = "PATH")]
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
