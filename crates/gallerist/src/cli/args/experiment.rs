//! `gallerist experiment`.

use std::num::NonZeroUsize;
use std::ops::RangeInclusive;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::named::named;
use crate::experiments::{self, Scale};

/// Run the experiments of the papers, or your own, and compare the results with the printed numbers.
///
/// An experiment is a table or a figure: rows (settings) on data sets, with the numbers that a paper prints. `list` shows
/// all; docs/experiments.md explains the file of an experiment and how to write one.
#[derive(Debug, Args)]
pub(crate) struct ExperimentArgs {
    #[command(subcommand)]
    pub(crate) command: ExperimentCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum ExperimentCommand {
    List(ExperimentList),
    Show(ExperimentShow),
    Run(ExperimentRun),
    Table(ExperimentTable),
}

/// List the experiments with their scales.
#[derive(Debug, Args)]
pub(crate) struct ExperimentList {
    /// Print the list as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Show an experiment: its rows, the data that it needs, and the run file of a row.
#[derive(Debug, Args)]
pub(crate) struct ExperimentShow {
    /// Name of an experiment, or path of the file of one
    pub(crate) name: String,
    /// Scale of the runs
    #[arg(long, default_value = Scale::Small.name(), value_parser = named::<Scale>())]
    pub(crate) scale: Scale,
    /// Print the run files of this row instead
    #[arg(long, value_name = "ROW")]
    pub(crate) row: Option<String>,
    /// Folder that contains images or weights (repeatable); files that are in none of them are looked up in `data`
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Vec<PathBuf>,
}

/// Train the rows of an experiment, and write its table.
///
/// Runs that are done are skipped, interrupted ones continue, and a row that fails leaves the others alone. Ctrl-C writes a
/// checkpoint of each running row. Runs are stored by a hash of what decides their result, so that experiments share
/// them.
///
/// Exit code 1: some runs failed, or images could not be read.
#[derive(Debug, Args)]
pub(crate) struct ExperimentRun {
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
    /// Run only this row (repeatable); the table has all rows
    #[arg(long, value_name = "ROW")]
    pub(crate) only: Vec<String>,
    /// Runs at the same time; each gets its share of the cores
    #[arg(long, value_name = "N", default_value = "1")]
    pub(crate) jobs: NonZeroUsize,
    /// Print the table as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// Write the table of an experiment from the runs that are done: Markdown, CSV, JSON, and a page with plots.
#[derive(Debug, Args)]
pub(crate) struct ExperimentTable {
    #[command(flatten)]
    pub(crate) selection: SelectionArgs,
    /// Print the table as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}

/// What of an experiment, and where.
#[derive(Debug, Args)]
pub(crate) struct SelectionArgs {
    /// Name of an experiment, or path of the file of one
    pub(crate) name: String,
    /// Folder that contains images or weights (repeatable); files that are in none of them are looked up in `data`
    #[arg(long, value_name = "DIR")]
    pub(crate) data: Vec<PathBuf>,
    /// Scale of the runs
    #[arg(long, default_value = Scale::Small.name(), value_parser = named::<Scale>())]
    pub(crate) scale: Scale,
    /// Number of seeds; the seeds are 1 to N. `A-B`: the seeds A to B, the share of one of several machines
    #[arg(long, value_name = "N|A-B", default_value = "1", value_parser = seeds)]
    pub(crate) seeds: RangeInclusive<u64>,
    /// Folder in which runs are stored
    #[arg(long, value_name = "DIR", default_value = experiments::STORE)]
    pub(crate) store: PathBuf,
    /// Folder for the table [default: the folder tables of the store]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
}

/// The largest seed.
const LAST_SEED: u64 = 1000;

/// `N`, which is 1 to N, or `A-B`.
fn seeds(text: &str) -> Result<RangeInclusive<u64>, String> {
    let (first, last) = text.split_once('-').unwrap_or(("1", text));
    let number = |text: &str| text.trim().parse::<u64>().ok();
    match (number(first), number(last)) {
        (Some(first), Some(last)) if 1 <= first && first <= last && last <= LAST_SEED => Ok(first..=last),
        _ => Err(format!(
            "the seeds are a number from 1 to {LAST_SEED}, such as 5 for 1 to 5, or a range such as 4-5"
        )),
    }
}

impl SelectionArgs {
    pub(crate) fn selection(&self) -> experiments::Selection {
        experiments::Selection {
            scale: self.scale,
            seeds: self.seeds.clone(),
            only: Vec::new(),
            data: self.data.clone(),
        }
    }

    pub(crate) fn out(&self) -> PathBuf {
        self.out.clone().unwrap_or_else(|| self.store.join("tables"))
    }
}
