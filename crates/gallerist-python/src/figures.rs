//! Maps and reports.

use std::path::PathBuf;

use gallerist::measured::Measured;
use gallerist::pages;
use gallerist::plots::Source;
use gallerist::report::Report;
use gallerist::retrieval::EmbeddingSet;
use gallerist::train::{ReportConfig, RunDirectory};
use numpy::{IntoPyArray, PyArrayMethods, PyReadonlyArray2};
use pyo3::prelude::*;
use serde_json::json;

use crate::arrays::matrix;
use crate::errors::{OrValueError, detached, interruptible, named, value_error};
use crate::evaluate::{Part, plan};
use crate::watch::Watcher;

/// A point for each row, shape (n, 2), the name of the method, and remarks.
#[pyfunction]
#[pyo3(signature = (embeddings, method, perplexity, steps, events))]
pub(crate) fn map<'py>(
    py: Python<'py>,
    embeddings: PyReadonlyArray2<'py, f32>,
    method: &str,
    perplexity: f32,
    steps: usize,
    events: Py<PyAny>,
) -> PyResult<(Bound<'py, PyAny>, String, Vec<String>)> {
    use gallerist::map::{MapMethod, Tsne, layout};
    let methods = [("tsne", MapMethod::Tsne(Tsne { perplexity, steps })), ("pca", MapMethod::Pca)];
    let method = named("map by", method, methods)?;
    let rows = matrix(&embeddings)?;
    let watcher = Watcher::new(events);
    let found = detached(py, || {
        let progress = &mut |done, total| {
            watcher.event_or_end("map", &json!({ "what": "map", "done": done, "total": total }));
        };
        layout(&rows, &method, progress).map_err(|error| value_error(&error, error.hint()))
    });
    if let Some(error) = watcher.error() {
        return Err(error);
    }
    let found = found?;
    let points: Vec<f32> = found.points.concat();
    let points = points.into_pyarray(py).reshape([found.points.len(), 2])?.into_any();
    Ok((points, found.method, found.notes))
}

/// The report of runs, or the comparison of several, as HTML.
#[pyfunction]
pub(crate) fn run_report(py: Python<'_>, runs: Vec<PathBuf>) -> PyResult<String> {
    interruptible(py, || {
        let open = |path: &PathBuf| RunDirectory::open(path).or_value_error();
        let runs = runs.iter().map(open).collect::<PyResult<Vec<_>>>()?;
        html(pages::comparison(&runs))
    })
}

/// The report of embeddings as HTML. `images` is the folder or archive of the images that the paths name.
#[pyfunction]
#[pyo3(signature = (name, queries, query_paths, gallery, gallery_paths, images, options))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn embeddings_report<'py>(
    py: Python<'py>,
    name: String,
    queries: Part<'py>,
    query_paths: Option<Vec<String>>,
    gallery: Option<Part<'py>>,
    gallery_paths: Option<Vec<String>>,
    images: Option<String>,
    options: &str,
) -> PyResult<String> {
    let plan = plan(options)?;
    let queries = set(queries, query_paths, images.clone())?;
    let gallery = gallery.map(|gallery| set(gallery, gallery_paths, images)).transpose()?;
    interruptible(py, move || {
        let source = Source::new(name, Measured { queries, gallery, plan, narrowed: Vec::new() }, None)
            .or_value_error()?;
        let report = source.report().or_value_error()?;
        html(pages::evaluation_report(&source, &report, &ReportConfig::default()))
    })
}

fn set(
    (rows, labels, cameras): Part<'_>,
    paths: Option<Vec<String>>,
    source: Option<String>,
) -> PyResult<EmbeddingSet> {
    Ok(EmbeddingSet { labels: Some(labels), cameras, paths, source, ..matrix(&rows)?.into() })
}

fn html(report: gallerist::train::Result<Report>) -> PyResult<String> {
    Ok(report.or_value_error()?.to_html())
}
