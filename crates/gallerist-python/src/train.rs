//! Training from a run file or a dictionary.

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;

use gallerist::train::{ResumeOptions, RunConfig, Timing};
use gallerist::{Trained, TrainingEnd};
use pyo3::prelude::*;
use serde_json::json;

use crate::errors::{OrValueError, detached};
use crate::watch::{Watch, Watcher};

/// Trains a run, and returns what became of it as JSON.
///
/// `text` is a run file, `origin` its name in errors, `folder` what its relative paths are looked up in.
#[pyfunction]
#[pyo3(signature = (text, origin, folder, settings, directory, events))]
pub(crate) fn train(
    py: Python<'_>,
    text: &str,
    origin: &str,
    folder: PathBuf,
    settings: Vec<String>,
    directory: PathBuf,
    events: Py<PyAny>,
) -> PyResult<String> {
    watched(py, events, |watch, stop| {
        let config = RunConfig::complete(text, origin, &folder, &settings)?;
        gallerist::train(&config, &directory, watch, stop)
    })
}

/// Continues the run in `directory`; the result is that of [`train`].
///
/// With `force_data` also where images or labels have changed since.
#[pyfunction]
#[pyo3(signature = (directory, events, force_data=false))]
pub(crate) fn resume(
    py: Python<'_>,
    directory: PathBuf,
    events: Py<PyAny>,
    force_data: bool,
) -> PyResult<String> {
    watched(py, events, |watch, stop| {
        gallerist::resume(&directory, &ResumeOptions { force_data, ..ResumeOptions::default() }, watch, stop)
    })
}

fn watched(
    py: Python<'_>,
    events: Py<PyAny>,
    train: impl FnOnce(&mut Watch, &AtomicBool) -> gallerist::Result<Trained> + Send,
) -> PyResult<String> {
    let watcher = Watcher::new(events);
    let trained = detached(py, || train(&mut Watch(&watcher), watcher.stopped()).or_value_error());
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
        "skipped_steps": trained.skipped_steps,
        "timing": Timing::load(&trained.directory.timing()).ok().flatten(),
    })
    .to_string()
}
