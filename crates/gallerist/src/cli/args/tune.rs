//! `gallerist tune`.

use std::path::PathBuf;

use clap::Args;

/// Search for the best values of a run file, on folds of the training classes.
///
/// Each trial trains the run file with other values of the keys in the space file. The training classes are divided
/// into class-disjoint folds: a run trains on all folds but one and is measured on that one. The test images are never
/// opened. Trials follow the results of earlier ones (TPE); trials that are worse than half of the others after 1, 2,
/// 4, ... folds are stopped.
///
/// Writes to the output directory: the run file with the best values (best.toml, for `gallerist train`), the page with
/// the figures (tune.html), and the trials (trials.toml, trials.md, trials.csv, result.json).
///
/// Ctrl-C stops. The same command continues, with more trials if --trials is higher.
#[derive(Debug, Args)]
#[command(after_help = "Example of a space file:\n\n  \
    folds = 4             # class-disjoint folds, 2 or more\n  \
    metric = \"map@r\"      # validation metric that is maximised\n  \
    seed = 1              # of folds and trials\n  \
    startup = 10          # random trials before trials follow the results\n  \
    round = 4             # trials chosen at once\n  \
    keep = 0.5            # share of the trials that continue on further folds; 1: all\n\n  \
    [space]\n  \
    \"loss.margin\" = { low = 0.05, high = 1.0, log = true }\n  \
    \"sampler.images_per_class\" = { low = 2, high = 6, int = true }\n  \
    \"augment.rotation_degrees\" = { low = 0, high = 30, step = 5 }\n  \
    \"optimizer.kind\" = { choices = [\"sgd\", \"adamw\"] }")]
pub(crate) struct Tune {
    /// Run file (TOML); `gallerist config --print-defaults` lists every key
    pub(crate) run_file: PathBuf,
    /// Space file (TOML): the keys to tune with their bounds, see below
    #[arg(long, value_name = "FILE")]
    pub(crate) space: PathBuf,
    /// Trials in total, with those of an earlier call
    #[arg(long, value_name = "N", default_value_t = 32)]
    pub(crate) trials: usize,
    /// Class-disjoint folds of the training classes [default: from the space file, else 4]
    #[arg(long, value_name = "K")]
    pub(crate) folds: Option<usize>,
    /// Validation metric that is maximised: map@r, recall@K, map, cmc@K, ... [default: from the space file, else map@r]
    #[arg(long, value_name = "NAME")]
    pub(crate) metric: Option<String>,
    /// Seed of the folds and of the choice of trials [default: from the space file, else 1]
    #[arg(long, value_name = "SEED")]
    pub(crate) seed: Option<u64>,
    /// Override a key of the run file in every trial, e.g. --set train.steps=500 (repeatable)
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
    /// Output directory [default: runs/NAME-tune, NAME from the run file]
    #[arg(long, value_name = "DIR")]
    pub(crate) out: Option<PathBuf>,
    /// Runs at the same time, each a process; they share the cores
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) jobs: usize,
    /// Compute threads of all runs together; 0: one per core
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) threads: usize,
    /// Print the result as JSON on stdout
    #[arg(long)]
    pub(crate) json: bool,
}
