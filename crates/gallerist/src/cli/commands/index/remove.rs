//! `gallerist index remove`.

use std::process::ExitCode;

use super::build::finish;
use super::open::{open, open_remote};
use super::summary::report;
use crate::cli::args::index::Remove;
use crate::cli::failure::{CommandResult, Failure};
use crate::cli::output::check_output;
use crate::cli::printer::{self, count};
use crate::retrieval::index::ItemFilter;
use crate::tasks::is_remote;

pub(super) fn run(mut args: Remove) -> CommandResult {
    crate::set_threads(args.common.threads);
    if !is_remote(&args.index) {
        check_output(&args.index)?;
    }
    if !args.filter.filter().is_empty() {
        let index = match is_remote(&args.index) {
            true => open_remote(&args.index, None)?.index,
            false => open(&args.index, true)?,
        };
        for unknown in args.filter.resolve(index.as_ref())? {
            let hint = unknown.hint.map_or(String::new(), |hint| format!("; {hint}"));
            printer::warning(&format!("{}{hint}", unknown.message));
        }
    }
    let filter = args.filter.filter();
    if filter.is_empty() && !args.compact {
        return Err(Failure::new(
            "which items shall be removed?",
            Some("give --id, --path, --label, --camera or --where"),
        ));
    }
    if is_remote(&args.index) {
        return remove_from_collection(&args, &filter);
    }
    check_output(&args.index)?;
    let mut index = open(&args.index, false)?;
    let ids = if filter.is_empty() { Vec::new() } else { index.ids(&filter)? };
    let removed = index.remove(&ids)?;
    finish(&args.index, index.as_mut(), args.compact)?;
    let done = format!("{} removed", count(removed, "item"));
    report(&args.index, index.as_ref(), args.common.json, (&done, None))?;
    // Nothing was removed: exit code 1.
    Ok(ExitCode::from(u8::from(removed == 0 && !filter.is_empty())))
}

fn remove_from_collection(args: &Remove, filter: &ItemFilter) -> CommandResult {
    if args.compact {
        return Err(Failure::new("a database compacts its collections itself", Some("leave --compact out")));
    }
    let mut index = open_remote(&args.index, None)?.index;
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
    // Nothing was removed: exit code 1.
    Ok(ExitCode::from(u8::from(removed == 0)))
}
