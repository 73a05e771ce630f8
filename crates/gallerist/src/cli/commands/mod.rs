//! One file per command.

mod completions;
mod config;
mod convert;
mod data;
mod embed;
mod evaluate;
mod experiment;
mod index;
mod info;
mod init;
mod loss;
mod merge;
mod model;
mod plot;
mod search;
mod serve;
mod threshold;
mod train;
mod tune;
mod weights;

use super::args::Command;
use super::failure::CommandResult;

pub(crate) fn run(command: Command) -> CommandResult {
    if let (Some(ranks @ 2..), false) =
        (gallerist_collective::launched_ranks(), matches!(command, Command::Train(_)))
    {
        return Err(crate::Error::new(
            format!(
                "this command was started as one of {ranks} ranks, and each of them would do the whole work"
            ),
            Some("only `gallerist train` runs on several ranks; start this command without mpirun"),
        )
        .into());
    }
    match command {
        Command::Init(args) => init::run(args),
        Command::Train(args) => train::run(args),
        Command::Tune(args) => tune::run(args),
        Command::Experiment(args) => experiment::run(args),
        Command::Embed(args) => embed::run(args),
        Command::Merge(args) => merge::run(args),
        Command::Convert(args) => convert::run(args),
        Command::Evaluate(args) => evaluate::run(*args),
        Command::Threshold(args) => threshold::run(args),
        Command::Search(args) => search::run(args),
        Command::Index(args) => index::run(args.command),
        Command::Plot(args) => plot::run(args.kind),
        Command::Serve(args) => serve::run(args),
        Command::Loss(args) => loss::run(args),
        Command::Info(args) => info::run(args),
        Command::Data(args) => data::run(args),
        Command::Model(args) => model::run(args),
        Command::Weights(args) => weights::run(args),
        Command::Config(args) => config::run(args),
        Command::Completions(args) => completions::run(args),
    }
}
