//! `gallerist search`.

use std::process::ExitCode;

use crate::cli::args::Search;
use crate::cli::failure::CommandResult;
use crate::cli::next::Done;
use crate::cli::printer::{self, Table};
use crate::cli::terminal::Terminal;
use crate::{FoundList, ImageSearchOptions};

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
            printer::out(&tables(&found.lists))?;
            Done::Gallery(&args.gallery).show();
        }
    }
    Ok(ExitCode::from(u8::from(found.broken_images > 0)))
}

fn tables(lists: &[FoundList]) -> String {
    let mut text = String::new();
    for list in lists {
        let mut table = Table::new(&["rank", "distance", "label", "path"], &[true, true, false, false]);
        for item in &list.results {
            table.row(vec![
                item.rank.to_string(),
                format!("{:.4}", item.distance),
                item.label.clone().unwrap_or_default(),
                item.path.clone().unwrap_or_default(),
            ]);
        }
        text += &format!("{}\n{table}\n", printer::shown(&list.query));
    }
    text
}
