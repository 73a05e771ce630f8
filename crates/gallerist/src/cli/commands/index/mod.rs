//! `gallerist index`.

mod bench;
pub(super) mod build;
mod labels;
mod search;

use std::path::Path;
use std::process::ExitCode;

use crate::retrieval::index::{Added, Index, IndexInfo, ItemFilter, is_index, open_index};
use crate::retrieval::search::Metric;
use serde::{Serialize, Serializer};

use super::remote::{self, is_remote};
use super::{Failure, Outcome};
use crate::cli::args::index::{Command, FilterArgs, Info, Remove};
use crate::cli::printer::{self, count, grouped};

pub(super) fn run(command: Command) -> Outcome {
    match command {
        Command::Build(args) => build::build(args),
        Command::Info(args) => info(args),
        Command::Search(args) => search::run(args),
        Command::Bench(args) => bench::run(args),
        Command::Add(args) => build::add(args),
        Command::Remove(args) => remove(args),
        Command::Push(args) => remote::push(&args),
    }
}

/// Opens an index; a file of embeddings is told apart from a damaged index.
pub(super) fn open(path: &Path, mapped: bool) -> Result<Box<dyn Index>, Failure> {
    if path.exists() && !is_index(path) && crate::retrieval::EmbeddingSet::load(path).is_ok() {
        return Err(Failure::new(
            format!("`{}` holds embeddings and is no index", path.display()),
            Some("make one of it with `gallerist index build`"),
        ));
    }
    Ok(open_index(path, mapped)?)
}

impl FilterArgs {
    fn filter(&self) -> ItemFilter {
        let mut filter = ItemFilter::default();
        if !self.label.is_empty() {
            filter = filter.label_in(&self.label);
        }
        if !self.not_label.is_empty() {
            filter = filter.label_not_in(&self.not_label);
        }
        if !self.camera.is_empty() {
            filter = filter.camera_in(&self.camera);
        }
        if !self.not_camera.is_empty() {
            filter = filter.camera_not_in(&self.not_camera);
        }
        if !self.path.is_empty() {
            filter = filter.path_in(&self.path);
        }
        if !self.not_path.is_empty() {
            filter = filter.path_not_in(&self.not_path);
        }
        if !self.id.is_empty() {
            filter = filter.id_in(self.id.iter().copied());
        }
        if !self.not_id.is_empty() {
            filter = filter.id_not_in(self.not_id.iter().copied());
        }
        filter
    }
}

/// What `--json` prints of an index.
#[derive(Serialize)]
struct Summary {
    file: String,
    kind: &'static str,
    metric: Metric,
    items: usize,
    dimensions: usize,
    /// The options of its kind, under the name of the kind.
    #[serde(flatten)]
    settings: KindSettings,
    /// Replaced and removed items that are still in the graph.
    #[serde(skip_serializing_if = "Option::is_none")]
    dead: Option<usize>,
    model: Option<String>,
    run: Option<String>,
    source: Option<String>,
    /// The names of the items' sources.
    sources: Vec<String>,
    bytes: u64,
    /// What `add` did.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    added: Option<Added>,
}

/// The options of a kind that has any.
struct KindSettings {
    kind: &'static str,
    settings: Vec<(&'static str, u64)>,
}

impl Serialize for KindSettings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// In their order, which a map would not keep.
        struct InOrder<'a>(&'a [(&'static str, u64)]);
        impl Serialize for InOrder<'_> {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_map(self.0.iter().copied())
            }
        }
        let kind = (!self.settings.is_empty()).then(|| (self.kind, InOrder(&self.settings)));
        serializer.collect_map(kind)
    }
}

fn summary(path: &Path, index: &dyn Index) -> Result<Summary, Failure> {
    let (info, origin) = (index.info()?, index.origin()?);
    Ok(Summary {
        file: path.display().to_string(),
        kind: info.kind.name,
        metric: info.metric,
        items: info.count,
        dimensions: info.dimensions,
        settings: KindSettings { kind: info.kind.name, settings: info.settings },
        dead: info.dead,
        model: origin.model,
        run: origin.run,
        source: origin.source,
        sources: index.sources()?.into_iter().map(|source| source.name).collect(),
        added: None,
        bytes: std::fs::metadata(path).map_or(0, |file| file.len()),
    })
}

/// What `--json` prints of a collection.
#[derive(Serialize)]
struct Collection {
    gallery: String,
    #[serde(flatten)]
    info: IndexInfo,
    /// Items that are not in its graph yet.
    to_index: usize,
    run: Option<String>,
    source: Option<String>,
}

fn info_of_collection(args: &Info) -> Outcome {
    let remote = remote::open(&args.index, None)?;
    let origin = remote.index.origin()?;
    let collection = Collection {
        gallery: args.index.display().to_string(),
        info: remote.index.info()?,
        to_index: remote.pending,
        run: origin.run,
        source: origin.source,
    };
    if args.json {
        printer::json(&collection)?;
        return Ok(ExitCode::SUCCESS);
    }
    let info = collection.info;
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
    print_facts(&[
        ("kept in", info.place.to_owned()),
        ("kind", info.kind.name.to_owned()),
        ("compared by", info.metric.score().to_owned()),
        ("items", grouped(info.count)),
        ("not indexed yet", grouped(collection.to_index)),
        ("dimensions", info.dimensions.to_string()),
        ("model", or_unknown(info.model)),
        ("run", or_unknown(collection.run)),
        ("images from", or_unknown(collection.source)),
    ])
}

/// Names and values, one a line.
fn print_facts(facts: &[(&str, String)]) -> Outcome {
    let mut table = printer::Table::new(&["", ""], &[false, false]);
    for (name, value) in facts {
        table.row(vec![(*name).to_owned(), value.clone()]);
    }
    let text = table.to_string();
    // The table has no header.
    printer::out(text.split_once('\n').map_or("", |(_, rows)| rows))?;
    Ok(ExitCode::SUCCESS)
}

fn info(args: Info) -> Outcome {
    if is_remote(&args.index) {
        return info_of_collection(&args);
    }
    let index = open(&args.index, true)?;
    let summary = summary(&args.index, index.as_ref())?;
    if args.json {
        printer::json(&summary)?;
        return Ok(ExitCode::SUCCESS);
    }
    let settings: Vec<(String, String)> = (summary.settings.settings.iter())
        .map(|(name, value)| (name.replace('_', " "), value.to_string()))
        .collect();
    let mut facts = vec![
        ("kind", summary.kind.to_owned()),
        ("compared by", summary.metric.score().to_owned()),
        ("items", grouped(summary.items)),
        ("dimensions", summary.dimensions.to_string()),
    ];
    facts.extend(settings.iter().map(|(name, value)| (name.as_str(), value.clone())));
    facts.extend(summary.dead.map(|dead| ("dead in the graph", grouped(dead))));
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
    let source = match summary.source {
        None if !summary.sources.is_empty() => summary.sources.join(", "),
        source => or_unknown(source),
    };
    facts.extend([
        ("model", or_unknown(summary.model)),
        ("run", or_unknown(summary.run)),
        ("images from", source),
        ("bytes", grouped(summary.bytes as usize)),
    ]);
    print_facts(&facts)
}

fn remove(mut args: Remove) -> Outcome {
    super::set_threads(args.common.threads);
    if !is_remote(&args.index) {
        super::check_output(&args.index)?;
    }
    if args.filter.has_labels() {
        let index = match is_remote(&args.index) {
            true => remote::open(&args.index, None)?.index,
            false => open(&args.index, true)?,
        };
        let known = index.labels(&ItemFilter::default())?;
        for unknown in args.filter.select(known.into_iter().map(|(_, label)| label)) {
            let hint = unknown.hint.map_or(String::new(), |hint| format!("; {hint}"));
            printer::warning(&format!("{}{hint}", unknown.message));
        }
    }
    let filter = args.filter.filter();
    if filter.is_empty() && !args.compact {
        return Err(Failure::new(
            "which items shall be removed?",
            Some("give --id, --path, --label or --camera"),
        ));
    }
    if is_remote(&args.index) {
        return remove_from_collection(&args, &filter);
    }
    super::check_output(&args.index)?;
    let mut index = open(&args.index, false)?;
    let ids = if filter.is_empty() { Vec::new() } else { index.ids(&filter)? };
    let removed = index.remove(&ids)?;
    build::finish(&args.index, index.as_mut(), args.compact)?;
    let done = format!("{} removed", count(removed, "item"));
    report(&args.index, index.as_ref(), args.common.json, (&done, None))?;
    // Nothing removed is something to look at.
    Ok(ExitCode::from(u8::from(removed == 0 && !filter.is_empty())))
}

fn remove_from_collection(args: &Remove, filter: &ItemFilter) -> Outcome {
    if args.compact {
        return Err(Failure::new("Milvus compacts its collections itself", Some("leave --compact out")));
    }
    let mut index = remote::open(&args.index, None)?.index;
    let ids = index.ids(filter)?;
    let removed = index.remove(&ids)?;
    index.flush()?;
    let held = index.info()?.count;
    let gallery = args.index.display().to_string();
    if args.common.json {
        printer::json(&serde_json::json!({ "gallery": gallery, "items": held, "removed": removed }))?;
    } else {
        let (removed, held) = (count(removed, "item"), count(held, "item"));
        printer::note(&format!("{removed} removed; `{gallery}` holds {held}"));
    }
    // Nothing removed is something to look at.
    Ok(ExitCode::from(u8::from(removed == 0)))
}

/// Says what was done, and what the index holds now.
fn report(
    path: &Path,
    index: &dyn Index,
    json: bool,
    (done, added): (&str, Option<Added>),
) -> Result<(), Failure> {
    let summary = Summary { added, ..summary(path, index)? };
    if json {
        return Ok(printer::json(&summary)?);
    }
    printer::note(&format!("{done}; `{}` holds {}", summary.file, count(summary.items, "item")));
    if summary.dead.is_some_and(|dead| dead * 4 > summary.items) {
        printer::warning(&format!(
            "{} dead in the graph make searches slower; `--compact` builds it anew",
            count(summary.dead.unwrap_or(0), "item")
        ));
    }
    Ok(())
}
