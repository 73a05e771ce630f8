//! Finding the issues of an image set.

mod found;
mod options;
mod page;
mod table;

use std::path::{Path, PathBuf};

use gallerist_retrieval::file::TableColumns;
use gallerist_retrieval::issues::{IssueOptions, find_issues};
use gallerist_retrieval::{EmbeddingSet, labels, prepare_to_write};
use gallerist_train::model::SPLIT;

pub use found::{FoundIssues, IssueClasses, IssueGroup, IssueImage, IssueLabel, IssueOutlier};
pub use options::IssuesOptions;

use super::embed::labels_of;
use super::evaluate::check_classes;
use crate::file::{check_not_input, io, write_text};
use crate::narrow::{WITH_LABELS, narrowed};
use crate::observer::working;
use crate::text::count;
use crate::unread::warn_of_unread;
use crate::{Error, Observer, Result};
use found::Rows;

/// Finds likely wrong labels, near-duplicates, outliers and classes that should be one in files of embeddings, and
/// writes `issues.html`, `issues.csv` (or [`IssuesOptions::table`]) and `issues.json` into the folder `out`.
///
/// Near-duplicates are also found across files, such as a training and a test set, and across splits: those are a group
/// of their own. `issues.csv` has the columns
/// `kind,image,label,suggested_label,score,detail,action,new_label`, and `source` before `image` where the images are of several
/// sources; the last two are for the user to fill.
///
/// # Example
///
/// ```no_run
/// use std::path::{Path, PathBuf};
/// use gallerist::IssuesOptions;
///
/// let files = [PathBuf::from("photos.safetensors")];
/// let found = gallerist::issues(&files, &IssuesOptions::default(), Path::new("issues"), &mut ())?;
/// for suspect in &found.wrong_labels {
///     println!("{}: {} or {}?", suspect.image.name, suspect.label, suspect.suggested);
/// }
/// # Ok::<(), gallerist::Error>(())
/// ```
///
/// # Errors
///
/// When a file cannot be read or written, when it has images in place of embeddings, when files are of different
/// networks, for label sets (`a|b`), for a filled table that is there already (unless [`IssuesOptions::force`]), and as
/// [`find_issues`].
pub fn issues(
    files: &[PathBuf],
    options: &IssuesOptions,
    out: &Path,
    observer: &mut dyn Observer,
) -> Result<FoundIssues> {
    let (table, delimiter) = table_file(options, out)?;
    check_not_input(&table, files.iter().chain(&options.labels))?;
    if !options.force {
        check_not_filled(&table)?;
    }
    let rows = load(files, options, observer)?;
    let metric = options.metric.or(rows.set.metric).unwrap_or_default();
    if let Some(labels) = rows.set.labels.as_deref().filter(|labels| labels::are_sets(labels)) {
        let sets = labels.iter().filter(|label| label.contains(labels::SEPARATOR)).count();
        return Err(Error::new(
            format!(
                "finding issues needs one class per image, and {} have several labels (`a|b`)",
                count(sets, "image")
            ),
            Some("give labels without `|`, by --labels or when the images are embedded (--label-from)"),
        ));
    }
    check_classes(rows.set.labels.as_deref(), &rows.files[0], WITH_LABELS)?;
    gallerist_util::files::create_dir_all(out).map_err(|e| io("create", out, e))?;
    let encoded = rows.set.labels.as_deref().map(labels::encode);
    let by = IssueOptions { metric, ..options.issues.clone() };
    let ids = encoded.as_ref().map(|encoded| encoded.ids.as_slice());
    let issues = working(observer, "comparing all images", || find_issues(&rows.set.embeddings, ids, &by))?;
    let names = encoded.map(|encoded| encoded.names).unwrap_or_default();
    let found = FoundIssues::new(&issues, &rows, &names);
    if names.is_empty() {
        observer.warning(
            "the embeddings have no labels: only near-duplicates and outliers are found (give --labels FILE)",
        );
    }
    if rows.set.paths.is_none() {
        observer.warning("the embeddings have no paths: images are named by their rows");
    }
    let page =
        working(observer, "reading the images", || page::page(&issues, &found, &rows, metric, options));
    page.write(out.join("issues.html"))?;
    write_text(&table, &table::table(&found, delimiter))?;
    let json = serde_json::to_string_pretty(&found).expect("plain data");
    write_text(&out.join("issues.json"), &format!("{json}\n"))?;
    Ok(found)
}

/// The table to write, and what separates its values.
fn table_file(options: &IssuesOptions, out: &Path) -> Result<(PathBuf, char)> {
    let Some(table) = &options.table else { return Ok((out.join("issues.csv"), ',')) };
    let delimiter = match table.extension().and_then(|extension| extension.to_str()) {
        Some("csv") => ',',
        Some("tsv") => '\t',
        _ => {
            let message = format!("cannot tell the format of `{}`: wanted `.csv` or `.tsv`", table.display());
            return Err(Error::new(message, Some("rename the file")));
        }
    };
    prepare_to_write(table)?;
    Ok((table.clone(), delimiter))
}

/// Refuses to replace a table that the user has filled, or another file.
fn check_not_filled(table: &Path) -> Result<()> {
    if !table.exists() {
        return Ok(());
    }
    let problem = match gallerist_data::has_corrections(table) {
        Ok(false) => return Ok(()),
        Ok(true) => "its columns `action` and `new_label` are filled".to_owned(),
        Err(error) => format!("it cannot be read as a table of issues\n  {error}"),
    };
    Err(Error::new(
        format!("`{}` exists, and {problem}", table.display()),
        Some("give another --table FILE, or --force to overwrite it"),
    ))
}

/// The rows of all files that meet the condition.
fn load(files: &[PathBuf], options: &IssuesOptions, observer: &mut dyn Observer) -> Result<Rows> {
    let [first, rest @ ..] = files else {
        return Err(Error::new("finding issues needs embeddings, and no file is given", None));
    };
    if options.labels.is_some() && !rest.is_empty() {
        return Err(Error::new(
            format!("--labels is given, and {} files of embeddings", files.len()),
            Some("give one file, or files that have their labels"),
        ));
    }
    let mut sets = Vec::new();
    let mut ends = Vec::new();
    for file in files {
        let set = EmbeddingSet::load(file)?;
        warn_of_unread(file, &TableColumns::default(), |warning| observer.warning(warning))?;
        ends.push(ends.last().copied().unwrap_or(0) + set.embeddings.rows());
        sets.push(set);
    }
    let mut set = EmbeddingSet::concat(sets, false)?;
    if let Some(given) = &options.labels {
        let file = first.display().to_string();
        set.labels = Some(labels_of(Some(given), None, "finding issues", &file, "--labels")?);
        set.check_counts()?;
    }
    let mut rows = Rows {
        files: files.to_vec(),
        ends,
        numbers: (0..set.embeddings.rows()).collect(),
        splits: splits(&set, options.split_column.as_deref())?,
        set,
        narrowed: None,
    };
    if let Some(condition) = &options.condition {
        let kept = condition.rows(&rows.set)?;
        let (set, part) = narrowed(rows.set, condition, "embeddings")?;
        observer.note(&part.to_string());
        if !rows.splits.is_empty() {
            rows.splits = kept.iter().map(|&row| rows.splits[row].clone()).collect();
        }
        rows = Rows { set, numbers: kept, narrowed: Some(part), ..rows };
    }
    Ok(rows)
}

/// The split of each row, from a column; none if there is no column [`SPLIT`] and no other one is named.
fn splits(set: &EmbeddingSet, column: Option<&str>) -> Result<Vec<Option<String>>> {
    let Some(found) = set.columns.get(column.unwrap_or(SPLIT)) else {
        return match column {
            None => Ok(Vec::new()),
            Some(name) => {
                let names: Vec<&str> = set.columns.names().collect();
                let hint = match &names[..] {
                    [] => "the embeddings have no further columns".to_owned(),
                    names => format!("the columns are {}", names.join(", ")),
                };
                Err(Error::new(format!("there is no column `{name}` with the splits"), Some(&hint)))
            }
        };
    };
    Ok((0..found.len()).map(|row| found.value(row).map(|value| value.to_string())).collect())
}
