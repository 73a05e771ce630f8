//! `gallerist search`.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::process::ExitCode;

use serde_json::Value;

use crate::cli::args::Search;
use crate::cli::failure::CommandResult;
use crate::cli::next::Done;
use crate::cli::output::check_page;
use crate::cli::printer::{self, Table};
use crate::cli::terminal::Terminal;
use crate::retrieval::eval::Decision;
use crate::{Found, ImageSearchOptions, parse_condition};

pub(super) fn run(args: Search) -> CommandResult {
    if let Some(page) = &args.html {
        check_page(page, args.query.iter().chain([&args.gallery]))?;
    }
    let options = ImageSearchOptions {
        k: args.k,
        run: args.run,
        checkpoint: args.checkpoint,
        device: args.compute.device.device,
        products: args.compute.products,
        regions: args.region,
        texts: args.text,
        condition: args.condition.as_deref().map(parse_condition).transpose()?,
        group_by: args.group_by,
        group_score: args.group_score,
        page: args.html,
        images: args.images,
    };
    let found = crate::search(&args.gallery, &args.query, &options, &mut Terminal::default())?;
    match args.json {
        true => printer::json(&found.lists)?,
        false => {
            printer::out(&tables(&found))?;
            Done::Searched(&args.gallery, &options).show();
        }
    }
    Ok(ExitCode::from(u8::from(found.broken_images > 0)))
}

/// Further columns in the text output; JSON contains all.
const MAX_COLUMNS: usize = 6;

/// The text of a value: tags with `|` between them.
fn cell(value: Option<&Value>) -> String {
    match value {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(tags)) => tags.iter().filter_map(Value::as_str).collect::<Vec<_>>().join("|"),
        Some(other) => other.to_string(),
    }
}

fn tables(found: &Found) -> String {
    let mut text = String::new();
    let rule = found.threshold.as_ref();
    let items = || found.lists.iter().flat_map(|list| &list.results);
    let grouped = items().any(|item| item.group_size.is_some());
    // Without paths, only the row of the file or the id in the index tells the items apart.
    let number = match items().any(|item| item.id.is_some()) {
        true => "id",
        false => "row",
    };
    let number = items().any(|item| item.path.is_none()).then_some(number);
    let columns: BTreeSet<&String> = items().flat_map(|item| item.columns.keys()).collect();
    let not_shown = columns.len().saturating_sub(MAX_COLUMNS);
    let columns: Vec<&String> = columns.into_iter().take(MAX_COLUMNS).collect();
    for list in &found.lists {
        let (mut names, mut right) =
            (vec!["rank", "distance", "label", "path"], vec![true, true, false, false]);
        if let Some(number) = number {
            names.insert(2, number);
            right.insert(2, true);
        }
        if rule.is_some() {
            names.insert(2, "match");
            right.insert(2, false);
        }
        if grouped {
            names.push("in group");
            right.push(true);
        }
        let shown: Vec<Cow<str>> = columns.iter().map(|name| printer::shown(name)).collect();
        names.extend(shown.iter().map(AsRef::as_ref));
        right.extend(columns.iter().map(|_| false));
        let mut table = Table::new(&names, &right);
        for item in &list.results {
            let mut cells = vec![
                item.rank.to_string(),
                format!("{:.4}", item.distance),
                item.label.clone().unwrap_or_default(),
                item.path.clone().unwrap_or_default(),
            ];
            if number.is_some() {
                let number = item.id.or(item.index.map(|row| row as u64));
                cells.insert(2, number.map(|number| number.to_string()).unwrap_or_default());
            }
            if rule.is_some() {
                let words = match item.decision {
                    Some(Decision::Match) => "match",
                    Some(Decision::Near) => "near",
                    Some(Decision::NoMatch) | None => "-",
                };
                cells.insert(2, words.to_owned());
            }
            cells.extend(item.group_size.filter(|_| grouped).map(|size| size.to_string()));
            cells.extend(columns.iter().map(|name| cell(item.columns.get(*name))));
            table.row(cells);
        }
        let region = list.region.as_ref().map_or(String::new(), |region| format!(", region {region}"));
        text += &format!("{}{region}\n{table}", printer::shown(&list.query));
        if let (Some(rule), Some(0)) = (rule, list.matches) {
            text += &format!("  no match: none is within distance {:.4}\n", rule.distance());
        }
        text.push('\n');
    }
    if not_shown > 0 {
        text += &format!("{} not shown: --json has all\n\n", printer::count(not_shown, "further column"));
    }
    text
}
