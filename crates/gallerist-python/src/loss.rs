//! Losses: value, gradients and diagnostics for a batch.

use std::collections::BTreeMap;

use burn::module::{Module, ModuleVisitor, Param};
use burn::tensor::{DType, Device, Gradients, Tensor, TensorData};
use gallerist::burn;
use gallerist::device::DeviceChoice;
use gallerist::loss::engine::{RowBatch, RowLoss};
use gallerist::loss::{AnyLoss, CrossBatchRows, Labels, LossConfig, LossShape, Progress, Queries};
use gallerist::miner::MinerConfig;
use gallerist::pairwise::l2_normalize;
use gallerist::params;
use gallerist::train::config::loss_from_settings;
use numpy::{
    IntoPyArray, PyArray1, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyReadonlyArrayDyn,
    PyReadwriteArray2, PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::arrays::{LabelList, Numbering};
use crate::errors::{OrValueError, check_process, detached, value_error};

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
        check_process()?;
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

    /// Whether the value depends on the step, apart from random draws.
    fn has_schedule(&self) -> bool {
        self.config.has_schedule()
    }

    /// The initial values of the loss's own parameters by name, f32.
    fn parameters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let parameters = self.built.as_ref().map_or(BTreeMap::new(), |(_, loss)| params::collect(loss));
        arrays_by_name(py, parameters)
    }

    /// Value, gradients by the parameters, diagnostics. The gradient by the embeddings is written to `gradient`, an array of
    /// their shape and dtype, if there is one.
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
        gradient: Option<Target<'py>>,
        step: usize,
        steps: usize,
    ) -> PyResult<Bound<'py, PyDict>> {
        let labels = LabelList::new(labels, ends)?;
        self.config.require_one_class(labels.is_sets()).or_value_error()?;
        let memory = match (memory, memory_labels) {
            (Some(rows), Some(labels)) => {
                self.config.require_memory().or_value_error()?;
                Some((rows, LabelList::new(labels, memory_ends)?))
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
        let options = Options { normalize, progress: Progress { step, steps: steps.max(1) }, parameters };
        let computed = match embeddings {
            Rows::Narrow(rows) => self.computed::<f32>(py, &rows, labels, memory, gradient, options),
            Rows::Wide(rows) => self.computed::<f64>(py, &rows, labels, memory, gradient, options),
        };
        computed?.into_dict(py)
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

/// Where a gradient of f32 or f64 is written.
#[derive(FromPyObject)]
pub(crate) enum Target<'py> {
    Narrow(PyReadwriteArray2<'py, f32>),
    Wide(PyReadwriteArray2<'py, f64>),
}

/// How a batch is computed.
struct Options {
    normalize: bool,
    progress: Progress,
    /// The values of the loss's own parameters.
    parameters: Option<BTreeMap<String, TensorData>>,
}

/// f32 or f64: what the rows of a batch hold.
trait Float: numpy::Element + burn::tensor::Element + Copy + Default {
    const DTYPE: DType;
    fn is_finite(self) -> bool;
    /// The rows, if they hold this type.
    fn rows(rows: Rows<'_>) -> Option<PyReadonlyArray2<'_, Self>>;
    /// The place of a gradient, if it holds this type.
    fn target(target: Target<'_>) -> Option<PyReadwriteArray2<'_, Self>>;
    fn forward(
        loss: &dyn RowLoss,
        batch: &RowBatch<'_, Self>,
        progress: Progress,
        gradient: Option<&mut [Self]>,
    ) -> (f64, Queries);
}

macro_rules! float {
    ($float:ident, $dtype:ident, $kind:ident, $forward:ident) => {
        impl Float for $float {
            const DTYPE: DType = DType::$dtype;

            fn is_finite(self) -> bool {
                $float::is_finite(self)
            }

            fn rows(rows: Rows<'_>) -> Option<PyReadonlyArray2<'_, $float>> {
                if let Rows::$kind(rows) = rows { Some(rows) } else { None }
            }

            fn target(target: Target<'_>) -> Option<PyReadwriteArray2<'_, $float>> {
                if let Target::$kind(target) = target { Some(target) } else { None }
            }

            fn forward(
                loss: &dyn RowLoss,
                batch: &RowBatch<'_, $float>,
                progress: Progress,
                gradient: Option<&mut [$float]>,
            ) -> (f64, Queries) {
                loss.$forward(batch, progress, gradient)
            }
        }
    };
}

float!(f32, F32, Narrow, forward_f32);
float!(f64, F64, Wide, forward_f64);

/// Rows with their labels.
struct Batch<'a, F> {
    rows: &'a [F],
    shape: [usize; 2],
    labels: LabelList,
    what: &'static str,
}

impl<'a, F: Float> Batch<'a, F> {
    fn new(rows: &'a PyReadonlyArray2<'_, F>, labels: LabelList, what: &'static str) -> PyResult<Self> {
        let [n, d] = [rows.shape()[0], rows.shape()[1]];
        if n == 0 || d == 0 {
            return Err(value_error(format!("{what} of shape ({n}, {d}) hold no values"), None));
        }
        if labels.len() != n {
            return Err(value_error(
                format!("{what} have {n} rows, and there are {} labels", labels.len()),
                Some("one label a row is needed".into()),
            ));
        }
        let rows = rows.as_slice().map_err(|_| value_error(format!("{what} must be contiguous"), None))?;
        Ok(Batch { rows, shape: [n, d], labels, what })
    }

    /// Refuses numbers that are not finite.
    fn require_finite(&self) -> PyResult<()> {
        match self.rows.iter().position(|value| !Float::is_finite(*value)) {
            None => Ok(()),
            Some(at) => Err(value_error(
                format!("{} hold a number that is not finite in row {}", self.what, at / self.shape[1]),
                Some("rows are counted from 0; a learning rate that is too high is the usual cause".into()),
            )),
        }
    }

    /// A copy as a tensor.
    fn to_tensor(&self, device: &Device) -> Tensor<2> {
        Tensor::from_data(TensorData::new(self.rows.to_vec(), self.shape), (device, F::DTYPE))
    }
}

struct Computed {
    value: f64,
    parameters: BTreeMap<String, TensorData>,
    queries: Queries,
}

impl Loss {
    /// Checks the arrays and computes without the interpreter's lock.
    fn computed<F: Float>(
        &self,
        py: Python<'_>,
        rows: &PyReadonlyArray2<'_, F>,
        labels: LabelList,
        memory: Option<(Rows<'_>, LabelList)>,
        gradient: Option<Target<'_>>,
        options: Options,
    ) -> PyResult<Computed> {
        let batch = Batch::new(rows, labels, "embeddings")?;
        let of_other_type = || {
            let dtype = F::DTYPE.name();
            value_error(format!("memory and gradient must be {dtype}, as the embeddings are"), None)
        };
        let (memory_rows, memory_labels) = memory.unzip();
        let memory_rows = memory_rows.map(|rows| F::rows(rows).ok_or_else(of_other_type)).transpose()?;
        let memory = memory_rows.as_ref().zip(memory_labels);
        let memory = memory.map(|(rows, labels)| Batch::new(rows, labels, "memory")).transpose()?;
        if let Some(memory) = &memory
            && memory.shape[1] != batch.shape[1]
        {
            let [_, d] = batch.shape;
            let message = format!("the embeddings have {d} values a row, the memory has {}", memory.shape[1]);
            return Err(value_error(message, Some("a memory holds embeddings of the same network".into())));
        }
        let mut target = gradient.map(|target| F::target(target).ok_or_else(of_other_type)).transpose()?;
        let target = target.as_mut().map(|target| {
            let fits = target.shape() == rows.shape();
            target.as_slice_mut().ok().filter(|_| fits).ok_or_else(|| {
                value_error("the gradient must be contiguous and have the shape of the embeddings", None)
            })
        });
        let target = target.transpose()?;
        detached(py, || rayon::scope(|_| self.forward(&batch, memory.as_ref(), target, options)))
    }

    fn forward<F: Float>(
        &self,
        batch: &Batch<'_, F>,
        memory: Option<&Batch<'_, F>>,
        target: Option<&mut [F]>,
        options: Options,
    ) -> PyResult<Computed> {
        let Options { normalize, progress, parameters } = options;
        let [_, d] = batch.shape;
        let (ids, of_memory, classes) = self.numbered(&batch.labels, memory.map(|memory| &memory.labels))?;
        let loss = self.ready(LossShape { classes, dimensions: d }, parameters)?;
        let Some(on_rows) = loss.on_rows() else {
            batch.require_finite()?;
            memory.map_or(Ok(()), Batch::require_finite)?;
            let memory = memory.zip(of_memory.as_ref()).map(|(memory, labels)| CrossBatchRows {
                embeddings: memory.to_tensor(&self.device),
                labels: labels.borrowed(),
            });
            let x = batch.to_tensor(&self.device);
            return Ok(on_tensors(&loss, x, ids.borrowed(), memory, normalize, progress, target));
        };
        let rows = RowBatch {
            rows: batch.rows,
            dimensions: d,
            labels: ids.borrowed(),
            memory: memory.zip(of_memory.as_ref()).map(|(memory, labels)| (memory.rows, labels.borrowed())),
            normalize,
        };
        let (value, queries) = F::forward(on_rows, &rows, progress, target);
        if value.is_nan() {
            // A number that is not finite always gives NaN: it is looked for only now.
            batch.require_finite()?;
            memory.map_or(Ok(()), Batch::require_finite)?;
        }
        Ok(Computed { value, parameters: BTreeMap::new(), queries })
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

/// A loss by the tensor engine, which takes copies of the rows.
fn on_tensors<F: Float>(
    loss: &AnyLoss,
    x: Tensor<2>,
    labels: Labels<'_>,
    memory: Option<CrossBatchRows<'_>>,
    normalize: bool,
    progress: Progress,
    target: Option<&mut [F]>,
) -> Computed {
    let prepared = |rows| if normalize { l2_normalize(rows) } else { rows };
    let x = if target.is_some() { x.require_grad() } else { x };
    let memory = memory.map(|memory| CrossBatchRows { embeddings: prepared(memory.embeddings), ..memory });
    let output = loss.forward_against(prepared(x.clone()), labels, memory, progress);
    let value = output.value.clone().into_data().convert::<f64>();
    let value = value.try_into_vec::<f64>().expect("converted to f64")[0];
    let mut computed = Computed { value, parameters: BTreeMap::new(), queries: output.queries };
    if let Some(target) = target {
        let gradients = output.value.backward();
        match x.grad(&gradients) {
            Some(gradient) => {
                let data = gradient.into_data().convert::<F>();
                target.copy_from_slice(data.as_slice::<F>().expect("converted to this type"));
            }
            None => target.fill(F::default()),
        }
        let mut visitor =
            Visitor { path: params::Path::default(), gradients: &gradients, found: BTreeMap::new() };
        loss.visit(&mut visitor);
        computed.parameters = visitor.found;
    }
    computed
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
    fn into_dict(self, py: Python<'_>) -> PyResult<Bound<'_, PyDict>> {
        let dict = PyDict::new(py);
        dict.set_item("value", self.value)?;
        dict.set_item("parameters", arrays_by_name(py, self.parameters)?)?;
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

/// Arrays of f32.
fn arrays_by_name<'py>(
    py: Python<'py>,
    tensors: BTreeMap<String, TensorData>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, data) in tensors {
        let shape = data.shape().to_vec();
        let values = data.convert::<f32>().try_into_vec::<f32>().expect("converted to f32");
        dict.set_item(name, values.into_pyarray(py).reshape(shape)?)?;
    }
    Ok(dict)
}
