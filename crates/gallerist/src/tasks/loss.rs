//! The value and the gradient of a loss on embeddings from a file.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};

use gallerist_data::DataRecord;

use gallerist_loss::{AnyLoss, CrossBatchRows, Labels, LossConfig, LossShape, Progress, Queries};
use gallerist_retrieval::file::npy;
use gallerist_retrieval::{EmbeddingSet, labels};
use gallerist_tensor::burn::tensor::{DType, Device, Tensor, TensorData};
use gallerist_tensor::device::DeviceChoice;
use gallerist_tensor::pairwise::l2_normalize;
use gallerist_tensor::params;
use gallerist_train::RunDirectory;
use gallerist_util::files;

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
    /// checkpoint of a run. [`compute_loss`] says which class has which row of them.
    pub parameters: Option<PathBuf>,
    /// Training steps that are done, for losses and miners with a schedule.
    pub step: usize,
    /// Training steps in all, for losses whose schedule depends on it.
    pub steps: Option<usize>,
    /// Seed of the proxies and of random choices; a miner has a `seed` of its own.
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
            steps: None,
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
/// Learned parameters belong to classes, which are numbered independently of the order of the rows. If the labels are the
/// integers 0 to C - 1, each is its own number. All other labels are numbered in the byte order of their names, as a run
/// does. With a file of parameters, C is the number of its classes, and some integers may be absent. With a checkpoint in
/// its run directory, the labels are the names of the run's classes.
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
/// For files that cannot be read or do not fit together, files without embeddings, numbers that are not finite, in the
/// file or in the result, a memory or sets of labels that the loss cannot use, parameters of another loss or of other classes, a `step`
/// without the `steps` that the loss needs, and a device that cannot compute in the dtype of the file.
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
    let progress = progress_of(config, options)?;
    let device = device_for(options.device, dtype)?;
    let learned = match &options.parameters {
        Some(path) => Some(Learned::read(path, config, d)?),
        None => None,
    };
    let numbers = number_classes(&names, learned.as_ref())?;
    let ids = |name: &str| parts(name).map(|part| numbers[part]).collect::<Vec<_>>();
    let (mut classes, mut sets) = (Vec::new(), Vec::new());
    let has_label_sets = labels::are_sets(&names);
    config.require_one_class(has_label_sets)?;
    if has_label_sets {
        sets.extend(names.iter().map(|name| ids(name)));
    } else {
        classes.extend(names.iter().map(|name| numbers[name.as_str()]));
    }
    let (target, of_memory) = match sets.is_empty() {
        true => (Labels::Classes(&classes[..n]), Labels::Classes(&classes[n..])),
        false => (Labels::Sets(&sets[..n]), Labels::Sets(&sets[n..])),
    };
    let count = learned.as_ref().and_then(|learned| learned.classes).unwrap_or(numbers.len());
    let mut loss = config.init(LossShape { classes: count, dimensions: d }, options.seed, &device);
    if let Some(learned) = learned {
        loss = learned.load(loss)?;
    }
    let longest = longest(&values, d);
    let tensor = |values, n| Tensor::<2>::from_data(TensorData::new(values, [n, d]), (&device, dtype));
    let prepared = |rows| if options.normalize { l2_normalize(rows) } else { rows };
    let x = tensor(values, n).require_grad();
    let memory = memory.map(|memory| CrossBatchRows {
        embeddings: prepared(tensor(memory.values, memory.shape[0])),
        labels: of_memory,
    });
    let output = loss.forward_against(prepared(x.clone()), target, memory, progress);
    let gradient = options.gradient.then(|| match x.grad(&output.value.backward()) {
        Some(gradient) => host(gradient.into_data()),
        None => vec![0.0; n * d],
    });
    let value = host(output.value.into_data())[0];
    let is_finite = gradient.iter().flatten().chain([&value]).all(|number| number.is_finite());
    if !is_finite {
        return Err(not_finite(config, embeddings, longest, options.normalize));
    }
    Ok(ComputedLoss {
        value,
        queries: output.queries,
        loss,
        gradient,
        wide: dtype == DType::F64,
        samples: n,
        dimensions: d,
        memory: names.len() - n,
    })
}

/// Steps done and in all.
fn progress_of(config: &LossConfig, options: &LossOptions) -> Result<Progress> {
    let step = options.step;
    match options.steps {
        Some(steps) if step > steps => Err(Error::new(
            format!("step {step} is after the last of {steps} steps"),
            Some("--step is at most --steps"),
        )),
        None if step > 0 && config.depends_on_steps() => Err(Error::new(
            format!("the schedule of `{}` depends on the number of steps in all", config.name()),
            Some("give it: --steps N"),
        )),
        steps => Ok(Progress { step, steps: steps.unwrap_or(step).max(1) }),
    }
}

/// The length of the longest row.
fn longest(values: &[f64], d: usize) -> f64 {
    // In this way lengths whose squares overflow are found, too.
    let length = |row: &[f64]| {
        let largest = row.iter().fold(0.0_f64, |largest, v| largest.max(v.abs()));
        let scaled = |v: &f64| if largest == 0.0 { 0.0 } else { (v / largest).powi(2) };
        largest * row.iter().map(scaled).sum::<f64>().sqrt()
    };
    values.chunks(d).map(length).fold(0.0, f64::max)
}

fn not_finite(config: &LossConfig, file: &Path, longest: f64, normalized: bool) -> Error {
    let hint = match normalized {
        true => "choose parameters of the loss that are less extreme",
        false => "scale the rows to length 1: --normalize",
    };
    Error::new(
        format!(
            "the value or the gradient of `{}` is not finite; the longest row of `{}` has length {longest:.3e}",
            config.name(),
            file.display()
        ),
        Some(hint),
    )
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
    if n == 0 || d == 0 {
        let message = format!("`{name}` has {n} rows of {d} values");
        return Err(Error::new(message, Some("a loss needs at least one row, of at least one value")));
    }
    if let Some(at) = values.iter().position(|v| !v.is_finite()) {
        let message = format!("row {} of `{name}` holds {}, which is no finite number", at / d, values[at]);
        return Err(Error::new(message, Some("rows are counted from 0")));
    }
    let origin = labels.map_or("its own labels".into(), |file| format!("`{}`", file.display()));
    let labels = labels_of(labels, of_file, "a loss", &name, option)?;
    if labels.len() != n {
        return Err(Error::new(
            format!("`{name}` has {n} rows, and there are {} labels in {origin}", labels.len()),
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

/// Learned parameters of a file.
struct Learned {
    path: PathBuf,
    tensors: BTreeMap<String, TensorData>,
    /// Classes that the tensors have rows for; `None` if they have none.
    classes: Option<usize>,
    /// The classes of the run, in the order of its rows, if the file is the checkpoint of one.
    names: Option<Vec<String>>,
}

impl Learned {
    /// The parameters of a loss of `d` dimensions; from a checkpoint, those of its only loss that has such.
    fn read(path: &Path, config: &LossConfig, d: usize) -> Result<Self> {
        let tensors = params::read(path)?;
        let mut of_losses: BTreeMap<String, BTreeMap<String, TensorData>> = BTreeMap::new();
        for (name, data) in &tensors {
            let of_loss = name.strip_prefix("loss.losses.").and_then(|name| name.split_once('.'));
            if let Some((place, name)) = of_loss {
                of_losses.entry(place.to_owned()).or_default().insert(name.to_owned(), data.clone());
            }
        }
        if of_losses.is_empty() {
            let classes = classes_of(&tensors, config, d);
            return Ok(Learned { path: path.into(), tensors, classes, names: None });
        }
        let all: Vec<String> = of_losses.keys().cloned().collect();
        let fits = |tensors: &BTreeMap<String, TensorData>| {
            let shape = LossShape { classes: classes_of(tensors, config, d).unwrap_or(2), dimensions: d };
            let loss = config.init(shape, 1, &Device::flex());
            params::load(loss, tensors.clone()).1.is_empty()
        };
        let mut fitting: Vec<_> = of_losses.iter().filter(|(_, tensors)| fits(tensors)).collect();
        // Where none fits, the first shows what differs.
        fitting.extend(of_losses.first_key_value().filter(|_| fitting.is_empty()));
        let [(_, tensors)] = fitting[..] else {
            let message = format!(
                "several losses of the checkpoint `{}` have such parameters: {} of its losses {}",
                path.display(),
                fitting.iter().map(|(place, _)| place.as_str()).collect::<Vec<_>>().join(", "),
                all.join(", ")
            );
            let hint = "write the tensors of one to a file, `loss.losses.1.weight` for example as `weight`, and give that";
            return Err(Error::new(message, Some(hint)));
        };
        let classes = classes_of(tensors, config, d);
        let names = trained_classes(path).filter(|names| Some(names.len()) == classes);
        Ok(Learned { path: path.into(), tensors: tensors.clone(), classes, names })
    }

    /// The loss with these parameters.
    fn load(self, loss: AnyLoss) -> Result<AnyLoss> {
        let (loss, mismatch) = params::load(loss, self.tensors);
        if mismatch.is_empty() {
            return Ok(loss);
        }
        let hint = "`--save-parameters` shows the names and shapes that the loss wants";
        Err(Error::new(
            format!("the parameters in `{}` are not those of this loss: {mismatch}", self.path.display()),
            Some(hint),
        ))
    }
}

/// The number of classes for which a loss has tensors of these shapes; `None` if none has a side that depends on it.
fn classes_of(tensors: &BTreeMap<String, TensorData>, config: &LossConfig, d: usize) -> Option<usize> {
    let of = |classes| {
        let shape = LossShape { classes, dimensions: d };
        params::collect(&config.init(shape, 1, &Device::flex()))
    };
    let (two, three) = (of(2), of(3));
    two.iter().find_map(|(name, of_two)| {
        let sides =
            of_two.shape().iter().zip(three[name].shape().iter()).zip(tensors.get(name)?.shape().iter());
        let solve = |((&two, &three), &side): ((&usize, &usize), &usize)| {
            let each = three.checked_sub(two).filter(|&each| each > 0)?;
            let fixed = two.checked_sub(2 * each)?;
            Some(side.checked_sub(fixed)? / each)
        };
        sides.into_iter().find_map(solve)
    })
}

/// The classes of the run that has a checkpoint, in the order of its numbers; `None` without a run directory around it.
fn trained_classes(checkpoint: &Path) -> Option<Vec<String>> {
    let run = RunDirectory::open(checkpoint.parent()?.parent()?).ok()?;
    let list = DataRecord::parse(&files::read_regular_to_string(run.images()).ok()?)?;
    let (trained, _) = list.split_off("train");
    let labels = trained.labels();
    let names: BTreeSet<String> = labels.iter().flat_map(|name| parts(name)).map(str::to_owned).collect();
    Some(names.into_iter().collect())
}

/// The numbers of the classes, by their names.
fn number_classes<'a>(names: &'a [String], learned: Option<&Learned>) -> Result<HashMap<&'a str, u32>> {
    let distinct: BTreeSet<&str> = names.iter().flat_map(|name| parts(name)).collect();
    let numbered = || distinct.iter().copied().zip(0..).collect();
    let Some((learned, classes)) = learned.and_then(|learned| Some((learned, learned.classes?))) else {
        let integers = integers(&distinct, distinct.len());
        return Ok(integers.unwrap_or_else(numbered));
    };
    if let Some(known) = &learned.names {
        let place = |name: &&'a str| {
            let place = known.binary_search_by(|known| known.as_str().cmp(name)).ok()?;
            Some((*name, u32::try_from(place).ok()?))
        };
        if let Some(numbers) = distinct.iter().map(place).collect() {
            return Ok(numbers);
        }
    }
    if let Some(numbers) = integers(&distinct, classes) {
        return Ok(numbers);
    }
    if distinct.len() == classes && learned.names.is_none() {
        return Ok(numbered());
    }
    let path = learned.path.display();
    let (message, hint) = match &learned.names {
        Some(known) => {
            let is_unknown = |name: &&&str| !known.iter().any(|known| known == **name);
            let unknown = distinct.iter().find(is_unknown).unwrap_or(&"");
            (
                format!(
                    "`{unknown}` is no class of the run of `{path}`, which was trained on {classes} classes"
                ),
                format!("labels are the names of its classes, or their numbers from 0 to {}", classes - 1),
            )
        }
        None => (
            format!("`{path}` has parameters of {classes} classes, and the labels have {}", distinct.len()),
            format!(
                "give labels from 0 to {}, the rows of the parameters, or names of all classes",
                classes - 1
            ),
        ),
    };
    Err(Error::new(message, Some(&hint)))
}

/// The labels as integers below `classes`, if all are.
fn integers<'a>(labels: &BTreeSet<&'a str>, classes: usize) -> Option<HashMap<&'a str, u32>> {
    let number = |label: &&'a str| {
        let number: u32 = label.parse().ok()?;
        ((number as usize) < classes && number.to_string() == *label).then_some((*label, number))
    };
    labels.iter().map(number).collect()
}

/// The labels of a set; a label that is no set is taken as it is.
fn parts(name: &str) -> impl Iterator<Item = &str> {
    let is_set = name.contains(labels::SEPARATOR);
    let whole = (!is_set).then_some(name);
    whole.into_iter().chain(is_set.then(|| labels::split(name)).into_iter().flatten())
}
