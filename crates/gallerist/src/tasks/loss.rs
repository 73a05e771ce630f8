//! The value and the gradient of a loss on embeddings from a file.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use gallerist_loss::{AnyLoss, CrossBatchRows, Labels, LossConfig, LossShape, Progress, Queries};
use gallerist_retrieval::file::npy;
use gallerist_retrieval::{EmbeddingSet, labels};
use gallerist_tensor::burn::tensor::{DType, Device, Tensor, TensorData};
use gallerist_tensor::device::DeviceChoice;
use gallerist_tensor::pairwise::l2_normalize;
use gallerist_tensor::params;

use super::embed::labels_of;
use crate::{Error, Result};

/// Options of [`compute_loss`]. The default has no cross-batch memory and takes the rows as they are in the file.
#[derive(Clone, Debug)]
pub struct LossOptions {
    /// Labels of the embeddings: .npy of integers, or text with one label a line; by default those in their file.
    pub labels: Option<PathBuf>,
    /// Embeddings of earlier batches, which are added to every ranked list and get no gradient.
    pub memory: Option<PathBuf>,
    /// Labels of the memory; by default those in its file.
    pub memory_labels: Option<PathBuf>,
    /// Whether rows are scaled to length 1 before the loss. The gradient is with respect to the rows of the file.
    pub normalize: bool,
    /// Whether the gradient is computed.
    pub gradient: bool,
    /// Learned parameters of the loss instead of random ones: a safetensors file with tensors by name, or a
    /// checkpoint of a run.
    pub parameters: Option<PathBuf>,
    /// Training step, for losses and miners with a schedule.
    pub step: usize,
    /// Seed of the proxies and of random sampling.
    pub seed: u64,
    /// The device of the loss.
    pub device: DeviceChoice,
}

impl Default for LossOptions {
    fn default() -> Self {
        LossOptions {
            labels: None,
            memory: None,
            memory_labels: None,
            normalize: false,
            gradient: false,
            parameters: None,
            step: 0,
            seed: 1,
            device: DeviceChoice::Cpu,
        }
    }
}

/// What [`compute_loss`] found.
#[derive(Debug)]
#[non_exhaustive]
pub struct ComputedLoss {
    /// The loss with its learned parameters.
    pub loss: AnyLoss,
    /// The value of the loss.
    pub value: f64,
    /// Loss and counts of each query.
    pub queries: Queries,
    /// The gradient with respect to the rows of the file, samples x dimensions in row-major order; zeros for a loss
    /// that does not depend on them.
    pub gradient: Option<Vec<f64>>,
    /// Whether the file is f64. The computation uses f64 then, and f32 for all other files.
    pub wide: bool,
    /// Number of embeddings.
    pub samples: usize,
    /// Number of values of an embedding.
    pub dimensions: usize,
    /// Number of embeddings in the cross-batch memory.
    pub memory: usize,
}

/// Computes a loss on all embeddings of a file as one batch.
///
/// A label `a|b` is a set of labels: two samples that share a label are positives of each other.
///
/// # Example
///
/// ```no_run
/// use std::path::Path;
/// use gallerist::{LossOptions, loss::LossConfig};
///
/// let config = LossConfig::default();
/// let computed = gallerist::compute_loss(Path::new("batch.safetensors"), &config, &LossOptions::default())?;
/// println!("{}", computed.value);
/// # Ok::<(), gallerist::Error>(())
/// ```
///
/// # Errors
///
/// For files that cannot be read or do not fit together, numbers that are not finite, a memory that the loss cannot
/// use, parameters of another loss, and a device that cannot compute in the dtype of the file.
pub fn compute_loss(embeddings: &Path, config: &LossConfig, options: &LossOptions) -> Result<ComputedLoss> {
    let Rows { values, shape: [n, d], dtype, labels: mut names } =
        read(embeddings, options.labels.as_deref(), "--labels")?;
    let memory = match &options.memory {
        Some(file) => {
            config.require_memory()?;
            Some(read_memory(file, options.memory_labels.as_deref(), d)?)
        }
        None => None,
    };
    names.extend(memory.iter().flat_map(|memory| memory.labels.iter().cloned()));
    let encoded = labels::encode(&names);
    let sets = label_sets(&names);
    let (target, of_memory) = match &sets {
        Some(sets) => (Labels::Sets(&sets.ids[..n]), Labels::Sets(&sets.ids[n..])),
        None => (Labels::Classes(&encoded.ids[..n]), Labels::Classes(&encoded.ids[n..])),
    };
    let classes = sets.as_ref().map_or(encoded.names.len(), |sets| sets.classes);

    let device = device_for(options.device, dtype)?;
    let mut loss = config.init(LossShape { classes, dimensions: d }, options.seed, &device);
    if let Some(path) = &options.parameters {
        loss = with_parameters(loss, path)?;
    }
    let tensor = |values, n| Tensor::<2>::from_data(TensorData::new(values, [n, d]), (&device, dtype));
    let prepared = |rows| if options.normalize { l2_normalize(rows) } else { rows };
    let x = tensor(values, n).require_grad();
    let memory = memory.map(|memory| CrossBatchRows {
        embeddings: prepared(tensor(memory.values, memory.shape[0])),
        labels: of_memory,
    });
    let progress = Progress { step: options.step, steps: options.step.max(1) };
    let output = loss.forward_against(prepared(x.clone()), target, memory, progress);
    let gradient = options.gradient.then(|| match x.grad(&output.value.backward()) {
        Some(gradient) => host(gradient.into_data()),
        None => vec![0.0; n * d],
    });
    Ok(ComputedLoss {
        value: host(output.value.into_data())[0],
        queries: output.queries,
        loss,
        gradient,
        wide: dtype == DType::F64,
        samples: n,
        dimensions: d,
        memory: names.len() - n,
    })
}

fn host(data: TensorData) -> Vec<f64> {
    data.convert::<f64>().try_into_vec::<f64>().expect("converted to f64")
}

/// The requested device, if it supports the dtype.
fn device_for(choice: DeviceChoice, dtype: DType) -> Result<Device> {
    let opened = choice.open()?;
    let device = opened.device().clone();
    if !device.supports_dtype(dtype) {
        return Err(Error::new(
            format!("{opened} does not compute in {}, the file's numbers", dtype.name()),
            Some("use --device cpu, or a file of f32"),
        ));
    }
    Ok(device.autodiff())
}

/// Embeddings of a file, with their labels.
struct Rows {
    values: Vec<f64>,
    shape: [usize; 2],
    /// Whether the file is f64; the computation then uses f64.
    dtype: DType,
    labels: Vec<String>,
}

/// `option` is the name of the option for `labels`.
fn read(file: &Path, labels: Option<&Path>, option: &str) -> Result<Rows> {
    let name = file.display().to_string();
    let (values, [n, d], dtype, of_file) = if file.extension().is_some_and(|e| e == "npy") {
        let array = npy::read_f64(file)?;
        let [n, d] = array.shape[..] else {
            let message =
                format!("`{name}` has {} dimensions; embeddings have 2 (rows x values)", array.shape.len());
            return Err(Error::new(message, None));
        };
        let dtype = if array.wide { DType::F64 } else { DType::F32 };
        (array.values, [n, d], dtype, None)
    } else {
        let set = EmbeddingSet::load(file)?;
        let shape = [set.embeddings.rows(), set.embeddings.cols()];
        let values = set.embeddings.as_slice().iter().map(|&v| f64::from(v)).collect();
        (values, shape, DType::F32, set.labels)
    };
    if let Some(at) = values.iter().position(|v| !v.is_finite()) {
        let message = format!("row {} of `{name}` holds {}, which is no finite number", at / d, values[at]);
        return Err(Error::new(message, Some("rows are counted from 0")));
    }
    let labels = labels_of(labels, of_file, "a loss", &name, option)?;
    if labels.len() != n {
        return Err(Error::new(
            format!("`{name}` has {n} rows, and there are {} labels", labels.len()),
            Some("one label a row is needed"),
        ));
    }
    Ok(Rows { values, shape: [n, d], dtype, labels })
}

/// A cross-batch memory for embeddings of `d` dimensions.
fn read_memory(file: &Path, labels: Option<&Path>, d: usize) -> Result<Rows> {
    let memory = read(file, labels, "--memory-labels")?;
    if memory.shape[1] != d {
        return Err(Error::new(
            format!(
                "the embeddings have {d} values a row, the memory `{}` has {}",
                file.display(),
                memory.shape[1]
            ),
            Some("a memory holds embeddings of the same network"),
        ));
    }
    Ok(memory)
}

/// The loss with the parameters of a file; for a checkpoint, those of its loss.
fn with_parameters(loss: AnyLoss, path: &Path) -> Result<AnyLoss> {
    let mut tensors = params::read(path)?;
    let of_checkpoint: BTreeMap<_, _> = tensors
        .iter()
        .filter_map(|(name, data)| Some((name.strip_prefix("loss.")?.to_string(), data.clone())))
        .collect();
    if !of_checkpoint.is_empty() {
        tensors = of_checkpoint;
    }
    let (loss, mismatch) = params::load(loss, tensors);
    if mismatch.is_empty() {
        return Ok(loss);
    }
    let hint = "`--save-parameters` shows the names and shapes that the loss wants";
    Err(Error::new(
        format!("the parameters in `{}` are not those of this loss: {mismatch}", path.display()),
        Some(hint),
    ))
}

struct Sets {
    ids: Vec<Vec<u32>>,
    classes: usize,
}

/// Labels `a|b` as sets; `None` if every sample has one label.
fn label_sets(names: &[String]) -> Option<Sets> {
    labels::are_sets(names).then(|| {
        let parts = |name: &str| name.split(labels::SEPARATOR).map(str::to_string).collect::<Vec<_>>();
        let all: Vec<String> = names.iter().flat_map(|name| parts(name)).collect();
        let encoded = labels::encode(&all);
        let mut ids = encoded.ids.iter().copied();
        let ids = names.iter().map(|name| ids.by_ref().take(parts(name).len()).collect()).collect();
        Sets { ids, classes: encoded.names.len() }
    })
}
