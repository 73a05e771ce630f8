//! `gallerist data`.

use std::process::ExitCode;

use crate::data::{ImageSet, Inspection, OpenOptions, inspect};
use crate::retrieval::columns::{Column, ColumnKind};
use crate::train::model::columns_of;
use serde::Serialize;

use crate::cli::args::{Data, DataCommand, DataInfo, DataIssues};
use crate::cli::failure::{CommandResult, Failure};
use crate::cli::next::Done;
use crate::cli::printer::{self, Table, count, grouped};
use crate::cli::progress::{DECODING, bar, working};
use crate::cli::terminal::Terminal;
use crate::{FoundIssues, IssueGroup};

/// Maximum number of broken files, missing images and leaks in the text output; JSON contains all.
const SHOWN: usize = 5;

pub(super) fn run(args: Data) -> CommandResult {
    match args.command {
        DataCommand::Info(args) => info(args),
        DataCommand::Issues(args) => issues(&args),
    }
}

fn info(args: DataInfo) -> CommandResult {
    let options = args.part.options();
    let (set, test) = working("reading the images' names", || {
        let set = ImageSet::open_with(&args.path, &options)?;
        let test = match &args.test[..] {
            [] => None,
            // Corrections are for the PATHs.
            test => Some(ImageSet::open_with(test, &OpenOptions { relabel: Vec::new(), ..options })?),
        };
        Ok::<_, crate::data::Error>((set, test))
    })?;
    let threads = match args.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        n => n,
    };
    let total = set.len() + test.as_ref().map_or(0, ImageSet::len);
    let bar = bar(total, DECODING);
    let found = inspect(&set, test.as_ref(), threads, &|done| bar.set_position(done as u64));
    bar.finish_and_clear();
    let columns = columns(&set)?;
    match args.json {
        true => printer::json(&Info { found: &found, columns: &columns })?,
        false => printer::out(&(text(&found) + &column_table(&columns)))?,
    }
    for note in &found.notes {
        printer::warning(note);
    }
    let shown = found.broken.iter().take(SHOWN).map(ToString::to_string);
    warn_of(shown, found.broken.len(), "broken image");
    let leaks = found.leaks.iter().take(SHOWN).map(|leak| {
        format!("`{}` ({}) is the same picture as `{}` (train)", leak.other, leak.split, leak.training)
    });
    warn_of(leaks, found.leaks.len(), "leak");
    // `init` takes the images of all splits, as they are.
    if !args.json && found.classes > 1 && args.part.options() == OpenOptions::default() {
        Done::Images(&args.path, &args.test).show();
    }
    Ok(ExitCode::from(u8::from(!found.is_clean())))
}

/// What `--json` prints.
#[derive(Serialize)]
struct Info<'a> {
    #[serde(flatten)]
    found: &'a Inspection,
    #[serde(skip_serializing_if = "<[ColumnInfo]>::is_empty")]
    columns: &'a [ColumnInfo],
}

/// A further column of a manifest.
#[derive(Serialize)]
struct ColumnInfo {
    name: String,
    kind: ColumnKind,
    /// Images with a value.
    values: usize,
}

fn columns(set: &ImageSet) -> Result<Vec<ColumnInfo>, Failure> {
    let columns = columns_of(set)?;
    let info = |column: &Column| ColumnInfo {
        name: column.name().to_owned(),
        kind: column.kind(),
        values: column.values(),
    };
    Ok(columns.iter().map(info).collect())
}

fn column_table(columns: &[ColumnInfo]) -> String {
    if columns.is_empty() {
        return String::new();
    }
    let mut table = Table::new(&["column", "kind", "images with a value"], &[false, false, true]);
    for column in columns {
        table.row(vec![column.name.clone(), column.kind.to_string(), grouped(column.values)]);
    }
    format!("\n{table}")
}

fn issues(args: &DataIssues) -> CommandResult {
    let found = crate::issues(&args.embeddings, &args.options(), &args.out, &mut Terminal::default())?;
    match args.json {
        true => printer::json(&found)?,
        false => printer::out(&issue_table(&found))?,
    }
    let file = |name: &str| args.out.join(name).display().to_string();
    printer::note(&format!("page: {}", file("issues.html")));
    let table = args.table.clone().unwrap_or_else(|| args.out.join("issues.csv"));
    printer::note(&format!("table: {}", table.display()));
    if !args.json {
        Done::Issues(&table).show();
    }
    Ok(ExitCode::SUCCESS)
}

/// The number of issues of each kind.
fn issue_table(found: &FoundIssues) -> String {
    let groups = |of: &dyn Fn(&IssueGroup) -> bool| found.duplicates.iter().filter(|group| of(group)).count();
    let mut table = Table::new(&["", "count"], &[false, true]);
    for (name, value) in [
        ("images", found.images),
        ("classes", found.classes),
        ("likely wrong labels", found.wrong_labels.len()),
        ("labels that cannot be judged", found.not_judged),
        ("groups of near-duplicates", found.duplicates.len()),
        ("  across classes", groups(&|group| group.across_classes)),
        ("  across files", groups(&|group| group.across_files)),
        ("  across splits", groups(&|group| group.across_splits)),
        ("  training images in other splits (leaks)", groups(&|group| group.leak)),
        ("outliers", found.outliers.len()),
        ("pairs of classes that should perhaps be one", found.same_class.len()),
    ] {
        table.row(vec![name.into(), grouped(value)]);
    }
    format!("{table}\nestimated share of random labels: {:.2} %\n", 100.0 * found.noise_rate)
}

/// The first few and the total number.
fn warn_of(shown: impl Iterator<Item = String>, total: usize, what: &str) {
    for line in shown {
        printer::warning(&line);
    }
    if total > SHOWN {
        printer::warning(&format!("{} in all; --json names them", count(total, what)));
    }
}

fn text(found: &Inspection) -> String {
    let layout = found.layout.map_or(String::new(), |layout| {
        let protocol = layout.protocol().map_or(String::new(), |name| format!(" (protocol {name})"));
        format!(": {}{protocol}", layout.title())
    });
    let mut text = format!("{}{layout}\n\n", printer::shown(&found.source));
    let range = |[least, most]: [usize; 2]| match (least, most) {
        (0, _) => "-".to_owned(),
        (a, b) if a == b => grouped(a),
        (a, b) => format!("{} to {}", grouped(a), grouped(b)),
    };
    let mut table =
        Table::new(&["split", "images", "classes", "images per class"], &[false, true, true, true]);
    for split in &found.splits {
        let classes = grouped(split.classes);
        table.row(vec![split.name.clone(), grouped(split.images), classes, range(split.images_per_class)]);
    }
    table.row(vec!["all".into(), grouped(found.images), grouped(found.classes), String::new()]);
    text += &format!("{table}\n");
    for split in &found.splits {
        if let Some(trained) = split.trained_classes.filter(|&trained| trained > 0) {
            text += &format!(
                "{} of {} of `{}` have training images, too\n",
                grouped(trained),
                count(split.classes, "class"),
                split.name
            );
        }
    }
    if found.splits.iter().any(|split| split.trained_classes.is_some_and(|trained| trained > 0)) {
        text += "\n";
    }
    if !found.histogram.is_empty() {
        let mut table = Table::new(&["images per class", "classes"], &[true, true]);
        for bin in &found.histogram {
            table.row(vec![range(bin.images), grouped(bin.classes)]);
        }
        text += &format!("{table}\n");
    }
    let mut table = Table::new(&["", "count"], &[false, true]);
    let optional = [
        ("labels (an image may have several)", found.labels),
        ("cameras", found.cameras),
        ("images of no class (junk, distractors)", Some(found.images_of_no_class).filter(|&n| n > 0)),
        ("images with a bounding box", Some(found.bounding_boxes).filter(|&n| n > 0)),
        ("classes both in training and elsewhere", found.shared_classes),
    ];
    for (name, value) in optional {
        if let Some(value) = value {
            table.row(vec![name.into(), grouped(value)]);
        }
    }
    for (name, value) in [
        ("broken images", found.broken.len()),
        ("annotated images that are missing", found.missing.len()),
        ("images with the same pixels as one before", found.duplicates),
        ("pictures that occur in several classes", found.conflicts),
        ("leaks: training pictures elsewhere", found.leaks.len()),
        ("other files", found.skipped_files),
    ] {
        table.row(vec![name.into(), grouped(value)]);
    }
    text + &table.to_string()
}
