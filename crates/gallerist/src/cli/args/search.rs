//! `gallerist search`.

use std::path::PathBuf;

use clap::{ArgGroup, Args};

use super::limits;
use super::named::named;
use super::shared::ComputeArgs;
use crate::data::Region;
use crate::retrieval::search::GroupScore;
use crate::train::CheckpointKind;

/// Find the K nearest gallery items of each query image or text, by exact search or with an index.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("queries").args(["query", "text"]).required(true).multiple(true))]
#[command(after_help = "Examples:\n  \
    gallerist search --gallery photos.safetensors --query new.jpg\n  \
    gallerist search --gallery photos.safetensors --query street.jpg --region 25%,10%,50%,50%\n  \
    gallerist search --gallery photos.safetensors --text \"a red shoe\"\n  \
    gallerist search --gallery photos.safetensors --query new.jpg --where 'price < 20' --html found.html")]
pub(crate) struct Search {
    /// Embeddings of the gallery, as written by `embed` or `train` (.safetensors), an index, or
    /// milvus://HOST[:PORT]/COLLECTION or qdrant://HOST[:PORT]/COLLECTION
    #[arg(long, value_name = "FILE")]
    pub(crate) gallery: PathBuf,
    /// Query images
    #[arg(long, value_name = "IMAGE", num_args = 1..)]
    pub(crate) query: Vec<PathBuf>,
    /// Search by words, where the run of the network has a text tower (docs/guides/own-model.md); may be repeated
    #[arg(long, value_name = "TEXT")]
    pub(crate) text: Vec<String>,
    /// Search with a part of the query images: left, top, width and height, in fractions of the upright image
    /// (0.25,0.1,0.5,0.5), in percent (25%,10%,50%,50%) or in pixels (120px,40px,240px,200px). Once for all query images,
    /// or once for each, in their order
    #[arg(long, value_name = "L,T,W,H", allow_hyphen_values = true)]
    pub(crate) region: Vec<Region>,
    /// Results per query
    #[arg(short, value_name = "K", default_value_t = 10, value_parser = limits::count::<1_000_000_000>)]
    pub(crate) k: usize,
    /// Run directory of the network [default: the one that embedded the gallery]
    #[arg(long, value_name = "DIR")]
    pub(crate) run: Option<PathBuf>,
    /// Checkpoint of the run [default: the one that embedded the gallery; evaluation.checkpoint of the run if the gallery
    /// does not say which network embedded it]
    #[arg(long, value_parser = named::<CheckpointKind>())]
    pub(crate) checkpoint: Option<CheckpointKind>,
    #[command(flatten)]
    pub(crate) compute: ComputeArgs,
    /// Find only items that meet a condition on their columns, such as 'price < 20 and shop = "x"'
    /// (docs/metadata.md)
    #[arg(long = "where", value_name = "CONDITION")]
    pub(crate) condition: Option<String>,
    /// One result for all items with the same value of a column, the nearest of them; all items are compared
    #[arg(long, value_name = "COLUMN")]
    pub(crate) group_by: Option<String>,
    /// Distance of a group: that of its nearest item, or the mean of all
    #[arg(long, value_name = "SCORE", default_value = "best", requires = "group_by", value_parser = named::<GroupScore>())]
    pub(crate) group_score: GroupScore,
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
