//! `gallerist index build` and `add`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::retrieval::columns::{Column, ColumnKind};
use crate::retrieval::condition::Condition;
use crate::retrieval::eval::MatchRule;
use crate::retrieval::file::{TableColumns, load_labels};
use crate::retrieval::index::{
    Added, HnswOptions, Index, IndexSettings, ItemFilter, Items, Origin, check_path_ids, create_index,
};
use crate::retrieval::search::Metric;
use crate::retrieval::{EmbeddingSet, Error};

use super::open::open;
use super::summary::report;
use crate::cli::args::index::{Add, Build, GraphArgs, Ids, ItemArgs};
use crate::cli::failure::{CommandResult, Failure};
use crate::cli::output::{check_output, lost_as_text, values_of, warn_of_columns};
use crate::cli::printer::{self, count, grouped};
use crate::cli::progress::{LINKING, bar, working};
use crate::file::check_not_input;
use crate::tasks::not_applied;
use crate::unread::warn_of_unread;

pub(super) fn build(args: Build) -> CommandResult {
    check_output(&args.out)?;
    check_not_input(&args.out, args.embeddings.iter().chain(&args.items.labels))?;
    crate::set_threads(args.common.threads);
    let mut sets = working("reading the embeddings", || load(&args.embeddings, &args.items))?;
    let before = Origin { model: sets.iter().find_map(|set| set.model.clone()), ..Origin::default() };
    let thresholds = one_threshold(&mut sets, &args.embeddings, None);
    let dimensions = sets[0].embeddings.cols();
    let metric = metric_of(args.metric, &sets);
    let GraphArgs { m, ef_construction, ef, seed } = args.graph;
    let settings = IndexSettings { hnsw: HnswOptions { m, ef_construction, ef, seed } };
    let mut index = create_index(args.kind, dimensions, metric, &settings)?;
    let given: usize = sets.iter().map(|set| set.embeddings.rows()).sum();
    let added = upsert(index.as_mut(), sets, &args.items, &args.embeddings)?;
    working("writing the index", || index.save(&args.out))?;
    warn_of_origin(&before, &index.origin()?, thresholds, "index");
    if let Some(rule) = index.origin()?.threshold.filter(|rule| rule.metric != metric) {
        printer::warning(&not_applied(&rule, metric));
    }
    let mut done = format!("{} read", count(given, "embedding"));
    if added.unchanged > 0 {
        done += &format!(", {} of them twice", grouped(added.unchanged));
    }
    if added.replaced > 0 {
        done += &format!(", {} replaced by a later one", grouped(added.replaced));
    }
    report(&args.out, index.as_ref(), args.common.json, (&done, None))?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn add(args: Add) -> CommandResult {
    check_output(&args.index)?;
    crate::set_threads(args.common.threads);
    let mut index = working("reading the index", || open(&args.index, false))?;
    let mut sets = working("reading the embeddings", || load(&args.embeddings, &args.items))?;
    let before = index.origin()?;
    let thresholds = one_threshold(&mut sets, &args.embeddings, before.threshold.as_ref());
    if args.items.ids.is_none() && sets.iter().all(|set| set.paths.is_some()) {
        check_path_ids(index.as_ref())?;
    }
    let given = sets.iter().map(|set| set.embeddings.rows()).sum();
    let added = upsert(index.as_mut(), sets, &args.items, &args.embeddings)?;
    warn_of_origin(&before, &index.origin()?, thresholds, "index");
    if args.compact || added.new + added.replaced > 0 {
        finish(&args.index, index.as_mut(), args.compact)?;
    }
    let Added { new, unchanged, replaced } = added;
    let mut done = format!("{} read, {} of them new", count(given, "embedding"), grouped(new));
    if unchanged > 0 {
        done += &format!(", {} there unchanged", grouped(unchanged));
    }
    if replaced > 0 {
        done += &format!(", {} replaced", grouped(replaced));
    }
    report(&args.index, index.as_ref(), args.common.json, (&done, Some(added)))?;
    Ok(ExitCode::SUCCESS)
}

/// The metric of --metric, else that of the files, else cosine.
pub(super) fn metric_of(asked: Option<Metric>, sets: &[EmbeddingSet]) -> Metric {
    let declared = sets.iter().find_map(|set| set.metric);
    let metric = asked.or(declared).unwrap_or_default();
    if let Some(declared) = declared.filter(|&declared| metric != declared) {
        printer::note(&format!("rows are compared by {metric}, and their file declares {declared}"));
    }
    metric
}

/// Leaves out thresholds that an index cannot have all, and returns a warning of it: `known` is the one that it has.
pub(super) fn one_threshold(
    sets: &mut [EmbeddingSet],
    files: &[PathBuf],
    known: Option<&MatchRule>,
) -> Option<String> {
    let of_sets = || sets.iter().filter_map(|set| set.threshold.as_ref());
    if MatchRule::distinct(known.into_iter().chain(of_sets())).len() < 2 {
        return None;
    }
    const SAVE: &str = "(save one with `gallerist threshold --save`)";
    let warning = match known {
        Some(known) => {
            let differs = |set: &EmbeddingSet| set.threshold.as_ref().is_some_and(|rule| rule != known);
            let (_, file) = sets.iter().zip(files).find(|(set, _)| differs(set))?;
            format!("`{}` has another threshold than the index, which keeps its own {SAVE}", file.display())
        }
        None => format!("the files have different thresholds, and the index has none {SAVE}"),
    };
    sets.iter_mut().for_each(|set| set.threshold = None);
    Some(warning)
}

/// Warns if the `index`, or collection, has lost its network and threshold because items of another network were mixed in; else of
/// the `thresholds` that were left out.
pub(super) fn warn_of_origin(before: &Origin, after: &Origin, thresholds: Option<String>, index: &str) {
    let lost = |had: bool, has: bool| had && !has;
    let threshold = lost(before.threshold.is_some(), after.threshold.is_some());
    if threshold || lost(before.model.is_some(), after.model.is_some()) {
        printer::warning(&format!(
            "the items are of several networks now: the {index} names no network and no run, and has no threshold"
        ));
    } else if let Some(thresholds) = thresholds {
        printer::warning(&thresholds);
    }
}

/// Compacts if requested, and writes.
pub(super) fn finish(path: &Path, index: &mut dyn Index, compact: bool) -> Result<(), Failure> {
    if compact {
        let bar = bar(0, LINKING);
        index.compact(&mut |done, all| {
            bar.set_length(all as u64);
            bar.set_position(done as u64);
        })?;
        bar.finish_and_clear();
    }
    Ok(working("writing the index", || index.save(path))?)
}

/// The sets, with --labels distributed over them.
pub(super) fn load(files: &[PathBuf], args: &ItemArgs) -> Result<Vec<EmbeddingSet>, Failure> {
    let mut sets = files.iter().map(EmbeddingSet::load).collect::<Result<Vec<_>, _>>()?;
    for file in files {
        warn_of_unread(file, &TableColumns::default(), |warning| printer::warning(&warning))?;
    }
    let rows: usize = sets.iter().map(|set| set.embeddings.rows()).sum();
    if rows == 0 {
        return Err(Error::Empty { what: "the gallery" }.into());
    }
    if let Some(file) = &args.labels {
        let labels = load_labels(file)?;
        if labels.len() != rows {
            let (what, rows_are) = ("labels", "embeddings");
            return Err(Error::Count { what, rows: rows_are, wanted: rows, found: labels.len() }.into());
        }
        let mut labels = labels.into_iter();
        for set in &mut sets {
            set.labels = Some(labels.by_ref().take(set.embeddings.rows()).collect());
        }
    }
    Ok(sets)
}

/// The items of each file with its name, with ids by --ids; row numbers start at
/// `next`.
pub(super) fn items(
    sets: Vec<EmbeddingSet>,
    args: &ItemArgs,
    files: &[PathBuf],
    mut next: u64,
) -> Result<Vec<(String, Items)>, Failure> {
    let ids =
        args.ids.unwrap_or(if sets.iter().all(|set| set.paths.is_some()) { Ids::Paths } else { Ids::Rows });
    let mut parts = Vec::with_capacity(sets.len());
    for (set, file) in sets.into_iter().zip(files) {
        let name = file.display().to_string();
        let rows = set.embeddings.rows();
        let items = match (ids, &set.paths) {
            (Ids::Paths, Some(_)) => Items::from_set(set).map_err(|error| of_file(&name, error))?,
            (Ids::Paths, None) => {
                return Err(Failure::new(
                    format!("`{name}` names no paths to take ids from"),
                    Some("give --ids rows"),
                ));
            }
            (Ids::Rows, _) => Items::numbered(set, next)?,
        };
        next += rows as u64;
        parts.push((name, if args.force { items.of_any_model() } else { items }));
    }
    Ok(parts)
}

/// The error with the name of its file.
pub(super) fn of_file(name: &str, error: Error) -> Failure {
    match error {
        Error::Models { .. } => Failure::new(
            format!("`{name}`: {error}"),
            Some("embed it with the model of the index, build an index of its own, or mix them with --force"),
        ),
        Error::Metrics { .. } => Failure::new(
            format!("`{name}`: {error}"),
            Some(
                "embed it as the other items of the index were (`embed --normalize`), or mix them with --force",
            ),
        ),
        Error::DuplicateId { path: Some(_), .. } => Failure::new(
            format!("`{name}`: {error}"),
            Some(
                "images of one path need sources of their own: embed them with this version, or give --ids rows",
            ),
        ),
        other => Failure { message: format!("`{name}`: {other}"), hint: other.hint() },
    }
}

/// Adds the items of all files. If one would replace another, of the index or of an earlier file,
/// nothing is written.
fn upsert(
    index: &mut dyn Index,
    sets: Vec<EmbeddingSet>,
    args: &ItemArgs,
    files: &[PathBuf],
) -> Result<Added, Failure> {
    let next = index.next_id()?;
    if !args.force {
        check_known(index, &sets, files)?;
    }
    warn_of_columns(sets.iter().map(|set| &set.columns));
    let differ = columns_that_differ(index, &sets)?;
    let mut all = Added::default();
    for (name, items) in items(sets, args, files, next)? {
        let added = add_file(index, &items, args.replace).map_err(|error| of_file(&name, error))?;
        all.new += added.new;
        all.unchanged += added.unchanged;
        all.replaced += added.replaced;
    }
    // Items that are there unchanged do not change a column.
    if all.new + all.replaced > 0 {
        warn_of_kinds(&differ, "index");
    }
    Ok(all)
}

/// Warns of columns of the index, or of the collection, of which a file has values of another kind.
pub(super) fn warn_of_kinds(differ: &[(String, ColumnKind, ColumnKind)], what: &str) {
    for (name, in_index, in_file) in differ {
        let lost = [*in_index, *in_file].into_iter().filter(|kind| kind.loses_as_text());
        let lost: Vec<String> =
            lost.map(|kind| format!("{} become text, {}", values_of(kind), lost_as_text(kind))).collect();
        printer::warning(&format!(
            "the column `{name}` is of kind {in_index} in the {what} and {in_file} in a file: {} (leave a missing value empty)",
            lost.join("; ")
        ));
    }
}

/// Refuses items of a known network next to items of an unknown one, as `convert` does.
fn check_known(index: &dyn Index, sets: &[EmbeddingSet], files: &[PathBuf]) -> Result<(), Failure> {
    let info = index.info()?;
    let mut first = (info.count > 0).then_some((None, info.model));
    let name = |file: Option<&PathBuf>| {
        file.map_or("the items of the index".to_owned(), |file| format!("those of `{}`", file.display()))
    };
    // Rows of other dimensions are refused as such.
    let fits = |set: &EmbeddingSet| set.embeddings.rows() > 0 && set.embeddings.cols() == info.dimensions;
    for (set, file) in sets.iter().zip(files).filter(|(set, _)| fits(set)) {
        let Some((first_file, first_model)) = &first else {
            first = Some((Some(file), set.model.clone()));
            continue;
        };
        let (known, unknown) = match (first_model, &set.model) {
            (Some(_), None) => (*first_file, Some(file)),
            (None, Some(_)) => (Some(file), *first_file),
            _ => continue,
        };
        return Err(Failure::new(
            format!(
                "`{}`: the network of {} is known, that of {} is not",
                file.display(),
                name(known),
                name(unknown)
            ),
            Some("embed all of them with one network, build an index of its own, or mix them with --force"),
        ));
    }
    Ok(())
}

/// Columns that are of numbers or dates in the index and of another kind in a file, or the other way round: their names and the two
/// kinds.
pub(super) fn columns_that_differ(
    index: &dyn Index,
    sets: &[EmbeddingSet],
) -> Result<Vec<(String, ColumnKind, ColumnKind)>, Error> {
    let mut differ = Vec::new();
    for (name, kind) in index.columns()? {
        let of_sets =
            sets.iter().filter_map(|set| set.columns.get(&name)).filter(|column| column.has_values());
        let loses = |other: ColumnKind| kind.loses_as_text() || other.loses_as_text();
        let other = of_sets.map(Column::kind).find(|&other| other != kind && loses(other));
        if let Some(other) = other.filter(|_| has_values(index, &name)) {
            differ.push((name, kind, other));
        }
    }
    Ok(differ)
}

/// Whether an item has a value in this column; an empty column takes the kind of the values that are added.
fn has_values(index: &dyn Index, name: &str) -> bool {
    let Ok(condition) = Condition::parse(&format!("`{name}` is not missing")) else { return true };
    !index.ids(&ItemFilter::default().meets(condition)).is_ok_and(|ids| ids.is_empty())
}

fn add_file(index: &mut dyn Index, items: &Items, replace: bool) -> Result<Added, Error> {
    let bar = bar(0, LINKING);
    let added = index.add_with(items, replace, &mut |done, all| {
        bar.set_length(all as u64);
        bar.set_position(done as u64);
    });
    bar.finish_and_clear();
    added
}
