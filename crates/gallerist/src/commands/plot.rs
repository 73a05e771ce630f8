//! `gallerist plot`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use gallerist::pages;
use gallerist::plots::{self, MapMethod, Queries, Source, Tsne};
use gallerist::report::figure::{Figure, Format};
use gallerist::train::RunDirectory;

use super::{Failure, Outcome, bar};
use crate::args::plot::{Kind, Map, Method, One, Out, Ranked, Several, Which};
use crate::printer;

pub(super) fn run(kind: Kind) -> Outcome {
    match kind {
        Kind::Curves(args) => draw(&args.out, || {
            let runs: Vec<&Path> = args.runs.iter().map(PathBuf::as_path).collect();
            Ok(plots::curves(&runs)?)
        }),
        Kind::Ranked(args) => draw(&args.out, || ranked(&args)),
        Kind::Map(args) => draw(&args.out, || map(&args)),
        Kind::Cmc(args) => draw(&args.out, || Ok(plots::cmc(&several(&args.of)?, args.ranks)?)),
        Kind::Pr(args) => draw(&args.out, || Ok(plots::pr(&several(&args.of)?)?)),
        Kind::Distances(args) => draw(&args.out, || Ok(plots::distances(&several(&args.of)?, args.seed)?)),
        Kind::Clusters(args) => {
            draw(&args.out, || Ok(plots::clusters(&one(&args.of)?, args.clusters, args.count, args.seed)?))
        }
        Kind::Report(args) => {
            let runs = args.runs.iter().map(|run| RunDirectory::open(run));
            pages::comparison(&runs.collect::<gallerist::Result<Vec<_>>>()?)?.write(&args.out)?;
            written(&args.out)
        }
    }
}

/// Checks the figure's name before the work, and writes the figure after it.
fn draw(out: &Out, figure: impl FnOnce() -> Result<Figure, Failure>) -> Outcome {
    Format::of(&out.out)?;
    figure()?.write(&out.out, out.theme.map(Into::into))?;
    written(&out.out)
}

fn written(path: &Path) -> Outcome {
    printer::note(&format!("written to {}", path.display()));
    Ok(ExitCode::SUCCESS)
}

fn one(of: &One) -> Result<Source, Failure> {
    match (&of.run, &of.embeddings) {
        (Some(run), _) => Ok(Source::of_run(run)?),
        (None, Some(file)) => Ok(Source::of_file(file, of.labels.as_deref())?),
        (None, None) => unreachable!("clap asks for one of them"),
    }
}

fn several(of: &Several) -> Result<Vec<Source>, Failure> {
    let (files, labels) = (of.embeddings.len(), of.labels.len());
    if labels > 0 && labels != files {
        return Err(Failure::new(
            format!("{files} --embeddings and {labels} --labels"),
            Some("give one --labels for each --embeddings, in the same order, or none"),
        ));
    }
    let runs = of.runs.iter().map(|run| Source::of_run(run));
    let labels = of.labels.iter().map(|path| Some(path.as_path())).chain(std::iter::repeat(None));
    let files = of.embeddings.iter().zip(labels).map(|(file, labels)| Source::of_file(file, labels));
    Ok(runs.chain(files).collect::<gallerist::Result<_>>()?)
}

fn ranked(args: &Ranked) -> Result<Figure, Failure> {
    let queries = match args.queries {
        _ if !args.query.is_empty() => Queries::Named(args.query.clone()),
        Which::Worst => Queries::Worst(args.count),
        Which::Best => Queries::Best(args.count),
        Which::Random => Queries::Random(args.count, args.seed),
        Which::Confused => Queries::Confused(args.count),
    };
    Ok(plots::ranked(&one(&args.of)?, &queries, args.k)?)
}

fn map(args: &Map) -> Result<Figure, Failure> {
    let method = match args.method {
        Method::Tsne => MapMethod::Tsne(Tsne { perplexity: args.perplexity, steps: args.steps }),
        Method::Pca => MapMethod::Pca,
    };
    let source = one(&args.of)?;
    let bar = bar(args.steps, "mapping {bar:30} {pos}/{len} steps, {eta} left");
    let (figure, notes) = plots::map(&source, &method, !args.no_thumbnails, &mut |done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();
    notes.iter().for_each(|note| printer::warning(note));
    Ok(figure)
}
