//! `gallerist plot`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::pages;
use crate::plots::{self, File, MapMethod, Queries, Source, Tsne};
use crate::report::figure::{Figure, Format};
use crate::retrieval::file::TableColumns;
use crate::train::{EvaluationConfig, NO_PROTOCOL, RunDirectory};
use crate::unread::warn_of_unread;

use crate::cli::args::plot::{Kind, MapArgs, One, Out, Projection, QuerySelection, Ranked, Several, Split};
use crate::cli::failure::{CommandResult, Failure};
use crate::cli::next::Done;
use crate::cli::output::{check_output, check_page};
use crate::cli::printer;
use crate::cli::progress::{MAPPING, bar, working};
use crate::cli::terminal::Terminal;

pub(super) fn run(kind: Kind) -> CommandResult {
    match kind {
        Kind::Curves(args) => {
            let runs: Vec<&Path> = args.runs.iter().map(PathBuf::as_path).collect();
            let code = draw(&args.out, || Ok(plots::curves(&runs)?))?;
            Done::Curves(&args.runs).show();
            Ok(code)
        }
        Kind::Ranked(args) => draw(&args.out, || working(DRAWING, || ranked(&args))),
        Kind::Map(args) => draw(&args.out, || map(&args)),
        Kind::Cmc(args) => {
            draw(&args.out, || working(DRAWING, || Ok(plots::cmc(&several(&args.of)?, args.ranks)?)))
        }
        Kind::Pr(args) => draw(&args.out, || working(DRAWING, || Ok(plots::pr(&several(&args.of)?)?))),
        Kind::Distances(args) => {
            draw(&args.out, || working(DRAWING, || Ok(plots::distances(&several(&args.of)?, args.seed)?)))
        }
        Kind::OpenSet(args) => {
            draw(&args.out, || working(DRAWING, || Ok(plots::open_set(&several(&args.of)?, args.seed)?)))
        }
        Kind::Clusters(args) => draw(&args.out, || {
            working(DRAWING, || {
                Ok(plots::clusters(&one(&args.of, true)?, args.clusters, args.count, args.seed)?)
            })
        }),
        Kind::Report(args) => {
            check_page(&args.out, [])?;
            let runs = args.runs.iter().map(|run| RunDirectory::open(run));
            let runs = runs.collect::<crate::train::Result<Vec<_>>>()?;
            let conditions = args.part.conditions();
            let report = || pages::comparison_where(&runs, &conditions);
            working("drawing the report", report)?.write(&args.out)?;
            written(&args.out)
        }
    }
}

const DRAWING: &str = "comparing and drawing";

/// Checks the output path before the work, and writes the figure afterwards.
fn draw(out: &Out, figure: impl FnOnce() -> Result<Figure, Failure>) -> CommandResult {
    Format::of(&out.out)?;
    check_output(&out.out)?;
    figure()?.write(&out.out, out.theme)?;
    written(&out.out)
}

fn written(path: &Path) -> CommandResult {
    printer::note(&format!("written to {}", path.display()));
    Ok(ExitCode::SUCCESS)
}

/// `compares`: whether the figure compares rows by their labels.
fn one(of: &One, compares: bool) -> Result<Source, Failure> {
    if of.split.query.len() > 1 {
        return Err(Failure::new(
            format!("{} --query, and this figure shows one set of queries", of.split.query.len()),
            Some("draw them one after the other"),
        ));
    }
    let file = of.embeddings.as_deref().map(|file| (file, of.labels.as_deref()));
    let mut sources = files(&of.split, file.into_iter(), compares)?;
    match &of.run {
        Some(_) if of.split.protocol.is_some() => Err(rules_of_a_run()),
        Some(run) => Ok(Source::of_run_where(run, &of.split.part.conditions())?),
        None => Ok(sources.pop().expect("clap requires one of them")),
    }
}

fn several(of: &Several) -> Result<Vec<Source>, Failure> {
    check_counts("--embeddings", of.embeddings.len(), [("--labels", of.labels.len())])?;
    let labels = of.labels.iter().map(|path| Some(path.as_path())).chain(std::iter::repeat(None));
    let given = of.embeddings.iter().map(PathBuf::as_path).zip(labels);
    if of.split.protocol.is_some() && of.embeddings.is_empty() && of.split.query.is_empty() {
        return Err(rules_of_a_run());
    }
    let conditions = of.split.part.conditions();
    let of_run = |run: &PathBuf| Source::of_run_where(run, &conditions);
    let mut sources: Vec<Source> = of.runs.iter().map(of_run).collect::<crate::train::Result<_>>()?;
    sources.extend(files(&of.split, given, true)?);
    Source::name_apart(&mut sources);
    Ok(sources)
}

fn rules_of_a_run() -> Failure {
    Failure::new(
        "--protocol is for files: a run is drawn by the rules of its own evaluation",
        Some("give its embeddings as --query and --gallery, or as --embeddings"),
    )
}

/// Files of embeddings: first sets that are compared with themselves, then queries with their gallery. `compares`: whether the
/// figure compares rows by their labels; if not, junk is drawn like other images.
fn files<'a>(
    split: &'a Split,
    alone: impl Iterator<Item = (&'a Path, Option<&'a Path>)>,
    compares: bool,
) -> Result<Vec<Source>, Failure> {
    let pairs = split.query.len();
    if split.gallery.len() != pairs {
        return Err(Failure::new(
            format!("{pairs} --query and {} --gallery", split.gallery.len()),
            Some("give one --gallery for each --query, in the same order"),
        ));
    }
    check_counts(
        "--query",
        pairs,
        [("--query-labels", split.query_labels.len()), ("--query-cameras", split.query_cameras.len())],
    )?;
    check_counts(
        "--gallery",
        pairs,
        [
            ("--gallery-labels", split.gallery_labels.len()),
            ("--gallery-cameras", split.gallery_cameras.len()),
        ],
    )?;
    let by = EvaluationConfig { protocol: split.protocol.clone(), ..EvaluationConfig::default() };
    let mut of_one = by.clone();
    if !compares {
        of_one.protocol.get_or_insert_with(|| NO_PROTOCOL.to_owned());
    }
    let conditions = split.part.conditions();
    let warn = |file| warn_of_unread(file, &TableColumns::default(), |warning| printer::warning(&warning));
    let (mut sources, mut terminal) = (Vec::new(), Terminal::default());
    for (embeddings, labels) in alone {
        let file = File { embeddings, labels, cameras: None };
        sources.push(Source::of_file_where(file, &of_one, &conditions, &mut terminal)?);
        warn(embeddings)?;
    }
    for (at, (query, gallery)) in split.query.iter().zip(&split.gallery).enumerate() {
        let given = |list: &'a [PathBuf]| list.get(at).map(PathBuf::as_path);
        let query = File {
            embeddings: query,
            labels: given(&split.query_labels),
            cameras: given(&split.query_cameras),
        };
        let gallery = File {
            embeddings: gallery,
            labels: given(&split.gallery_labels),
            cameras: given(&split.gallery_cameras),
        };
        let force = split.force;
        sources.push(Source::of_files_where(query, gallery, &by, &conditions, force, &mut terminal)?);
        [query, gallery].into_iter().try_for_each(|file| warn(file.embeddings))?;
    }
    Ok(sources)
}

/// Returns an error unless there is one list per file, or none.
fn check_counts<const N: usize>(
    option: &str,
    files: usize,
    lists: [(&str, usize); N],
) -> Result<(), Failure> {
    match lists.into_iter().find(|&(_, count)| count > 0 && count != files) {
        None => Ok(()),
        Some((list, count)) => Err(Failure::new(
            format!("{files} {option} and {count} {list}"),
            Some(&format!("give one {list} for each {option}, in the same order, or none")),
        )),
    }
}

fn ranked(args: &Ranked) -> Result<Figure, Failure> {
    let queries = match args.queries {
        _ if !args.named.is_empty() => Queries::Named(args.named.clone()),
        QuerySelection::Worst => Queries::Worst(args.count),
        QuerySelection::Best => Queries::Best(args.count),
        QuerySelection::Random => Queries::Random(args.count, args.seed),
        QuerySelection::Confused => Queries::Confused(args.count),
    };
    Ok(plots::ranked(&one(&args.of, true)?, &queries, args.k)?)
}

fn map(args: &MapArgs) -> Result<Figure, Failure> {
    let method = match args.method {
        Projection::Tsne => MapMethod::Tsne(Tsne { perplexity: args.perplexity, steps: args.steps }),
        Projection::Pca => MapMethod::Pca,
    };
    let source = one(&args.of, false)?;
    let bar = bar(args.steps, MAPPING);
    let (figure, notes) = plots::map(&source, &method, !args.no_thumbnails, &mut |done, total| {
        bar.set_length(total as u64);
        bar.set_position(done as u64);
    })?;
    bar.finish_and_clear();
    notes.iter().for_each(|note| printer::warning(note));
    Ok(figure)
}
