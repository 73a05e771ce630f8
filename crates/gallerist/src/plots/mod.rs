//! Figures of one or several runs, as SVG or PNG.
//!
//! A [`Source`] is the test embeddings of a run, or a file of embeddings from anywhere; the functions
//! gather what [`gallerist_report::figure`] draws.
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

use std::path::Path;

use gallerist_data::ImageSet;
use gallerist_learn::train::{RunConfig, RunDirectory, open_test};
use gallerist_learn::{Error, Result};
use gallerist_retrieval::labels::{self, Encoded};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{EmbeddingSet, Matrix, load_labels};

pub use clusters::clusters;
pub(crate) use curves::charts_of_runs;
pub use curves::curves;
pub use distances::distances;
pub use gallerist_map::{MapMethod, Tsne};
pub(crate) use map::atlas;
pub use map::map;
pub use ranked::{Queries, ranked};
pub use rates::{cmc, pr};

/// Embeddings to be drawn, with what is known of their images.
#[derive(Debug)]
pub struct Source {
    /// The run's or the file's name.
    pub name: String,
    pub(crate) set: EmbeddingSet,
    /// The rows that all distances are of: of length 1 where they are compared by the cosine, else as they are.
    pub(crate) rows: Matrix,
    /// How the rows are compared.
    pub(crate) metric: Metric,
    pub(crate) images: Option<ImageSet>,
}

impl Source {
    /// The test embeddings of a run.
    ///
    /// # Errors
    ///
    /// When there is no run, when it has no embeddings yet, or when a file cannot be read.
    pub fn of_run(path: &Path) -> Result<Self> {
        let run = RunDirectory::open(path)?;
        if !run.embeddings().exists() {
            return Err(Error::RunDirectory {
                path: path.into(),
                reason: "it holds no embeddings.safetensors".into(),
                hint: Some(format!(
                    "train it to its end (`gallerist train --resume {}`), or give --embeddings FILE",
                    path.display()
                )),
            });
        }
        let set = EmbeddingSet::load(run.embeddings())?;
        // Pictures are a help: a run whose images have moved is drawn without them.
        let images = open_test(&RunConfig::load(&run.config(), &[])?).ok().flatten().map(|test| test.queries);
        Self::new(name_of(path), set, images)
    }

    /// The embeddings of a file; pictures come from the place that the file names.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, or when there is not one label per row.
    pub fn of_file(path: &Path, labels: Option<&Path>) -> Result<Self> {
        let mut set = EmbeddingSet::load(path)?;
        if let Some(labels) = labels {
            set.labels = Some(load_labels(labels)?);
        }
        set.check_counts()?;
        let images = set.source.as_deref().and_then(|source| ImageSet::open(source).ok());
        Self::new(name_of(path), set, images)
    }

    fn new(name: String, set: EmbeddingSet, images: Option<ImageSet>) -> Result<Self> {
        set.embeddings.check_finite("embeddings")?;
        let metric = set.metric.unwrap_or_default();
        let rows = match metric {
            Metric::Cosine => set.embeddings.l2_normalized().0,
            Metric::Euclidean | Metric::InnerProduct => set.embeddings.clone(),
        };
        Ok(Self { name, set, rows, metric, images })
    }

    /// What the distances are called.
    pub(crate) fn measure(&self) -> &'static str {
        measure(self.metric)
    }

    /// The labels and the class of each row.
    fn labels(&self, what: &str) -> Result<(&[String], Encoded)> {
        match &self.set.labels {
            Some(names) => Ok((names, labels::encode(names))),
            None => Err(fault(
                what,
                format!("needs a label for each row, and `{}` has none", self.name),
                Some("give --labels FILE: .npy of integers, or text with one label a line"),
            )),
        }
    }

    /// The labels of at least two rows.
    fn labels_of_pairs(&self, what: &str) -> Result<(&[String], Encoded)> {
        if self.rows.rows() < 2 {
            let problem = format!("needs at least 2 rows, and `{}` has {}", self.name, self.rows.rows());
            return Err(fault(what, problem, None));
        }
        self.labels(what)
    }
}

/// What distances of rows that are compared by `metric` are called.
pub(crate) fn measure(metric: Metric) -> &'static str {
    match metric {
        Metric::Cosine => "Euclidean distance of the normalised embeddings",
        Metric::Euclidean | Metric::InnerProduct => "Euclidean distance of the embeddings",
    }
}

/// The last part of a path, as figures name runs.
pub(crate) fn name_of(path: &Path) -> String {
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
