//! Names, notes and errors of figures.

use std::path::{Component, Path, PathBuf};

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
pub(crate) fn joined(notes: &[(String, String)]) -> String {
    match notes.first() {
        Some((_, first)) if notes.iter().all(|(_, note)| note == first) => first.clone(),
        _ => notes.iter().map(|(name, note)| format!("{name}: {note}")).collect::<Vec<_>>().join(" "),
    }
}

/// The last part of a path, which is the name of a run in figures.
pub fn name_of(path: &Path) -> String {
    names_of(&[path]).swap_remove(0)
}

/// The names of several runs or files in figures: the last part of each path, and as many parts before it as distinguish
/// it from the other paths.
///
/// ```
/// use gallerist::plots::names_of;
/// assert_eq!(names_of(&["runs/rll/1", "runs/ice/1", "runs/photos"]), ["rll/1", "ice/1", "photos"]);
/// ```
pub fn names_of<P: AsRef<Path>>(paths: &[P]) -> Vec<String> {
    let paths: Vec<PathBuf> =
        paths.iter().map(|path| gallerist_util::text::absolute(path.as_ref())).collect();
    let name = |path: &PathBuf| {
        let is_of_one_path = |parts: &usize| {
            let of_path = end(path, *parts);
            paths.iter().all(|other| other == path || end(other, *parts) != of_path)
        };
        let all = path.components().count();
        end(path, (1..all).find(is_of_one_path).unwrap_or(all))
    };
    paths.iter().map(name).collect()
}

/// The last parts of a path.
fn end(path: &Path, parts: usize) -> String {
    if parts <= 1 && path.file_name().is_none() {
        return "run".into();
    }
    let all: Vec<Component<'_>> = path.components().collect();
    let end: PathBuf = all[all.len().saturating_sub(parts)..].iter().collect();
    end.to_string_lossy().into_owned()
}

/// The error that `what` cannot be drawn.
pub(super) fn fault(what: &str, problem: impl Into<String>, hint: Option<&str>) -> Error {
    Error::Retrieval(gallerist_retrieval::Error::Protocol {
        what: what.into(),
        problem: problem.into(),
        hint: hint.map(String::from),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_differ_where_paths_differ() {
        assert_eq!(names_of(&["runs/a", "runs/b"]), ["a", "b"]);
        let apart = names_of(&["runs/rll/small/1", "runs/ice/small/1", "runs/ice/small/2"]);
        let wanted =
            [["rll", "small", "1"], ["ice", "small", "1"]].map(|parts| parts.iter().collect::<PathBuf>());
        assert_eq!(apart[..2], wanted.map(|path| path.to_string_lossy().into_owned()));
        assert_eq!(apart[2], "2");
        // The same run twice.
        assert_eq!(names_of(&["runs/a", "./runs/a"]), ["a", "a"]);
        assert_eq!(name_of(Path::new("/")), "run");
    }
}
