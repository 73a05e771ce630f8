//! Losses: value, gradients and diagnostics for a batch.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Gradients, Tensor, TensorData};
use gallerist::burn;
use gallerist::device::DeviceChoice;
use gallerist::loss::{AnyLoss, CrossBatchRows, Labels, LossConfig, LossShape, Progress, Queries};
use gallerist::miner::MinerConfig;
use gallerist::pairwise::l2_normalize;
use gallerist::params;
use gallerist::train::config::loss_from_settings;
use numpy::{
    IntoPyArray, PyArray1, PyArrayDyn, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2,
    PyReadonlyArrayDyn, PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::{LabelList, Numbering, values};
use crate::errors::{OrValueError, detached, value_error};

/// Every loss as JSON: name, parameters with their defaults, what it takes.
#[pyfunction]
pub(crate) fn losses() -> String {
    let of = |loss: &LossConfig| {
        serde_json::json!({
            "name": loss.name(),
            "parameters": loss,
            "derived": loss.derived_parameters().into_iter().map(|(key, text)| [key, text]).collect::<Vec<_>>(),
            "normalized": loss.normalized(),
            "takes_memory": loss.takes_memory(),
            "takes_miner": loss.takes_miner(),
            "learns": learns(loss),
        })
    };
    let all: Vec<_> = LossConfig::all_defaults().iter().map(of).collect();
    serde_json::to_string(&all).expect("parameters are plain data")
}

/// Every miner as JSON: name, parameters with their defaults.
#[pyfunction]
pub(crate) fn miners() -> String {
    let of = |miner: &MinerConfig| serde_json::json!({ "name": miner.name(), "parameters": miner });
    let all: Vec<_> = MinerConfig::all_defaults().iter().map(of).collect();
    serde_json::to_string(&all).expect("parameters are plain data")
}

/// Whether a loss has parameters of its own, which depend on the number of classes.
fn learns(config: &LossConfig) -> bool {
    let shape = LossShape { classes: 2, dimensions: 2 };
    config.init(shape, 0, &Device::flex()).num_params() > 0
}

/// A loss with its settings, for batches of one number of dimensions.
#[pyclass(frozen, module = "gallerist._native")]
pub(crate) struct Loss {
    config: LossConfig,
    device: Device,
    /// As its configuration builds it, for losses with parameters of their own.
    built: Option<(LossShape, AnyLoss)>,
    seed: u64,
}

#[pymethods]
impl Loss {
    /// `settings` are `key=value`, with the value as in a run file. `classes` and `dimensions` are needed by losses
    /// with parameters of their own.
    #[new]
    #[pyo3(signature = (name, settings, classes, dimensions, seed))]
    fn new(
        name: &str,
        settings: Vec<String>,
        classes: Option<usize>,
        dimensions: Option<usize>,
        seed: u64,
    ) -> PyResult<Self> {
        let config = loss_from_settings(Some(name), None, &settings).or_value_error()?;
        let device = DeviceChoice::Cpu.open().or_value_error()?.device().clone().autodiff();
        let built = match learns(&config) {
            false => None,
            true => {
                let (Some(classes), Some(dimensions)) = (classes, dimensions) else {
                    return Err(value_error(
                        format!("the loss `{name}` has parameters of its own and needs their sizes"),
                        Some("give classes=..., the number of training classes, and dimensions=..., that of an embedding".into()),
                    ));
                };
                check_sizes(&config, classes, dimensions)?;
                let shape = LossShape { classes, dimensions };
                Some((shape, config.init(shape, seed, &device)))
            }
        };
        Ok(Loss { config, device, built, seed })
    }

    /// The settings, those that are not given at their defaults, as JSON.
    fn settings(&self) -> String {
        serde_json::to_string(&self.config).expect("parameters are plain data")
    }

    /// The initial values of the loss's own parameters by name, f32.
    fn parameters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let parameters = self.built.as_ref().map_or(BTreeMap::new(), |(_, loss)| params::collect(loss));
        arrays_by_name(py, parameters, false)
    }

    /// Value, gradient by the embeddings, gradients by the parameters, diagnostics.
    #[pyo3(signature = (embeddings, labels, ends, memory, memory_labels, memory_ends, parameters, normalize, gradient, step, steps))]
    #[allow(clippy::too_many_arguments)]
    fn compute<'py>(
        &self,
        py: Python<'py>,
        embeddings: Rows<'py>,
        labels: PyReadonlyArray1<'py, i64>,
        ends: Option<PyReadonlyArray1<'py, u64>>,
        memory: Option<Rows<'py>>,
        memory_labels: Option<PyReadonlyArray1<'py, i64>>,
        memory_ends: Option<PyReadonlyArray1<'py, u64>>,
        parameters: Option<BTreeMap<String, PyReadonlyArrayDyn<'py, f32>>>,
        normalize: Option<bool>,
        gradient: bool,
        step: usize,
        steps: usize,
    ) -> PyResult<Bound<'py, PyDict>> {
        let batch = Batch::new(embeddings, LabelList::new(labels, ends)?, "embeddings")?;
        let memory = match (memory, memory_labels) {
            (Some(rows), Some(labels)) => {
                self.config.require_memory().or_value_error()?;
                Some(Batch::new(rows, LabelList::new(labels, memory_ends)?, "memory")?)
            }
            (None, None) => None,
            _ => return Err(value_error("a memory needs its labels, and labels their memory", None)),
        };
        let parameters = parameters.map(|parameters| {
            let tensor = |array: PyReadonlyArrayDyn<'_, f32>| {
                TensorData::new(array.as_array().iter().copied().collect::<Vec<_>>(), array.shape().to_vec())
            };
            parameters.into_iter().map(|(name, array)| (name, tensor(array))).collect::<BTreeMap<_, _>>()
        });
        let normalize = normalize.unwrap_or_else(|| self.config.normalized());
        let progress = Progress { step, steps: steps.max(1) };
        let wide = batch.dtype == DType::F64;
        let computed = detached(py, || {
            rayon::scope(|_| self.computed(batch, memory, parameters, normalize, gradient, progress))
        })?;
        computed.into_dict(py, wide)
    }

    fn __repr__(&self) -> String {
        format!("Loss({:?}, {}, seed={})", self.config.name(), self.config.parameters().join(", "), self.seed)
    }
}

/// Refuses sizes for which the parameters would not fit into memory.
fn check_sizes(config: &LossConfig, classes: usize, dimensions: usize) -> PyResult<()> {
    const MOST: usize = 1 << 30;
    if classes == 0 || dimensions == 0 {
        return Err(value_error("classes and dimensions must be 1 or more", None));
    }
    match classes.checked_mul(dimensions) {
        Some(values) if values <= MOST => Ok(()),
        _ => Err(value_error(
            format!(
                "{classes} classes of {dimensions} dimensions are too many for the parameters of `{}`",
                config.name()
            ),
            Some("a loss without parameters of its own has no such limit".into()),
        )),
    }
}

/// Rows of f32 or f64.
#[derive(FromPyObject)]
pub(crate) enum Rows<'py> {
    Narrow(PyReadonlyArray2<'py, f32>),
    Wide(PyReadonlyArray2<'py, f64>),
}

/// Rows with their labels.
struct Batch {
    data: TensorData,
    shape: [usize; 2],
    dtype: DType,
    labels: LabelList,
}

impl Batch {
    fn new(rows: Rows<'_>, labels: LabelList, what: &str) -> PyResult<Self> {
        let (data, [n, d], dtype, finite) = match &rows {
            Rows::Narrow(rows) => {
                let shape = [rows.shape()[0], rows.shape()[1]];
                let values = values(rows);
                let finite = values.iter().position(|value| !value.is_finite());
                (TensorData::new(values, shape), shape, DType::F32, finite)
            }
            Rows::Wide(rows) => {
                let shape = [rows.shape()[0], rows.shape()[1]];
                let values = values(rows);
                let finite = values.iter().position(|value| !value.is_finite());
                (TensorData::new(values, shape), shape, DType::F64, finite)
            }
        };
        if n == 0 || d == 0 {
            return Err(value_error(format!("{what} of shape ({n}, {d}) hold no values"), None));
        }
        if let Some(at) = finite {
            return Err(value_error(
                format!("{what} hold a number that is not finite in row {}", at / d),
                Some("rows are counted from 0; a learning rate that is too high is the usual cause".into()),
            ));
        }
        if labels.len() != n {
            return Err(value_error(
                format!("{what} have {n} rows, and there are {} labels", labels.len()),
                Some("one label a row is needed".into()),
            ));
        }
        Ok(Batch { data, shape: [n, d], dtype, labels })
    }

    fn into_tensor(self, device: &Device) -> Tensor<2> {
        Tensor::from_data(self.data, (device, self.dtype))
    }
}

struct Computed {
    value: f64,
    gradient: Option<TensorData>,
    parameters: BTreeMap<String, TensorData>,
    queries: Queries,
}

impl Loss {
    fn computed(
        &self,
        batch: Batch,
        memory: Option<Batch>,
        parameters: Option<BTreeMap<String, TensorData>>,
        normalize: bool,
        gradient: bool,
        progress: Progress,
    ) -> PyResult<Computed> {
        let [_, d] = batch.shape;
        if let Some(memory) = &memory
            && (memory.shape[1] != d || memory.dtype != batch.dtype)
        {
            let message = format!(
                "the embeddings have {d} {} a row, the memory has {} {}",
                batch.dtype.name(),
                memory.shape[1],
                memory.dtype.name()
            );
            return Err(value_error(message, Some("a memory holds embeddings of the same network".into())));
        }
        let (ids, of_memory, classes) =
            self.numbered(&batch.labels, memory.as_ref().map(|memory| &memory.labels))?;
        let loss = self.ready(LossShape { classes, dimensions: d }, parameters)?;
        let prepared = |rows| if normalize { l2_normalize(rows) } else { rows };
        let (shape, dtype) = (batch.shape, batch.dtype);
        let x = batch.into_tensor(&self.device);
        let x = if gradient { x.require_grad() } else { x };
        let rows = memory.zip(of_memory.as_ref()).map(|(memory, labels)| CrossBatchRows {
            embeddings: prepared(memory.into_tensor(&self.device)),
            labels: labels.borrowed(),
        });
        let output = loss.forward_against(prepared(x.clone()), ids.borrowed(), rows, progress);
        let value = output.value.clone().into_data().convert::<f64>();
        let value = value.try_into_vec::<f64>().expect("converted to f64")[0];
        let mut computed =
            Computed { value, gradient: None, parameters: BTreeMap::new(), queries: output.queries };
        if gradient {
            let gradients = output.value.backward();
            computed.gradient = Some(match x.grad(&gradients) {
                Some(gradient) => gradient.into_data(),
                None => Tensor::<2>::zeros(shape, (&self.device, dtype)).into_data(),
            });
            let mut visitor =
                Visitor { path: params::Path::default(), gradients: &gradients, found: BTreeMap::new() };
            loss.visit(&mut visitor);
            computed.parameters = visitor.found;
        }
        Ok(computed)
    }

    /// The loss for this shape, with these values of its own parameters.
    fn ready(&self, shape: LossShape, values: Option<BTreeMap<String, TensorData>>) -> PyResult<AnyLoss> {
        let Some((built_for, loss)) = &self.built else {
            return Ok(self.config.init(shape, self.seed, &self.device));
        };
        if built_for.dimensions != shape.dimensions {
            return Err(value_error(
                format!(
                    "the embeddings have {} dimensions, the loss was made for {}",
                    shape.dimensions, built_for.dimensions
                ),
                None,
            ));
        }
        let Some(values) = values else { return Ok(loss.clone()) };
        let (loss, mismatch) = params::load(loss.clone(), values);
        match mismatch.is_empty() {
            true => Ok(loss),
            false => Err(value_error(format!("the parameters are not those of this loss: {mismatch}"), None)),
        }
    }

    /// Labels as the loss takes them, with the number of classes. A loss with parameters of its own takes the numbers
    /// of the training classes as they are.
    fn numbered(
        &self,
        labels: &LabelList,
        memory: Option<&LabelList>,
    ) -> PyResult<(Ids, Option<Ids>, usize)> {
        if memory.is_some_and(|memory| memory.is_sets() != labels.is_sets()) {
            return Err(value_error(
                "the labels and those of the memory must both be sets, or neither",
                None,
            ));
        }
        let mut numbering = Numbering::default();
        let mut number = |label: i64| match &self.built {
            None => Ok(numbering.of(label)),
            Some((shape, _)) => {
                u32::try_from(label).ok().filter(|&id| (id as usize) < shape.classes).ok_or_else(|| {
                    value_error(
                        format!("label {label} is not one of the {} training classes", shape.classes),
                        Some("this loss has parameters for each class: labels are 0 to classes - 1".into()),
                    )
                })
            }
        };
        let ids = Ids::new(labels, &mut number)?;
        let of_memory = memory.map(|memory| Ids::new(memory, &mut number)).transpose()?;
        let classes = self.built.as_ref().map(|(shape, _)| shape.classes);
        Ok((ids, of_memory, classes.unwrap_or_else(|| numbering.len())))
    }
}

/// Numbered labels.
enum Ids {
    Classes(Vec<u32>),
    Sets(Vec<Vec<u32>>),
}

impl Ids {
    fn new(labels: &LabelList, number: &mut impl FnMut(i64) -> PyResult<u32>) -> PyResult<Self> {
        Ok(match labels {
            LabelList::One(values) => {
                Ids::Classes(values.iter().map(|&label| number(label)).collect::<PyResult<_>>()?)
            }
            LabelList::Several(..) => {
                let mut set =
                    |labels: &[i64]| labels.iter().map(|&label| number(label)).collect::<PyResult<Vec<_>>>();
                Ids::Sets(labels.sets().into_iter().map(&mut set).collect::<PyResult<_>>()?)
            }
        })
    }

    fn borrowed(&self) -> Labels<'_> {
        match self {
            Ids::Classes(classes) => Labels::Classes(classes),
            Ids::Sets(sets) => Labels::Sets(sets),
        }
    }
}

/// Collects the gradients by the parameters of a loss.
struct Visitor<'a> {
    path: params::Path,
    gradients: &'a Gradients,
    found: BTreeMap<String, TensorData>,
}

impl ModuleVisitor for Visitor<'_> {
    fn enter_module(&mut self, name: &str, container: &str) {
        self.path.enter(name, container);
    }

    fn exit_module(&mut self, _name: &str, _container: &str) {
        self.path.exit();
    }

    fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
        if let Some(gradient) = param.val().grad(self.gradients) {
            self.found.insert(self.path.name(), gradient.into_data());
        }
    }
}

impl Computed {
    fn into_dict(self, py: Python<'_>, wide: bool) -> PyResult<Bound<'_, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("value", self.value)?;
        dict.set_item("gradient", self.gradient.map(|data| array(py, data, wide)))?;
        dict.set_item("parameters", arrays_by_name(py, self.parameters, false)?)?;
        let queries = PyDict::new(py);
        let Queries {
            loss,
            positives,
            negatives,
            mined_positives,
            mined_negatives,
            terms,
            dead_terms,
            note,
            ..
        } = self.queries;
        queries.set_item("loss", PyArray1::from_vec(py, loss))?;
        for (name, counts) in [
            ("positives", positives),
            ("negatives", negatives),
            ("mined_positives", mined_positives),
            ("mined_negatives", mined_negatives),
            ("terms", terms),
            ("dead_terms", dead_terms),
        ] {
            queries.set_item(name, PyArray1::from_vec(py, counts))?;
        }
        dict.set_item("queries", queries)?;
        dict.set_item("note", note)?;
        Ok(dict)
    }
}

fn arrays_by_name(
    py: Python<'_>,
    tensors: BTreeMap<String, TensorData>,
    wide: bool,
) -> PyResult<Bound<'_, PyDict>> {
    let dict = PyDict::new(py);
    for (name, data) in tensors {
        dict.set_item(name, array(py, data, wide))?;
    }
    Ok(dict)
}

/// An array of f64 if `wide`, else of f32.
fn array(py: Python<'_>, data: TensorData, wide: bool) -> Bound<'_, PyAny> {
    let shape = data.shape().to_vec();
    fn shaped<'py, T: numpy::Element>(
        py: Python<'py>,
        values: Vec<T>,
        shape: Vec<usize>,
    ) -> Bound<'py, PyAny> {
        let array: Bound<'py, PyArrayDyn<T>> =
            values.into_pyarray(py).reshape(shape).expect("as many values as the shape has places");
        array.into_any()
    }
    match wide {
        true => shaped(py, data.convert::<f64>().try_into_vec::<f64>().expect("converted to f64"), shape),
        false => shaped(py, data.convert::<f32>().try_into_vec::<f32>().expect("converted to f32"), shape),
    }
}
