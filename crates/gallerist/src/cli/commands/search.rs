//! `gallerist search`.

use std::process::ExitCode;

use crate::cli::args::Search;
use crate::cli::failure::CommandResult;
use crate::cli::next::Done;
use crate::cli::printer::{self, Table};
use crate::cli::terminal::Terminal;
use crate::retrieval::eval::Decision;
use crate::{Found, ImageSearchOptions};

pub(super) fn run(args: Search) -> CommandResult {
    let options = ImageSearchOptions {
        k: args.k,
        run: args.run,
        checkpoint: args.checkpoint,
        device: args.device.device,
        page: args.html,
        images: args.images,
    };
    let found = crate::search(&args.gallery, &args.query, &options, &mut Terminal::default())?;
    match args.json {
        true => printer::json(&found.lists)?,
        false => {
            printer::out(&tables(&found))?;
            Done::Gallery(&args.gallery).show();
        }
    }
    Ok(ExitCode::from(u8::from(found.broken_images > 0)))
}

fn tables(found: &Found) -> String {
    let mut text = String::new();
    let rule = found.threshold.as_ref();
    for list in &found.lists {
        let (mut names, mut right) =
            (vec!["rank", "distance", "label", "path"], vec![true, true, false, false]);
        if rule.is_some() {
            names.insert(2, "match");
            right.insert(2, false);
        }
        let mut table = Table::new(&names, &right);
        for item in &list.results {
            let mut cells = vec![
                item.rank.to_string(),
                format!("{:.4}", item.distance),
                item.label.clone().unwrap_or_default(),
                item.path.clone().unwrap_or_default(),
            ];
            if rule.is_some() {
                let words = match item.decision {
                    Some(Decision::Match) => "match",
                    Some(Decision::Near) => "near",
                    Some(Decision::NoMatch) | None => "-",
                };
                cells.insert(2, words.to_owned());
            }
            table.row(cells);
        }
        text += &format!("{}\n{table}", printer::shown(&list.query));
        if let (Some(rule), Some(0)) = (rule, list.matches) {
            text += &format!("  no match: none is within distance {:.4}\n", rule.distance());
        }
        text.push('\n');
    }
    text
}
