//! Figures of one or several runs, as SVG or PNG.
//!
//! A [`Source`] is the test embeddings of a run, or embeddings from anywhere: one set, or queries and a gallery.
//! The functions gather what [`gallerist_report::figure`] draws, by the rules that the metrics follow.
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

mod clusters;
mod curves;
mod distances;
mod map;
mod ranked;
mod rates;
mod source;

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

/// What distances of rows that are compared by `metric` are called.
pub(crate) fn measure(metric: Metric) -> &'static str {
    match metric {
        Metric::Cosine => "Euclidean distance of the normalised embeddings",
        Metric::Euclidean | Metric::InnerProduct => "Euclidean distance of the embeddings",
    }
}

/// A note for each source, once where it is the same for all.
fn joined(notes: &[(String, String)]) -> String {
    match notes.first() {
        Some((_, first)) if notes.iter().all(|(_, note)| note == first) => first.clone(),
        _ => notes.iter().map(|(name, note)| format!("{name}: {note}")).collect::<Vec<_>>().join(" "),
    }
}

/// The last part of a path, as figures name runs.
pub fn name_of(path: &Path) -> String {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.into());
    path.file_name().map_or("run".into(), |name| name.to_string_lossy().into_owned())
}

/// `what` cannot be drawn.
fn fault(what: &str, problem: impl Into<String>, hint: Option<&str>) -> Error {
    Error::Retrieval(gallerist_retrieval::Error::Protocol {
        what: what.into(),
        problem: problem.into(),
        hint: hint.map(String::from),
    })
}
