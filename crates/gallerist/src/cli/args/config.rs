//! `gallerist config`.

use std::path::PathBuf;

use clap::Args;

/// Show the keys and defaults of run files.
#[derive(Debug, Args)]
#[command(arg_required_else_help = true)]
pub(crate) struct Config {
    /// Print a run file with every key, its default and its meaning
    #[arg(long, conflicts_with_all = ["check", "set"])]
    pub(crate) print_defaults: bool,
    /// Check a run file and print the resolved configuration
    #[arg(long, value_name = "CONFIG")]
    pub(crate) check: Option<PathBuf>,
    /// Override a key, as in `train`
    #[arg(long, value_name = "KEY=VALUE", requires = "check")]
    pub(crate) set: Vec<String>,
    /// Print JSON instead of TOML
    #[arg(long)]
    pub(crate) json: bool,
}
