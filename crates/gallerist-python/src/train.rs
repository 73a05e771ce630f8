//! Training from a run file or a dictionary.

use std::path::{Path, PathBuf};

use gallerist::train::RunConfig;
use gallerist::{Trained, TrainingEnd};
use pyo3::prelude::*;
use serde_json::json;

use crate::errors::{OrValueError, detached};
use crate::watch::{Watch, Watcher};

/// Trains a run, and returns what became of it as JSON.
///
/// `text` is a run file, `origin` its name in errors, `folder` what its relative paths are looked up in. With `resume`
/// the run in `directory` is continued, and the text is not used.
#[pyfunction]
#[pyo3(signature = (text, origin, folder, settings, directory, resume, events))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn train(
    py: Python<'_>,
    text: &str,
    origin: &str,
    folder: PathBuf,
    settings: Vec<String>,
    directory: PathBuf,
    resume: bool,
    events: Py<PyAny>,
) -> PyResult<String> {
    let watcher = Watcher::new(events);
    let trained = detached(py, || {
        let (mut watch, stop) = (Watch(&watcher), watcher.stopped());
        match resume {
            true => gallerist::resume(&directory, None, &mut watch, stop).or_value_error(),
            false => {
                let config = RunConfig::complete(text, origin, &folder, &settings).or_value_error()?;
                gallerist::train(&config, &directory, &mut watch, stop).or_value_error()
            }
        }
    });
    match watcher.error() {
        Some(error) => Err(error),
        None => Ok(summary(&trained?)),
    }
}

fn summary(trained: &Trained) -> String {
    let end = match trained.end {
        TrainingEnd::Finished => "finished",
        TrainingEnd::Interrupted => "interrupted",
        TrainingEnd::WasFinished => "was finished",
    };
    let path = |path: &Path| path.to_string_lossy().into_owned();
    json!({
        "directory": path(trained.directory.path()),
        "end": end,
        "steps": trained.steps,
        "metrics": trained.metrics,
        "report": trained.report.as_deref().map(path),
        "broken_images": trained.broken_images,
    })
    .to_string()
}
