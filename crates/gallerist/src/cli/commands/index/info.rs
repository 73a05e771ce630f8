//! `gallerist index info`.

use std::process::ExitCode;

use serde::Serialize;

use super::open::{open, open_remote};
use super::summary::{ColumnSummary, columns, listed, summary};
use crate::cli::args::index::Info;
use crate::cli::failure::{CommandResult, Failure};
use crate::cli::next::Done;
use crate::cli::printer::{self, grouped};
use crate::retrieval::index::IndexInfo;
use crate::tasks::is_remote;

/// What `--json` prints of a collection.
#[derive(Serialize)]
struct Collection {
    gallery: String,
    #[serde(flatten)]
    info: IndexInfo,
    /// Items that the graph does not contain yet.
    to_index: usize,
    run: Option<String>,
    source: Option<String>,
    /// The further columns of the items.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    columns: Vec<ColumnSummary>,
}

fn info_of_collection(args: &Info) -> CommandResult {
    let remote = open_remote(&args.index, None)?;
    let origin = remote.index.origin()?;
    let collection = Collection {
        gallery: args.index.display().to_string(),
        info: remote.index.info()?,
        to_index: remote.pending,
        run: origin.run,
        source: origin.source,
        columns: columns(remote.index.as_ref())?,
    };
    if args.json {
        printer::json(&collection)?;
        return Ok(ExitCode::SUCCESS);
    }
    let info = collection.info;
    let or_unknown = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
    let further = (!collection.columns.is_empty()).then(|| ("further columns", listed(&collection.columns)));
    let mut facts = vec![
        ("kept in", info.place.to_owned()),
        ("kind", info.kind.name.to_owned()),
        ("compared by", info.metric.score().to_owned()),
        ("items", grouped(info.count)),
        ("not indexed yet", grouped(collection.to_index)),
        ("dimensions", info.dimensions.to_string()),
        ("model", or_unknown(info.model)),
        ("run", or_unknown(collection.run)),
        ("images from", or_unknown(collection.source)),
    ];
    facts.extend(further);
    print_facts(&facts)?;
    Done::Gallery(&args.index).show();
    Ok(ExitCode::SUCCESS)
}

/// Names and values, one per line.
fn print_facts(facts: &[(&str, String)]) -> Result<(), Failure> {
    let mut table = printer::Table::new(&["", ""], &[false, false]);
    for (name, value) in facts {
        table.row(vec![(*name).to_owned(), value.clone()]);
    }
    let text = table.to_string();
    // The table has no header.
    Ok(printer::out(text.split_once('\n').map_or("", |(_, rows)| rows))?)
}

pub(super) fn run(args: Info) -> CommandResult {
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
    facts.extend((!summary.columns.is_empty()).then(|| ("further columns", listed(&summary.columns))));
    print_facts(&facts)?;
    Done::Gallery(&args.index).show();
    Ok(ExitCode::SUCCESS)
}
