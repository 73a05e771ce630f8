//! Figures of one or several runs, as SVG or PNG.
//!
//! A [`Source`] is the test embeddings of a run, or other embeddings: one set, or queries and a gallery.
//! The functions compute the data that [`gallerist_report::figure`] draws, with the same rules as the metrics.
//!
//! # Example
//!
//! ```no_run
//! use std::path::Path;
//! use gallerist::plots::{self, Source};
//!
//! let runs = [Source::of_run(Path::new("runs/rll"))?, Source::of_run(Path::new("runs/ice"))?];
//! plots::distances(&runs, 1)?.write("distances.svg", None)?;
//!
//! let method = plots::MapMethod::Tsne(plots::Tsne::default());
//! let (map, notes) = plots::map(&runs[0], &method, true, &mut |_done, _total| ())?;
//! map.write("map.png", None)?;
//! notes.iter().for_each(|note| eprintln!("{note}"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod charts;
mod clusters;
mod curves;
mod distances;
mod map;
mod ranked;
mod rates;
mod source;
mod sprite;

use std::path::Path;

use gallerist_retrieval::search::Metric;
use gallerist_train::Error;

pub use clusters::clusters;
pub(crate) use curves::charts_of_runs;
pub use curves::curves;
pub use distances::distances;
pub use gallerist_map::{MapMethod, Tsne};
pub(crate) use map::atlas;
pub use map::map;
pub use ranked::{Queries, ranked};
pub use rates::{cmc, pr};
pub use source::{File, Source};
pub(crate) use source::{Point, Points, Side};
pub(crate) use sprite::sprite;

/// Name of the distance for rows that are compared by `metric`.
pub(crate) fn measure(metric: Metric) -> &'static str {
    match metric {
        Metric::Cosine => "Euclidean distance of the normalised embeddings",
        Metric::Euclidean | Metric::InnerProduct => "Euclidean distance of the embeddings",
    }
}

/// A note for each source; a single one if all are equal.
fn joined(notes: &[(String, String)]) -> String {
    match notes.first() {
        Some((_, first)) if notes.iter().all(|(_, note)| note == first) => first.clone(),
        _ => notes.iter().map(|(name, note)| format!("{name}: {note}")).collect::<Vec<_>>().join(" "),
    }
}

/// The last part of a path, which is the name of a run in figures.
pub fn name_of(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
    path.file_name().map_or("run".into(), |name| name.to_string_lossy().into_owned())
}

/// The error that `what` cannot be drawn.
fn fault(what: &str, problem: impl Into<String>, hint: Option<&str>) -> Error {
    Error::Retrieval(gallerist_retrieval::Error::Protocol {
        what: what.into(),
        problem: problem.into(),
        hint: hint.map(String::from),
    })
}
