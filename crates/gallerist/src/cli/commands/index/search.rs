//! `gallerist index search`.

use std::collections::HashMap;
use std::process::ExitCode;

use crate::retrieval::columns::Columns;
use crate::retrieval::index::{Index, Item};
use crate::retrieval::search::Metric;
use crate::retrieval::{EmbeddingSet, Error, fingerprint};
use serde::Serialize;

use super::open::{open, open_remote};
use crate::cli::args::index::Search;
use crate::cli::failure::{CommandResult, Failure};
use crate::cli::next::Done;
use crate::cli::printer::{self, Table, shown};
use crate::cli::progress::working;
use crate::tasks::is_remote;

/// What `--json` prints per query.
#[derive(Serialize)]
struct Listed {
    query: usize,
    path: Option<String>,
    results: Vec<Found>,
}

#[derive(Serialize)]
struct Found {
    rank: usize,
    /// A text, because numbers of JSON are exact in many programs only up to 2^53.
    id: String,
    score: f32,
    label: Option<String>,
    path: Option<String>,
    camera: Option<String>,
    source: Option<String>,
    /// The values of further columns.
    #[serde(skip_serializing_if = "serde_json::Map::is_empty")]
    columns: serde_json::Map<String, serde_json::Value>,
}

pub(super) fn run(mut args: Search) -> CommandResult {
    crate::set_threads(args.common.threads);
    let index = if is_remote(&args.index) {
        open_remote(&args.index, args.ef)?.index
    } else {
        let mut index = working("reading the index", || open(&args.index, args.mapped))?;
        set_ef(index.as_mut(), args.ef)?;
        index
    };
    if let Some(unknown) = args.filter.resolve(index.as_ref())?.pop() {
        return Err(Failure { message: unknown.message, hint: unknown.hint });
    }
    let queries = EmbeddingSet::load(&args.queries)?;
    let info = index.info()?;
    if !args.force
        && let (Some(of_index), Some(of_queries)) = (&info.model, &queries.model)
        && !fingerprint::comparable(of_index, of_queries, info.metric)
    {
        let models = Error::Models { first: Some(of_index.clone()), other: Some(of_queries.clone()) };
        return Err(Failure::new(
            format!("the queries were not embedded with the model of the index: {models}"),
            Some("embed the queries with the model of the index, or search anyway with --force"),
        ));
    }
    // Cosine accepts rows of any length.
    if !args.force && info.metric != Metric::Cosine {
        let (first, other) = (index.origin()?.metric_of_rows(), queries.metric.unwrap_or_default());
        if first != other {
            return Err(Failure::new(
                format!(
                    "the queries are to be compared by {other}, the items of the index by {first}: their lengths differ"
                ),
                Some(
                    "embed the queries as the items were (`embed --normalize`), or search anyway with --force",
                ),
            ));
        }
    }
    index.check_filter(&args.filter.filter())?;
    let lists = index.search(queries.embeddings.view(), args.k, &args.filter.filter())?;
    // Each item is requested once, because requests to a remote index are slow.
    let mut ids: Vec<u64> = lists.iter().flat_map(|(ids, _)| ids).copied().collect();
    ids.sort_unstable();
    ids.dedup();
    let items: Vec<Item> = index.get(&ids)?.into_iter().flatten().collect();
    // Of the kinds that the index has: an item of a database keeps those that it was pushed with.
    let columns = Columns::of_rows(&index.columns()?, items.iter().map(|item| &item.columns));
    let items: HashMap<u64, (Item, usize)> =
        items.into_iter().enumerate().map(|(row, item)| (item.id, (item, row))).collect();
    let listed: Vec<Listed> = (0..lists.len())
        .map(|query| Listed {
            query,
            path: queries.paths.as_ref().map(|paths| paths[query].clone()),
            results: results((&items, &columns), lists.ids(query), lists.scores(query)),
        })
        .collect();
    if args.common.json {
        printer::json(&listed)?;
    } else {
        printer::out(&tables(&listed, info.metric.score()))?;
        Done::Gallery(&args.index).show();
    }
    Ok(ExitCode::SUCCESS)
}

/// Applies --ef; an exact index does not have it.
fn set_ef(index: &mut dyn Index, ef: Option<usize>) -> Result<(), Failure> {
    match ef {
        None => Ok(()),
        Some(ef) if !index.info()?.kind.is_exact => Ok(index.set_ef(ef)?),
        Some(_) => Err(Failure::new(
            "--ef is for an index of kind hnsw, and this one is exact",
            Some("leave --ef out"),
        )),
    }
}

fn results(
    (items, columns): (&HashMap<u64, (Item, usize)>, &Columns),
    ids: &[u64],
    scores: &[f32],
) -> Vec<Found> {
    let found = ids.iter().zip(scores).enumerate();
    found
        .filter_map(|(at, (id, &score))| {
            let (item, row) = items.get(id)?;
            Some(Found {
                rank: at + 1,
                id: item.id.to_string(),
                score,
                label: item.label.clone(),
                path: item.path.clone(),
                camera: item.camera.clone(),
                source: item.source.clone(),
                columns: columns.row_as_json(*row),
            })
        })
        .collect()
}

fn tables(lists: &[Listed], score: &str) -> String {
    let mut text = String::new();
    for list in lists {
        let mut table =
            Table::new(&["rank", score, "id", "label", "path"], &[true, true, true, false, false]);
        for found in &list.results {
            table.row(vec![
                found.rank.to_string(),
                format!("{:.4}", found.score),
                found.id.clone(),
                found.label.clone().unwrap_or_default(),
                found.path.clone().unwrap_or_default(),
            ]);
        }
        let name = list
            .path
            .as_deref()
            .map_or_else(|| format!("row {}", list.query), |path| shown(path).into_owned());
        text += &format!("{name}\n{table}\n");
    }
    text
}
