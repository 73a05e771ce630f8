//! `gallerist data`.

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::limits;
use super::shared::PartArgs;
use crate::train::limits::MAX_THREADS;

/// Inspect image sets.
#[derive(Debug, Args)]
pub(crate) struct Data {
    #[command(subcommand)]
    pub(crate) command: DataCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum DataCommand {
    Info(DataInfo),
}

/// Summarize a data set: images, classes, splits, broken files, duplicates.
///
/// Decodes every image and compares the counts with the published ones. Duplicates are images with
/// identical pixels; a duplicate of a training image in another split is a leak.
///
/// Exit code 1: images are broken or missing, or there are leaks.
#[derive(Debug, Args)]
pub(crate) struct DataInfo {
    /// Images: a published data set, a folder with one folder per class, a flat folder, a CSV manifest, or a zip
    /// archive of any of these
    #[arg(required = true)]
    pub(crate) path: Vec<PathBuf>,
    /// A separate test set; the PATHs are then the training set
    #[arg(long, value_name = "PATH")]
    pub(crate) test: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) part: PartArgs,
    /// Decoding threads; 0: one per core
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = limits::count::<MAX_THREADS>)]
    pub(crate) threads: usize,
    /// Print the full result as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}
