//! Exact search.

use gallerist::retrieval::fingerprint;
use gallerist::retrieval::search::{Metric, RankedLists, SearchOptions};
use numpy::{IntoPyArray, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;

use crate::arrays::view;
use crate::errors::{OrValueError, detached, interruptible, is_long, named, value_error};

/// The metric of this name.
pub(crate) fn metric(name: &str) -> PyResult<Metric> {
    named("metric", name, Metric::ALL.iter().map(|&metric| (metric.name(), metric)))
}

/// Refuses queries and a gallery that cannot be compared by this metric: they name different models, or only one of them is
/// scaled to length 1.
#[pyfunction]
pub(crate) fn check_models(gallery: &str, queries: &str, metric_name: &str) -> PyResult<()> {
    if fingerprint::comparable(gallery, queries, metric(metric_name)?) {
        return Ok(());
    }
    if fingerprint::differ_in_length(gallery, queries) {
        let is_unscaled = fingerprint::split(gallery).1;
        let (scaled, unscaled) = if is_unscaled { ("queries", "gallery") } else { ("gallery", "queries") };
        return Err(value_error(
            format!("the rows of the {scaled} are scaled to length 1, those of the {unscaled} are not"),
            Some("embed both with the same `normalize`, or compare them with metric=\"cosine\"".into()),
        ));
    }
    let [gallery, queries] = [gallery, queries].map(fingerprint::shown);
    Err(value_error(
        format!(
            "the queries were embedded with the network {queries}, the gallery with {gallery}: their distances \
             mean nothing to each other"
        ),
        Some("embed both with the same network".into()),
    ))
}

/// Indices (u32) and scores (f32) of shape (queries, k), of the rows of the gallery that are admitted; rows of a shorter list end with 2^32 - 1 and NaN.
#[pyfunction]
#[pyo3(signature = (gallery, queries, k, metric_name, exclude_self, admitted))]
pub(crate) fn search<'py>(
    py: Python<'py>,
    gallery: PyReadonlyArray2<'py, f32>,
    queries: Option<PyReadonlyArray2<'py, f32>>,
    k: usize,
    metric_name: &str,
    exclude_self: bool,
    admitted: Option<PyReadonlyArray1<'py, bool>>,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let options = SearchOptions { metric: metric(metric_name)?, exclude_self, ..SearchOptions::new(k) };
    let rows = view(&gallery, "gallery")?;
    let of = queries.as_ref().map(|queries| view(queries, "queries")).transpose()?;
    // The longest possible list: a larger k would only take memory.
    let options = SearchOptions { k: k.min(rows.rows()), ..options };
    let admitted = admitted.map(|mask| mask.as_array().to_vec());
    if admitted.as_ref().is_some_and(|mask| mask.len() != rows.rows()) {
        return Err(value_error("one value a row of the gallery says which rows are admitted", None));
    }
    let admits = |_: usize, row: usize| admitted.as_ref().is_none_or(|mask| mask[row]);
    let search = || {
        let options =
            SearchOptions { filter: if admitted.is_some() { Some(&admits) } else { None }, ..options };
        match (of, exclude_self) {
            (None, true) => gallerist::retrieval::search::self_search(rows, &options),
            (None, false) => gallerist::retrieval::search::search(rows, rows, &options),
            (Some(queries), _) => gallerist::retrieval::search::search(queries, rows, &options),
        }
        .or_value_error()
    };
    let lists = match is_long([of.unwrap_or(rows).rows(), rows.rows(), rows.cols()]) {
        true => interruptible(py, search)?,
        false => detached(py, search)?,
    };
    lists_to_arrays(py, &lists)
}

fn lists_to_arrays<'py>(
    py: Python<'py>,
    lists: &RankedLists,
) -> PyResult<(Bound<'py, PyAny>, Bound<'py, PyAny>)> {
    let (rows, k) = (lists.len(), lists.k());
    let (mut indices, mut scores) = (vec![u32::MAX; rows * k], vec![f32::NAN; rows * k]);
    for (query, (found, values)) in lists.iter().enumerate() {
        indices[query * k..][..found.len()].copy_from_slice(found);
        scores[query * k..][..values.len()].copy_from_slice(values);
    }
    let indices = indices.into_pyarray(py).reshape([rows, k])?.into_any();
    let scores = scores.into_pyarray(py).reshape([rows, k])?.into_any();
    Ok((indices, scores))
}
