//! `gallerist convert`.

use std::path::PathBuf;

use clap::Args;

use super::named::{Precision, precisions};

/// Convert embeddings to another format or precision, or join several files.
///
/// Every command reads every precision. Checksums are verified where a file has one, and
/// every value must be finite. Optional data (labels, for example) is written only if all files have it.
#[derive(Debug, Args)]
pub(crate) struct Convert {
    /// Embeddings (.safetensors, or .npy of f32 or f64, n x d)
    #[arg(value_name = "FILE", required = true)]
    pub(crate) files: Vec<PathBuf>,
    /// Output file (.safetensors or .npy)
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
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
