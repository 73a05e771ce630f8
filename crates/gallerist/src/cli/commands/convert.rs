//! `gallerist convert`.

use std::path::Path;
use std::process::ExitCode;

use crate::retrieval::file::{TableColumns, load_labels};
use crate::retrieval::search::Metric;
use crate::retrieval::{EmbeddingSet, Error};
use serde::Serialize;

use crate::cli::args::{Convert, Program};
use crate::cli::failure::{CommandResult, Failure};
use crate::cli::next::Done;
use crate::cli::output::{check_embeddings_file, save_embeddings, warn_of_columns};
use crate::cli::printer;
use crate::file::check_not_input;
use crate::parse_condition;
use crate::repeats;
use crate::unread::warn_of_unread;

/// What `--json` prints.
#[derive(Serialize)]
struct Summary {
    file: String,
    embeddings: usize,
    dimensions: usize,
    bytes: u64,
    labels: bool,
    model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metric: Option<Metric>,
}

pub(super) fn run(args: Convert) -> CommandResult {
    let condition = args.condition.as_deref().map(parse_condition).transpose()?;
    if args.to.is_none() {
        check_embeddings_file(&args.out, args.precision)?;
        check_not_input(&args.out, args.files.iter().chain(&args.labels))?;
    }
    let mut sets: Vec<EmbeddingSet> = Vec::with_capacity(args.files.len());
    for file in &args.files {
        let set = load(file, &args)?;
        set.embeddings.check_finite("embeddings").map_err(|error| {
            Failure::new(format!("cannot use `{}`\n  {error}", file.display()), error.hint().as_deref())
        })?;
        sets.push(set);
    }
    warn_of_columns(sets.iter().map(|set| &set.columns));
    warn_of_lists(&sets);
    let had_threshold = sets.iter().any(|set| set.threshold.is_some());
    let set = EmbeddingSet::concat(sets, args.mix_models).map_err(|error| match error {
        Error::Models { .. } => {
            let hint = "embed all of them with one network, or join them all the same: --mix-models";
            Failure::new(format!("cannot join the files\n  {error}"), Some(hint))
        }
        Error::Metrics { .. } => {
            let hint = "embed all of them with the same `embed --normalize`, or join them all the same: --mix-models";
            Failure::new(format!("cannot join the files\n  {error}"), Some(hint))
        }
        Error::Dimensions { queries, gallery } => {
            Failure::new(format!("cannot join files of {gallery} and of {queries} dimensions"), None)
        }
        error => error.into(),
    })?;
    if had_threshold && set.threshold.is_none() {
        printer::warning(
            &"no threshold of the files holds for all of them, and the result has none (calibrate one with `gallerist threshold --save`)",
        );
    }
    let set = match &args.labels {
        None => set,
        Some(file) => {
            let (labels, rows) = (load_labels(file)?, set.embeddings.rows());
            if labels.len() != rows {
                let found = printer::count(labels.len(), "label");
                return Err(Failure::new(
                    format!(
                        "`{}` has {found}, the files have {}",
                        file.display(),
                        printer::count(rows, "row")
                    ),
                    Some("give the labels of all files, one after the other, one label a row"),
                ));
            }
            EmbeddingSet { labels: Some(labels), ..set }
        }
    };
    let set = match condition {
        None => set,
        Some(condition) => {
            let rows = condition.rows(&set)?;
            if rows.is_empty() {
                let message = format!("no row meets the condition `{condition}`; nothing was written");
                return Err(Failure::new(message, None));
            }
            set.select(&rows)
        }
    };
    match repeats::rows(&set)? {
        0 => {}
        rows => printer::warning(&format!(
            "{} of an image that an earlier row is of, too",
            printer::count(rows, "row")
        )),
    }
    match args.to {
        None => save_embeddings(&set, &args.out, args.precision)?,
        Some(Program::Projector) => crate::write_projector_files(&set, &args.out)?,
    }
    let bytes = std::fs::metadata(&args.out).map_or(0, |file| if file.is_file() { file.len() } else { 0 });
    let summary = Summary {
        file: args.out.display().to_string(),
        embeddings: set.embeddings.rows(),
        dimensions: set.embeddings.cols(),
        bytes,
        labels: set.labels.is_some(),
        model: set.model,
        metric: set.metric,
    };
    if args.json {
        printer::json(&summary)?;
    } else {
        printer::note(&format!(
            "{} x {} embeddings written to {}",
            printer::grouped(summary.embeddings),
            summary.dimensions,
            summary.file
        ));
        if args.to.is_none() {
            Done::Embeddings(&args.out).show();
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Warns of labels, cameras and paths that are lost because not all files have them.
fn warn_of_lists(sets: &[EmbeddingSet]) {
    let rows = |has: fn(&EmbeddingSet) -> bool| {
        let with = sets.iter().filter(|set| has(set));
        let (files, rows) = with.fold((0, 0), |(files, rows), set| (files + 1, rows + set.embeddings.rows()));
        (files < sets.len() && rows > 0).then_some(rows)
    };
    for (what, lost) in [
        ("labels", rows(|set| set.labels.is_some())),
        ("cameras", rows(|set| set.cameras.is_some())),
        ("paths", rows(|set| set.paths.is_some())),
    ] {
        if let Some(rows) = lost {
            let rows = printer::count(rows, "row");
            printer::warning(&format!("the {what} of {rows} are left out: not all files have {what}"));
        }
    }
}

/// Reads a file; the options of columns are for tables.
fn load(file: &Path, args: &Convert) -> Result<EmbeddingSet, Error> {
    let columns = TableColumns {
        embedding: args.column.clone(),
        label: args.label_column.clone(),
        path: args.path_column.clone(),
        camera: args.camera_column.clone(),
    };
    let set = match columns == TableColumns::default() {
        true => EmbeddingSet::load(file)?,
        false => EmbeddingSet::load_table(file, &columns)?,
    };
    warn_of_unread(file, &columns, |warning| printer::warning(&warning))?;
    Ok(set)
}
