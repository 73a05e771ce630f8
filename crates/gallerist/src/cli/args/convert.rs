//! `gallerist convert`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::named::{Precision, precisions};

/// Convert embeddings to another format or precision, or join several files.
///
/// Parquet and Arrow files need a program that was built with `--features arrow` (docs/embeddings.md).
///
/// Every command reads every precision. Checksums are verified where a file has one, and
/// every value must be finite. Optional data (labels, for example) is written only if all files have it.
#[derive(Debug, Args)]
pub(crate) struct Convert {
    /// Embeddings (.safetensors, .parquet, .arrow, .feather, .ipc, or .npy of f32 or f64, n x d)
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Output file (.safetensors, .npy, .parquet, .arrow, .feather or .ipc); with --to projector, a folder
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Write the files of another program instead: the Embedding Projector of TensorBoard
    #[arg(long, value_enum, conflicts_with = "precision")]
    pub(crate) to: Option<Program>,
    /// Parquet and Arrow: column of the embeddings, lists of floats [default: embedding, embeddings, vector, or the only
    /// one]
    #[arg(long, value_name = "NAME")]
    pub(crate) column: Option<String>,
    /// Parquet and Arrow: column of the labels [default: label or labels]
    #[arg(long, value_name = "NAME")]
    pub(crate) label_column: Option<String>,
    /// Parquet and Arrow: column of the paths of the images [default: path or paths]
    #[arg(long, value_name = "NAME")]
    pub(crate) path_column: Option<String>,
    /// Parquet and Arrow: column of the cameras [default: camera or cameras]
    #[arg(long, value_name = "NAME")]
    pub(crate) camera_column: Option<String>,
    /// Labels of all rows in order: .npy of integers, or a text file with one label per line [default: those in the files]
    #[arg(long, value_name = "FILE")]
    pub(crate) labels: Option<PathBuf>,
    /// Number format of the stored embeddings
    #[arg(long, default_value = "f32", value_parser = precisions())]
    pub(crate) precision: Precision,
    /// Keep only rows that meet a condition on their columns, such as 'price < 20 and label = "dress"'
    /// (docs/metadata.md)
    #[arg(long = "where", value_name = "CONDITION")]
    pub(crate) condition: Option<String>,
    /// Allow files of different networks or metrics; distances between their rows are meaningless
    #[arg(long)]
    pub(crate) mix_models: bool,
    /// Print a summary as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// A program whose files are written.
#[derive(Clone, Copy, Debug, PartialEq, ValueEnum)]
pub(crate) enum Program {
    /// tensors.tsv, metadata.tsv with labels, paths and further columns, and projector_config.pbtxt
    Projector,
}
