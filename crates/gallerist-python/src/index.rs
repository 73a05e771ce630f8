//! Galleries that change.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use gallerist::retrieval::EmbeddingSet;
use gallerist::retrieval::condition::Condition;
use gallerist::retrieval::index::{
    self as indices, Among, HnswOptions, IndexSettings, ItemFilter, Items, check_path_ids, create_index,
    index_kinds, open_index,
};
use numpy::{IntoPyArray, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::{matrix, view};
use crate::columns::{self, Given};
use crate::errors::{OrValueError, detached, interruptible, is_long, named, value_error};
use crate::files::{GivenSources, sources};
use crate::search::metric;

/// Ids and scores.
type Found<'py> = (Bound<'py, PyAny>, Bound<'py, PyAny>);

/// Conditions on the items that a search may return: the values that are wanted, and those that are not.
type Conditions<T> = (Option<Vec<T>>, Option<Vec<T>>);

/// An index of items with ids.
#[pyclass(frozen, module = "gallerist._native")]
pub(crate) struct Index(Mutex<Box<dyn indices::Index>>);

impl Index {
    fn lock(&self) -> MutexGuard<'_, Box<dyn indices::Index>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Index {
    #[new]
    #[pyo3(signature = (dimensions, metric_name, kind, m, ef_construction, ef, seed))]
    fn new(
        dimensions: usize,
        metric_name: &str,
        kind: &str,
        m: usize,
        ef_construction: usize,
        ef: usize,
        seed: u64,
    ) -> PyResult<Self> {
        let kind = named("kind of index", kind, index_kinds().map(|kind| (kind.name, kind)))?;
        let settings = IndexSettings { hnsw: HnswOptions { m, ef_construction, ef, seed } };
        let index = create_index(kind, dimensions, metric(metric_name)?, &settings).or_value_error()?;
        Ok(Index(Mutex::new(index)))
    }

    /// Reads an index; with `mapped` its rows stay in the file, and it cannot be changed.
    #[staticmethod]
    fn open(py: Python<'_>, path: PathBuf, mapped: bool) -> PyResult<Self> {
        detached(py, || Ok(Index(Mutex::new(open_index(&path, mapped).or_value_error()?))))
    }

    /// Kind, metric, dimensions and number of items.
    fn info<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let info = detached(py, || self.lock().info().or_value_error())?;
        let dict = PyDict::new(py);
        dict.set_item("kind", info.kind.name)?;
        dict.set_item("metric", info.metric.name())?;
        dict.set_item("dimensions", info.dimensions)?;
        dict.set_item("count", info.count)?;
        dict.set_item("model", info.model)?;
        dict.set_item("metric_of_rows", info.metric_of_rows.map(|metric| metric.name()))?;
        Ok(dict)
    }

    /// Adds items; returns how many are new, unchanged and replaced.
    #[pyo3(signature = (embeddings, ids, labels, paths, cameras, columns, model, source, given_sources, run, metric_name, replace))]
    #[allow(clippy::too_many_arguments)]
    fn add(
        &self,
        py: Python<'_>,
        embeddings: PyReadonlyArray2<'_, f32>,
        ids: Option<PyReadonlyArray1<'_, u64>>,
        labels: Option<Vec<String>>,
        paths: Option<Vec<String>>,
        cameras: Option<Vec<String>>,
        columns: Option<Given<'_>>,
        model: Option<String>,
        source: Option<String>,
        given_sources: Option<GivenSources>,
        run: Option<String>,
        metric_name: Option<&str>,
        replace: bool,
    ) -> PyResult<(usize, usize, usize)> {
        let columns = columns::columns(columns)?;
        let metric = metric_name.map(metric).transpose()?;
        let sources = sources(given_sources)?;
        let rows = matrix(&embeddings)?;
        let set = EmbeddingSet {
            labels,
            paths,
            cameras,
            columns,
            model,
            source,
            sources,
            run,
            metric,
            ..rows.into()
        };
        let ids = ids.map(|ids| ids.as_array().to_vec());
        interruptible(py, || {
            let mut index = self.lock();
            let items = match ids {
                Some(ids) => Items::new(ids, set),
                None if set.paths.is_some() => check_path_ids(&**index).and_then(|()| Items::from_set(set)),
                None => index.next_id().and_then(|next| Items::numbered(set, next)),
            };
            let added = index.add(&items.or_value_error()?, replace).or_value_error()?;
            Ok((added.new, added.unchanged, added.replaced))
        })
    }

    /// Removes items; returns how many there were.
    fn remove(&self, py: Python<'_>, ids: PyReadonlyArray1<'_, u64>) -> PyResult<usize> {
        let ids = ids.as_array().to_vec();
        detached(py, || self.lock().remove(&ids).or_value_error())
    }

    /// Ids (u64) and scores (f32) of shape (queries, k); a shorter list ends with 2^64 - 1 and NaN.
    #[pyo3(signature = (queries, k, labels, cameras, paths, ids, condition))]
    #[allow(clippy::too_many_arguments)]
    fn search<'py>(
        &self,
        py: Python<'py>,
        queries: PyReadonlyArray2<'py, f32>,
        k: usize,
        labels: Conditions<String>,
        cameras: Conditions<String>,
        paths: Conditions<String>,
        ids: Conditions<u64>,
        condition: Option<&str>,
    ) -> PyResult<Found<'py>> {
        let filter = ItemFilter {
            label: among(labels, "label")?,
            camera: among(cameras, "camera")?,
            path: among(paths, "path")?,
            id: among(ids, "id")?,
            condition: parsed(condition)?,
        };
        let rows = view(&queries, "queries")?;
        let count = detached(py, || {
            let info = self.lock().info().or_value_error()?;
            info.check_queries(rows, k).or_value_error()?;
            Ok(info.count)
        })?;
        let k = k.min(count);
        if count == 0 {
            let (ids, scores) = (Vec::<u64>::new().into_pyarray(py), Vec::<f32>::new().into_pyarray(py));
            return Ok((
                ids.reshape([rows.rows(), 0])?.into_any(),
                scores.reshape([rows.rows(), 0])?.into_any(),
            ));
        }
        let search = || self.lock().search(rows, k, &filter).or_value_error();
        let lists = match is_long([rows.rows(), count, rows.cols()]) {
            true => interruptible(py, search)?,
            false => detached(py, search)?,
        };
        let shape = [lists.len(), k];
        let (mut ids, mut scores) = (vec![u64::MAX; shape[0] * k], vec![f32::NAN; shape[0] * k]);
        for (query, (found, values)) in lists.iter().enumerate() {
            ids[query * k..][..found.len()].copy_from_slice(found);
            scores[query * k..][..values.len()].copy_from_slice(values);
        }
        let ids = ids.into_pyarray(py).reshape(shape)?.into_any();
        Ok((ids, scores.into_pyarray(py).reshape(shape)?.into_any()))
    }

    /// The ids of the items that meet a condition, rising, and their labels.
    #[pyo3(signature = (condition))]
    fn labels<'py>(
        &self,
        py: Python<'py>,
        condition: Option<&str>,
    ) -> PyResult<(Bound<'py, PyAny>, Vec<Option<String>>)> {
        let filter = ItemFilter { condition: parsed(condition)?, ..ItemFilter::default() };
        let labels = detached(py, || self.lock().labels(&filter).or_value_error())?;
        let (ids, labels): (Vec<u64>, Vec<_>) = labels.into_iter().unzip();
        Ok((ids.into_pyarray(py).into_any(), labels))
    }

    fn set_ef(&self, py: Python<'_>, ef: usize) -> PyResult<()> {
        detached(py, || self.lock().set_ef(ef).or_value_error())
    }

    fn compact(&self, py: Python<'_>) -> PyResult<()> {
        detached(py, || self.lock().compact(&mut |_, _| {}).or_value_error())
    }

    fn save(&self, py: Python<'_>, path: PathBuf) -> PyResult<()> {
        detached(py, || self.lock().save(&path).or_value_error())
    }
}

fn parsed(condition: Option<&str>) -> PyResult<Option<Condition>> {
    condition.map(gallerist::parse_condition).transpose().or_value_error()
}

fn among<T>((wanted, unwanted): Conditions<T>, what: &str) -> PyResult<Option<Among<T>>> {
    match (wanted, unwanted) {
        (None, None) => Ok(None),
        (Some(wanted), None) => Ok(Some(Among::In(wanted))),
        (None, Some(unwanted)) => Ok(Some(Among::NotIn(unwanted))),
        (Some(_), Some(_)) => Err(value_error(
            format!("give either {what}_in or {what}_not_in"),
            Some("the wanted values are enough: all others are left out".into()),
        )),
    }
}
