//! The command line, parsed into plain structs.

mod completions;
mod config;
mod convert;
mod data;
mod embed;
mod evaluate;
pub(crate) mod experiment;
pub(crate) mod help;
pub(crate) mod index;
mod info;
mod init;
mod limits;
mod loss;
mod merge;
mod model;
mod named;
pub(crate) mod plot;
mod search;
mod serve;
mod shared;
mod threshold;
mod train;
mod tune;
mod weights;

use clap::{Parser, Subcommand};

pub(crate) use completions::Completions;
pub(crate) use config::Config;
pub(crate) use convert::{Convert, Program};
pub(crate) use data::{Data, DataCommand, DataInfo, DataIssues};
pub(crate) use embed::Embed;
pub(crate) use evaluate::{Evaluate, Rerank};
pub(crate) use info::Info;
pub(crate) use init::Init;
pub(crate) use loss::Loss;
pub(crate) use merge::Merge;
pub(crate) use model::{Model, ModelCalibrate, ModelCommand, ModelImport, ModelInspect};
pub(crate) use named::Precision;
pub(crate) use search::Search;
pub(crate) use serve::Serve;
pub(crate) use threshold::Threshold;
pub(crate) use train::Train;
pub(crate) use tune::Tune;
pub(crate) use weights::{
    Weights, WeightsCommand, WeightsExport, WeightsFetch, WeightsImport, WeightsInspect, WeightsList,
};

/// Deep metric learning and image retrieval.
#[derive(Debug, Parser)]
#[command(name = "gallerist", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 success; 1 success with findings (listed on stderr); 2 error; \
    130 interrupted (a checkpoint was written).")]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Init(Init),
    Train(Train),
    Tune(Tune),
    Experiment(experiment::ExperimentArgs),
    Embed(Embed),
    Merge(Merge),
    Convert(Convert),
    Evaluate(Box<Evaluate>),
    Threshold(Threshold),
    Search(Search),
    Index(index::Index),
    Plot(Box<plot::Plot>),
    Serve(Serve),
    Loss(Loss),
    Info(Info),
    Data(Data),
    Model(Model),
    Weights(Weights),
    Config(Config),
    Completions(Completions),
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::Cli;

    // clap does not ask for a required option that conflicts with a given one, so that the option which requires it
    // would be ignored: both have to name the conflict.
    #[test]
    fn an_option_without_the_one_that_it_belongs_to_is_refused() {
        let without =
            |line: &str| Cli::try_parse_from(line.split(' ')).map(|_| ()).map_err(|e| e.to_string());
        for (command, options) in [
            (
                "threshold --embeddings e",
                &["--gallery g", "--query-labels l", "--gallery-labels l", "--force"][..],
            ),
            ("threshold --query q --gallery g", &["--labels l", "--cameras c"]),
            ("embed --run r --images i --out o", &["--shard 1/2", "--format parquet", "--part 5"]),
            (
                "plot clusters r --out o.svg",
                &["--labels l", "--gallery g", "--query-labels l", "--gallery-cameras c", "--force"],
            ),
            (
                "plot ranked --embeddings e --out o.svg",
                &["--gallery g", "--gallery-labels l", "--query-cameras c", "--force"],
            ),
            ("plot map --query q --gallery g --out o.svg", &["--labels l"]),
            (
                "evaluate --embeddings e",
                &["--checkpoint last", "--strict", "--query-where a=1", "--one-shot z"],
            ),
            (
                "evaluate --embeddings e --gallery g.index",
                &["--query-labels l", "--query-cameras c", "--query-split s", "--gallery-split s"],
            ),
            ("evaluate --query q --gallery g", &["--labels l", "--cameras c", "--one-shot z"]),
            ("evaluate --run r", &["--labels l", "--cameras c", "--gallery-split s"]),
            ("train run.toml", &["--test t", "--weights w", "--preset birds", "--minutes 5", "--force-data"]),
        ] {
            let line = format!("gallerist {command}");
            without(&line).unwrap_or_else(|error| panic!("{line}: {error}"));
            for option in options {
                let line = format!("{line} {option}");
                let error = without(&line).expect_err(&line);
                assert!(
                    error.contains("cannot be used with") || error.contains("were not provided"),
                    "{line}: {error}"
                );
            }
        }
    }
}
