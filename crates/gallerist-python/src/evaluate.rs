//! Evaluation by the protocols of the field.

use gallerist::retrieval::cluster::Preset;
use gallerist::retrieval::eval::{Labelled, Measure, OneSet, PROTOCOLS, Plan, Pooling, Protocol, Setting};
use gallerist::retrieval::labels::{empty_labels, without_label};
use numpy::PyReadonlyArray2;
use pyo3::prelude::*;
use serde_json::{Map, Value, json};

use crate::arrays::matrix;
use crate::errors::{OrValueError, interruptible, named, value_error};
use crate::search::metric;

/// The names of all metrics, with `K` for a number.
#[pyfunction]
pub(crate) fn metrics() -> Vec<String> {
    Measure::names()
}

/// The protocols as JSON: name, title, what is compared with what, metrics.
#[pyfunction]
pub(crate) fn protocols() -> String {
    let of = |protocol: &Protocol| {
        let setting = match protocol.setting {
            Setting::EveryImage => "every image is a query for all others",
            Setting::Split => "queries and a gallery",
            Setting::Cameras => "queries and a gallery, with cameras",
        };
        let metrics: Vec<_> = protocol.measures().iter().map(ToString::to_string).collect();
        json!({ "name": protocol.name, "title": protocol.title, "setting": setting, "metrics": metrics })
    };
    Value::Array(PROTOCOLS.iter().map(of).collect()).to_string()
}

/// Rows with labels and, where they are known, cameras.
pub(crate) type Part<'py> = (PyReadonlyArray2<'py, f32>, Vec<String>, Option<Vec<String>>);

/// Measures `queries` against `gallery`, or each row of `queries` against the others. `options` is JSON; so is the
/// result.
#[pyfunction]
pub(crate) fn evaluate<'py>(
    py: Python<'py>,
    queries: Part<'py>,
    gallery: Option<Part<'py>>,
    options: &str,
) -> PyResult<String> {
    let plan = plan(options)?;
    let name = if gallery.is_some() { "queries" } else { "embeddings" };
    let queries = labelled(queries, name)?;
    let gallery = gallery.map(|gallery| labelled(gallery, "gallery")).transpose()?;
    interruptible(py, move || {
        let report = plan.run(&queries, gallery.as_ref()).or_value_error()?;
        Ok(serde_json::to_string(&report).expect("a report is plain data"))
    })
}

/// Checks that no junk counts as a class where each row is compared with the others by no protocol. `protocol` is that of the
/// file of the rows. Returns a warning.
#[pyfunction]
#[pyo3(signature = (labels, protocol))]
pub(crate) fn check_one_set(labels: Vec<String>, protocol: Option<&str>) -> PyResult<Option<String>> {
    let one = OneSet::of(protocol);
    let hint = "give the queries and gallery=..., which the protocol compares; protocol=\"none\" compares every row with the others all \
                the same";
    one.check("embeddings", one.junk_rows(&labels), hint).or_value_error()
}

/// The rows of a side, which messages call `name`. A row with an empty label is refused; `|`, which Python makes of an empty set, is
/// no label.
fn labelled((rows, labels, cameras): Part<'_>, name: &str) -> PyResult<Labelled> {
    let sets = labels.iter().filter(|label| *label == "|").count();
    if let Some(problem) = empty_labels(without_label(&labels) - sets, &format!("the {name}")) {
        let hint =
            "leave them out, as Embeddings.where(\"label is not missing\") does; an empty set is no label";
        return Err(value_error(problem, Some(hint.to_owned())));
    }
    Ok(Labelled { embeddings: matrix(&rows)?, labels, cameras })
}

pub(crate) fn plan(options: &str) -> PyResult<Plan> {
    let mut options: Map<String, Value> =
        serde_json::from_str(options).map_err(|error| value_error(error, None))?;
    let protocol: Option<String> = take(&mut options, "protocol")?;
    let mut plan = match protocol {
        None => Plan::default(),
        Some(name) => {
            let known = PROTOCOLS.iter().map(|protocol| (protocol.name, protocol));
            Plan::of(named("protocol", &name, known)?)
        }
    };
    if let Some(name) = take::<String>(&mut options, "metric")? {
        plan.options.metric = metric(&name)?;
    }
    if let Some(names) = take::<Vec<String>>(&mut options, "metrics")? {
        let measure = |name: &String| name.parse::<Measure>().or_value_error();
        plan.options.measures = names.iter().map(measure).collect::<PyResult<_>>()?;
    }
    if let Some(name) = take::<String>(&mut options, "multi_query")? {
        let poolings = Pooling::ALL.iter().map(|&pooling| (pooling.name(), pooling));
        plan.multi_query = Some(named("pooling", &name, poolings)?);
    }
    if let Some(name) = take::<String>(&mut options, "cluster")? {
        plan.cluster =
            Some(named("clustering", &name, Preset::ALL.iter().map(|&preset| (preset.name(), preset)))?);
    }
    plan.ignore_cameras = take(&mut options, "ignore_cameras")?.unwrap_or_default();
    plan.rerank = take(&mut options, "rerank")?;
    plan.expansion = take(&mut options, "expansion")?;
    plan.verification = take(&mut options, "verification")?;
    plan.few_shot = take(&mut options, "few_shot")?;
    plan.bootstrap = take(&mut options, "bootstrap")?;
    plan.seed = take(&mut options, "seed")?.unwrap_or_default();
    match options.keys().next() {
        None => Ok(plan),
        Some(key) => Err(value_error(format!("there is no option `{key}`"), None)),
    }
}

/// Takes an option out of the map; `None` if it is missing or null.
fn take<T: serde::de::DeserializeOwned>(options: &mut Map<String, Value>, key: &str) -> PyResult<Option<T>> {
    match options.remove(key) {
        None | Some(Value::Null) => Ok(None),
        Some(value) => serde_json::from_value(value)
            .map(Some)
            .map_err(|error| value_error(format!("{key}: {error}"), None)),
    }
}
