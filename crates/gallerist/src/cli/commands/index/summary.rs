//! The summary of an index that commands print.

use std::path::Path;

use serde::{Serialize, Serializer};

use crate::cli::failure::Failure;
use crate::cli::next::Done;
use crate::cli::printer::{self, count};
use crate::retrieval::columns::ColumnKind;
use crate::retrieval::index::{Added, Index};
use crate::retrieval::search::Metric;

/// What `--json` prints of an index.
#[derive(Serialize)]
pub(super) struct Summary {
    pub(super) file: String,
    pub(super) kind: &'static str,
    pub(super) metric: Metric,
    pub(super) items: usize,
    pub(super) dimensions: usize,
    /// The options of the kind, under its name.
    #[serde(flatten)]
    pub(super) settings: KindSettings,
    /// Replaced and removed items that the graph still contains.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) dead: Option<usize>,
    pub(super) model: Option<String>,
    pub(super) run: Option<String>,
    pub(super) source: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) threshold: Option<f32>,
    /// The names of the items' sources.
    pub(super) sources: Vec<String>,
    /// The further columns of the items.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) columns: Vec<ColumnSummary>,
    pub(super) bytes: u64,
    /// The result of `add`.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    pub(super) added: Option<Added>,
}

/// A further column.
#[derive(Serialize)]
pub(super) struct ColumnSummary {
    pub(super) name: String,
    pub(super) kind: ColumnKind,
}

/// The further columns of an index.
pub(super) fn columns(index: &dyn Index) -> Result<Vec<ColumnSummary>, Failure> {
    Ok(index.columns()?.into_iter().map(|(name, kind)| ColumnSummary { name, kind }).collect())
}

/// Names and kinds in one line.
pub(super) fn listed(columns: &[ColumnSummary]) -> String {
    let one = |column: &ColumnSummary| format!("{} ({})", printer::shown(&column.name), column.kind);
    columns.iter().map(one).collect::<Vec<_>>().join(", ")
}

/// The options of a kind.
pub(super) struct KindSettings {
    pub(super) kind: &'static str,
    pub(super) settings: Vec<(&'static str, u64)>,
}

impl Serialize for KindSettings {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        /// In order; a map would not preserve it.
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

pub(super) fn summary(path: &Path, index: &dyn Index) -> Result<Summary, Failure> {
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
        threshold: origin.threshold.map(|rule| rule.threshold),
        sources: index.sources()?.into_iter().map(|source| source.name).collect(),
        columns: columns(index)?,
        added: None,
        bytes: std::fs::metadata(path).map_or(0, |file| file.len()),
    })
}

/// Prints the result and the number of items.
pub(super) fn report(
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
    Done::Gallery(path).show();
    Ok(())
}
