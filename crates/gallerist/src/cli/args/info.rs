//! `gallerist info`.

use std::path::PathBuf;

use clap::Args;

/// Say what a file or run directory is, and what is in it.
///
/// Run directories, checkpoints, embeddings, indices, maps, tags, logs, metrics, run files, weights and ONNX models. A file is
/// read as a whole, and its checksum is compared if it has one: a damaged file is an error.
#[derive(Debug, Args)]
pub(crate) struct Info {
    /// File or run directory
    #[arg(value_name = "PATH")]
    pub(crate) path: PathBuf,
    /// Print JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}
