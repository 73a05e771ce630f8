//! Embeddings files.

use std::ffi::CString;
use std::path::PathBuf;

use gallerist::retrieval::file::{Source, Sources, TableColumns};
use gallerist::retrieval::{Code, EmbeddingSet};
use numpy::{IntoPyArray, PyArrayMethods, PyReadonlyArray2};
use pyo3::exceptions::PyRuntimeWarning;
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::matrix;
use crate::columns::{self, Given};
use crate::errors::{OrValueError, detached, named, value_error};
use crate::search::metric;

/// The embeddings and what else the file has of each row. Warns of what is not read, where this function is called in two frames
/// above.
#[pyfunction]
pub(crate) fn load(py: Python<'_>, path: PathBuf) -> PyResult<Bound<'_, PyDict>> {
    let (set, warnings) = detached(py, || {
        let set = EmbeddingSet::load(&path).or_value_error()?;
        let mut warnings = Vec::new();
        let warn = |warning: &str| warnings.push(warning.replace('\0', " "));
        gallerist::warn_of_unread(&path, &TableColumns::default(), warn).or_value_error()?;
        Ok::<_, PyErr>((set, warnings))
    })?;
    let category = py.get_type::<PyRuntimeWarning>();
    for warning in warnings {
        PyErr::warn(py, &category, &CString::new(warning)?, 2)?;
    }
    set_to_dict(py, set)
}

pub(crate) fn set_to_dict(py: Python<'_>, set: EmbeddingSet) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    let shape = [set.embeddings.rows(), set.embeddings.cols()];
    dict.set_item("embeddings", set.embeddings.into_vec().into_pyarray(py).reshape(shape)?)?;
    for (name, values) in [("labels", set.labels), ("paths", set.paths), ("cameras", set.cameras)] {
        dict.set_item(name, values)?;
    }
    for (name, value) in
        [("model", set.model), ("source", set.source), ("run", set.run), ("protocol", set.protocol)]
    {
        dict.set_item(name, value)?;
    }
    let sources = set.sources.map(|sources| {
        let places: Vec<_> = (0..sources.len()).map(|row| sources.place(row)).collect();
        let list: Vec<_> =
            sources.list().iter().map(|source| (source.name.clone(), source.images.clone())).collect();
        (list, places)
    });
    dict.set_item("sources", sources)?;
    let threshold = set.threshold.map(|rule| serde_json::to_string(&rule).expect("a rule is JSON"));
    dict.set_item("threshold", threshold)?;
    dict.set_item("columns", columns::to_dict(py, &set.columns)?)?;
    dict.set_item("metric", set.metric.map(|metric| metric.name()))?;
    Ok(dict)
}

/// The different sources (name, images), and the place of each row's source among them.
pub(crate) type GivenSources = (Vec<(String, Option<String>)>, Vec<Option<usize>>);

/// The source of each row.
pub(crate) fn sources(given: Option<GivenSources>) -> PyResult<Option<Sources>> {
    let sources = given.map(|(list, places)| {
        let list = list.into_iter().map(|(name, images)| Source { name, images }).collect();
        Sources::new(list, places).or_value_error()
    });
    sources.transpose()
}

/// Writes an embeddings file, atomically.
#[pyfunction]
#[pyo3(signature = (path, embeddings, labels, paths, cameras, columns, model, source, given_sources, run, metric_name, protocol,
                    threshold, precision))]
#[allow(clippy::too_many_arguments)]
pub(crate) fn save(
    py: Python<'_>,
    path: PathBuf,
    embeddings: PyReadonlyArray2<'_, f32>,
    labels: Option<Vec<String>>,
    paths: Option<Vec<String>>,
    cameras: Option<Vec<String>>,
    columns: Option<Given<'_>>,
    model: Option<String>,
    source: Option<String>,
    given_sources: Option<GivenSources>,
    run: Option<String>,
    metric_name: Option<&str>,
    protocol: Option<String>,
    threshold: Option<&str>,
    precision: &str,
) -> PyResult<()> {
    let metric = metric_name.map(metric).transpose()?;
    let threshold = threshold.map(|text| {
        serde_json::from_str(text).map_err(|error| value_error(format!("threshold: {error}"), None))
    });
    let set = EmbeddingSet {
        labels,
        paths,
        cameras,
        columns: columns::columns(columns)?,
        model,
        source,
        sources: sources(given_sources)?,
        run,
        metric,
        protocol,
        threshold: threshold.transpose()?,
        ..matrix(&embeddings)?.into()
    };
    let codes = Code::ALL.iter().map(|&code| (code.name(), Some(code)));
    let code = named("precision", precision, std::iter::once(("f32", None)).chain(codes))?;
    detached(py, || match code {
        None => set.save(&path).or_value_error(),
        Some(code) => set.save_compact(&path, code).or_value_error(),
    })
}

/// Writes a text file, atomically.
#[pyfunction]
pub(crate) fn write_text(py: Python<'_>, path: PathBuf, text: &str) -> PyResult<()> {
    detached(py, || {
        gallerist_util::files::write(&path, |file| file.write_all(text.as_bytes()))
            .map_err(|error| value_error(format!("cannot write `{}`: {error}", path.display()), None))
    })
}
