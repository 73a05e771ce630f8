//! Files that commands write.

use std::path::{Path, PathBuf};

use serde_json::Value;

use super::args::Precision;
use super::failure::Failure;
use crate::cli::printer;
use crate::file::check_not_input;
use crate::retrieval::EmbeddingSet;
use crate::retrieval::columns::{BecomesText, ColumnKind, Columns, values_to_text};
use crate::retrieval::file::read_threshold;
use crate::weights;

/// Returns an error, before the work begins, if the output path is a device, a pipe or a link.
pub(crate) fn check_output(out: &Path) -> Result<(), Failure> {
    Ok(crate::retrieval::prepare_to_write(out)?)
}

/// Returns an error if a page has another ending than that of pages, or is one of the files that the command reads.
pub(crate) fn check_page<'a>(
    page: &Path,
    inputs: impl IntoIterator<Item = &'a PathBuf>,
) -> Result<(), Failure> {
    let extension = page.extension().and_then(|extension| extension.to_str());
    if !extension.is_some_and(|extension| ["html", "htm"].contains(&extension.to_lowercase().as_str())) {
        return Err(Failure::new(
            format!(
                "cannot write a page to `{}`: its name ends neither in .html nor in .htm",
                page.display()
            ),
            Some("give a file that ends in .html"),
        ));
    }
    check_not_input(page, inputs)?;
    check_output(page)
}

/// Returns an error if there is a `.safetensors` file of this name that has no embeddings, such as a checkpoint or an index.
fn check_replaced(out: &Path) -> Result<(), Failure> {
    let Some(header) = weights::safetensors_header(out) else { return Ok(()) };
    if header.get("embeddings").is_some() {
        return Ok(());
    }
    let metadata = header.get("__metadata__").unwrap_or(&Value::Null);
    let what = match metadata["format"].as_str() {
        Some("gallerist-index") => "an index",
        _ if metadata["gallerist"].is_string() => "a checkpoint",
        _ => "no file of embeddings",
    };
    Err(Failure::new(
        format!("`{}` exists, and is {what}: the embeddings would replace it", out.display()),
        Some("give another --out, or remove the file first"),
    ))
}

/// Returns an error if the format of the output file does not support the precision, or if the embeddings would replace another
/// kind of file.
pub(crate) fn check_embeddings_file(out: &Path, precision: Precision) -> Result<(), Failure> {
    check_output(out)?;
    check_replaced(out)?;
    let extension = out.extension().and_then(|extension| extension.to_str());
    match (extension, precision) {
        (Some("safetensors"), _) | (Some("npy"), Precision(None)) => Ok(()),
        (Some("parquet" | "arrow" | "feather" | "ipc"), Precision(None)) if cfg!(feature = "arrow") => Ok(()),
        (Some("parquet" | "arrow" | "feather" | "ipc"), Precision(None)) => Err(Failure::new(
            format!(
                "cannot write embeddings to `{}`: this program was built without Parquet and Arrow",
                out.display()
            ),
            Some("build it with `cargo build --release --features arrow`, or give --out FILE.safetensors"),
        )),
        (Some("parquet" | "arrow" | "feather" | "ipc"), _) => Err(Failure::new(
            format!("cannot write embeddings to `{}`\n  a table holds f32 only", out.display()),
            Some("give --out FILE.safetensors, or leave out --precision"),
        )),
        (Some("npy"), _) => Err(Failure::new(
            format!("cannot write embeddings to `{}`\n  a .npy file holds f32 only", out.display()),
            Some("give --out FILE.safetensors, or leave out --precision"),
        )),
        _ => Err(Failure::new(
            format!(
                "cannot write embeddings to `{}`\n  its name ends in neither .safetensors nor .npy",
                out.display()
            ),
            Some("give --out FILE.safetensors (with labels and paths) or --out FILE.npy"),
        )),
    }
}

/// Warns of columns of numbers or dates that become text when these are joined.
pub(crate) fn warn_of_columns<'a>(sets: impl IntoIterator<Item = &'a Columns>) {
    for BecomesText { column, kind, other, values } in values_to_text(sets) {
        let become_text = match (kind, values) {
            (ColumnKind::Number, 1) => "1 number becomes".to_owned(),
            (_, 1) => "1 date becomes".to_owned(),
            (kind, values) => format!("{} {} become", printer::grouped(values), values_of(kind)),
        };
        printer::warning(&format!(
            "the column `{column}` is of {} in some files and of {} in others: {become_text} text, {} \
             (leave a missing value empty)",
            values_of(kind),
            values_of(other),
            lost_as_text(kind)
        ));
    }
}

/// The values of a column, in the plural.
pub(crate) fn values_of(kind: ColumnKind) -> &'static str {
    match kind {
        ColumnKind::Number => "numbers",
        ColumnKind::Date => "dates",
        ColumnKind::Text => "text",
        ColumnKind::Tags => "tags",
    }
}

/// What is lost of numbers and dates that become text.
pub(crate) fn lost_as_text(kind: ColumnKind) -> &'static str {
    match kind {
        ColumnKind::Date => "and conditions no longer compare them by time",
        _ => "and `1.50` is `1.5` there",
    }
}

/// Whether the name of a file ends so.
pub(crate) fn has_extension(file: &Path, extension: &str) -> bool {
    file.extension().is_some_and(|found| found == extension)
}

/// Writes embeddings, and says what the file that they replace had and they have not.
pub(crate) fn save_embeddings(set: &EmbeddingSet, out: &Path, precision: Precision) -> Result<(), Failure> {
    let replaced = (has_extension(out, "safetensors") && out.exists())
        .then(|| read_threshold(out).ok().flatten())
        .flatten();
    match precision.0 {
        None => set.save(out)?,
        Some(code) => set.save_compact(out, code)?,
    }
    match (replaced, &set.threshold) {
        (Some(_), None) => warn_of_lost_threshold("file", out),
        (Some(old), Some(new)) if old != *new => printer::warning(&format!(
            "the file `{}` had another threshold than the new one, which has that of the run or of the files that it was made from",
            out.display()
        )),
        _ => {}
    }
    if has_extension(out, "npy") {
        note_left_out(set, out);
    }
    Ok(())
}

/// Warns that the `kind`, such as a file, that is replaced has a threshold, and the new one none.
pub(crate) fn warn_of_lost_threshold(kind: &str, replaced: &Path) {
    printer::warning(&format!(
        "the {kind} `{}` had a threshold, and the new one has none (save one with `gallerist threshold --save`)",
        replaced.display()
    ));
}

/// Says what a `.npy` file does not hold.
fn note_left_out(set: &EmbeddingSet, out: &Path) {
    let lists = [(&set.labels, "labels"), (&set.paths, "paths"), (&set.cameras, "cameras")];
    let lists = lists.into_iter().filter(|(list, _)| list.is_some()).map(|(_, name)| name.to_owned());
    let columns = (!set.columns.is_empty()).then(|| printer::count(set.columns.len(), "further column"));
    let threshold = set.threshold.as_ref().map(|_| "the threshold".to_owned());
    let left_out: Vec<String> = lists.chain(columns).chain(threshold).collect();
    if !left_out.is_empty() {
        printer::note(&format!(
            "`{}` holds numbers only: without {} (a .safetensors file keeps them)",
            out.display(),
            left_out.join(", ")
        ));
    }
}
