//! `gallerist index bench`.

use std::process::ExitCode;
use std::time::Instant;

use crate::retrieval::EmbeddingSet;
use crate::retrieval::index::{IdLists, Index, ItemFilter};
use serde::Serialize;

use super::open::open;
use crate::cli::args::index::Bench;
use crate::cli::failure::{CommandResult, Failure};
use crate::cli::next::Done;
use crate::cli::printer::{self, Table, grouped};

/// One row of the table.
#[derive(Serialize)]
struct Measured {
    /// ef; `None` for exact search.
    ef: Option<usize>,
    recall: f64,
    queries_per_second: f64,
}

pub(super) fn run(args: Bench) -> CommandResult {
    crate::set_threads(args.common.threads);
    if args.repeats == 0 {
        return Err(Failure::new("--repeats must be 1 or more, not 0", None));
    }
    let mut index = open(&args.index, args.mapped)?;
    let queries = EmbeddingSet::load(&args.queries)?.embeddings;
    if queries.rows() == 0 {
        return Err(crate::retrieval::Error::Empty { what: "the file of queries" }.into());
    }
    let (rows, k, repeats) = (queries.rows(), args.k, args.repeats);
    let search = |index: &dyn Index| {
        timed(rows, repeats, || Ok(index.search(queries.view(), k, &ItemFilter::default())?))
    };
    let mut measured = Vec::new();
    if index.info()?.kind.is_exact {
        let (_, queries_per_second) = search(index.as_ref())?;
        measured.push(Measured { ef: None, recall: 1.0, queries_per_second });
    } else {
        let (truth, exact) = timed(rows, 1, || Ok(index.search_all(queries.view(), k)?))?;
        for &ef in &args.ef {
            index.set_ef(ef)?;
            let (lists, queries_per_second) = search(index.as_ref())?;
            measured.push(Measured { ef: Some(ef), recall: recall(&lists, &truth), queries_per_second });
        }
        measured.push(Measured { ef: None, recall: 1.0, queries_per_second: exact });
    }
    if args.common.json {
        printer::json(&measured)?;
        return Ok(ExitCode::SUCCESS);
    }
    let recall = format!("recall@{k}");
    let mut table = Table::new(&["ef", &recall, "queries/s"], &[true, true, true]);
    for one in &measured {
        table.row(vec![
            one.ef.map_or_else(|| "exact".to_owned(), |ef| ef.to_string()),
            format!("{:.4}", one.recall),
            grouped(one.queries_per_second as usize),
        ]);
    }
    printer::out(&table.to_string())?;
    Done::Gallery(&args.index).show();
    Ok(ExitCode::SUCCESS)
}

/// The results of `search`, and queries per second: the median of `repeats`.
fn timed(
    queries: usize,
    repeats: usize,
    search: impl Fn() -> Result<IdLists, Failure>,
) -> Result<(IdLists, f64), Failure> {
    let mut lists = IdLists::default();
    let mut seconds = Vec::new();
    for _ in 0..repeats {
        let start = Instant::now();
        lists = search()?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    seconds.sort_by(f64::total_cmp);
    Ok((lists, queries as f64 / seconds[repeats / 2]))
}

/// The fraction of the true nearest items that the lists contain.
fn recall(lists: &IdLists, truth: &IdLists) -> f64 {
    let (mut found, mut wanted) = (0, 0);
    for ((ids, _), (truth, _)) in lists.iter().zip(truth.iter()) {
        let mut truth = truth.to_vec();
        truth.sort_unstable();
        wanted += truth.len();
        found += ids.iter().filter(|id| truth.binary_search(id).is_ok()).count();
    }
    found as f64 / wanted.max(1) as f64
}
