//! `gallerist index info`.

use std::process::ExitCode;

use serde::Serialize;

use super::open::{open, open_remote};
use super::summary::{ColumnSummary, columns, listed, summary};
use crate::cli::args::index::Info;
use crate::cli::failure::CommandResult;
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
    #[serde(skip_serializing_if = "Option::is_none")]
    threshold: Option<f32>,
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
        threshold: origin.threshold.map(|rule| rule.threshold),
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
    facts.extend(collection.threshold.map(|threshold| ("threshold", threshold.to_string())));
    facts.extend(further);
    printer::facts(&facts)?;
    Done::Gallery(&args.index).show();
    Ok(ExitCode::SUCCESS)
}

pub(super) fn run(args: Info) -> CommandResult {
    if is_remote(&args.index) {
        return info_of_collection(&args);
    }
    let index = open(&args.index, true)?;
    if args.json {
        printer::json(&summary(&args.index, index.as_ref())?)?;
        return Ok(ExitCode::SUCCESS);
    }
    crate::cli::commands::info::facts(&crate::contents(&args.index)?)?;
    Done::Gallery(&args.index).show();
    Ok(ExitCode::SUCCESS)
}
