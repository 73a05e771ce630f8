//! Names, notes and errors of figures.

use std::path::Path;

use gallerist_retrieval::search::Metric;
use gallerist_train::Error;

/// Name of the distance for rows that are compared by `metric`.
pub(crate) fn measure(metric: Metric) -> &'static str {
    match metric {
        Metric::Cosine => "Euclidean distance of the normalised embeddings",
        Metric::Euclidean | Metric::InnerProduct => "Euclidean distance of the embeddings",
    }
}

/// A note for each source; a single one if all are equal.
pub(super) fn joined(notes: &[(String, String)]) -> String {
    match notes.first() {
        Some((_, first)) if notes.iter().all(|(_, note)| note == first) => first.clone(),
        _ => notes.iter().map(|(name, note)| format!("{name}: {note}")).collect::<Vec<_>>().join(" "),
    }
}

/// The last part of a path, which is the name of a run in figures.
pub fn name_of(path: &Path) -> String {
    gallerist_util::text::absolute(path)
        .file_name()
        .map_or("run".into(), |name| name.to_string_lossy().into_owned())
}

/// The error that `what` cannot be drawn.
pub(super) fn fault(what: &str, problem: impl Into<String>, hint: Option<&str>) -> Error {
    Error::Retrieval(gallerist_retrieval::Error::Protocol {
        what: what.into(),
        problem: problem.into(),
        hint: hint.map(String::from),
    })
}
