//! `gallerist merge`.

use std::path::PathBuf;

use clap::Args;

/// Verify the shards of a folder and join them, without copying their rows.
///
/// Reads every byte: all shards must be there, match their checksums, and be of one network, manifest and set of options.
/// If not, the command that embeds each of the others is printed. The list that is written is read by every command that
/// reads embeddings.
#[derive(Debug, Args)]
pub(crate) struct Merge {
    /// Folder that `gallerist embed --shards` wrote, or its address in an object store
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
    /// List of the shards to write (.json)
    #[arg(long, value_name = "FILE")]
    pub(crate) out: PathBuf,
    /// Print a summary as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}
