//! `gallerist loss`.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::ExitCode;

use crate::device::DeviceChoice;
use crate::loss::{CrossBatchRows, Labels, LossConfig, LossShape, Progress, Queries, preset};
use crate::miner::MinerConfig;
use crate::pairwise::l2_normalize;
use crate::params;
use crate::retrieval::file::npy;
use crate::retrieval::{EmbeddingSet, Matrix, labels};
use crate::train::config::loss_from_settings;
use burn::tensor::{DType, Device, Tensor, TensorData};
use serde::Serialize;

use crate::cli::args::Loss;
use crate::cli::failure::{CommandResult, Failure};
use crate::cli::output::check_output;
use crate::cli::printer::{self, Table};
use crate::tasks::labels_of;

/// What `--json` prints.
#[derive(Serialize)]
struct Summary {
    loss: String,
    parameters: LossConfig,
    value: f64,
    samples: usize,
    memory: usize,
    dimensions: usize,
    queries_without_positive: usize,
    positive_share: f32,
    negative_share: f32,
    dead_share: f32,
    queries: Vec<Query>,
}

#[derive(Serialize)]
struct Query {
    loss: f32,
    positives: u32,
    negatives: u32,
    mined_positives: u32,
    mined_negatives: u32,
}

pub(super) fn run(args: Loss) -> CommandResult {
    if args.list {
        printer::out(&list())?;
        return Ok(ExitCode::SUCCESS);
    }
    let config = loss_from_settings(args.loss.as_deref(), args.preset.as_deref(), &settings(&args))?;
    for out in [&args.gradient, &args.save_parameters].into_iter().flatten() {
        check_output(out)?;
    }
    let (summary, note) = compute(&args, config)?;
    if summary.samples > 0 && summary.queries_without_positive == summary.samples {
        printer::warning(&"no sample has a positive: every label occurs once");
    }
    if let Some(note) = note {
        printer::warning(&note);
    }
    match args.json {
        true => printer::json(&summary)?,
        false => printer::out(&table(&summary))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Computes the loss of the files and writes the gradient and the parameters. Also returns the note of the loss.
fn compute(args: &Loss, config: LossConfig) -> Result<(Summary, Option<&'static str>), Failure> {
    let file = args.embeddings.as_ref().expect("clap requires it");
    let Rows { values, shape: [n, d], dtype, labels: mut names } =
        read(file, args.labels.as_deref(), "--labels")?;
    let memory = match &args.memory {
        Some(file) => {
            config.require_memory()?;
            Some(read_memory(file, args.memory_labels.as_deref(), d)?)
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

    let device = device_for(args.device, dtype)?;
    let mut loss = config.init(LossShape { classes, dimensions: d }, args.seed, &device);
    if let Some(path) = &args.parameters {
        loss = with_parameters(loss, path)?;
    }
    if let Some(path) = &args.save_parameters {
        params::write(path, &params::collect(&loss))?;
    }
    let tensor = |values, n| Tensor::<2>::from_data(TensorData::new(values, [n, d]), (&device, dtype));
    let prepared = |rows| if args.normalize { l2_normalize(rows) } else { rows };
    let x = tensor(values, n).require_grad();
    let memory = memory.map(|memory| CrossBatchRows {
        embeddings: prepared(tensor(memory.values, memory.shape[0])),
        labels: of_memory,
    });
    let progress = Progress { step: args.step, steps: args.step.max(1) };
    let output = loss.forward_against(prepared(x.clone()), target, memory, progress);
    let value = host(output.value.clone().into_data())[0];
    if let Some(path) = &args.gradient {
        write_gradient(path, x.grad(&output.value.backward()), [n, d], dtype)?;
    }
    let memory = names.len() - n;
    Ok((summarize(config, value, &output.queries, [n, d], memory), output.queries.note))
}

fn host(data: TensorData) -> Vec<f64> {
    data.convert::<f64>().try_into_vec::<f64>().expect("converted to f64")
}

/// Writes the gradient in the dtype of the embeddings; zeros if the loss does not depend on them.
fn write_gradient(
    path: &Path,
    gradient: Option<Tensor<2>>,
    [n, d]: [usize; 2],
    dtype: DType,
) -> Result<(), Failure> {
    let gradient = gradient.map_or(vec![0.0; n * d], |gradient| host(gradient.into_data()));
    match dtype {
        DType::F64 => npy::write_f64(path, &[n, d], &gradient)?,
        _ => npy::write_f32(path, &Matrix::new(n, d, gradient.iter().map(|&g| g as f32).collect())?)?,
    }
    Ok(())
}

fn summarize(
    config: LossConfig,
    value: f64,
    queries: &Queries,
    [n, d]: [usize; 2],
    memory: usize,
) -> Summary {
    Summary {
        loss: config.name().into(),
        parameters: config,
        value,
        samples: n,
        memory,
        dimensions: d,
        queries_without_positive: queries.positives.iter().filter(|&&count| count == 0).count(),
        positive_share: queries.positive_share(),
        negative_share: queries.negative_share(),
        dead_share: queries.dead_share(),
        queries: (0..queries.loss.len())
            .map(|i| Query {
                loss: queries.loss[i],
                positives: queries.positives[i],
                negatives: queries.negatives[i],
                mined_positives: queries.mined_positives[i],
                mined_negatives: queries.mined_negatives[i],
            })
            .collect(),
    }
}

/// The requested device, if it supports the dtype.
fn device_for(choice: DeviceChoice, dtype: DType) -> Result<Device, Failure> {
    let opened = choice.open()?;
    let device = opened.device().clone();
    if !device.supports_dtype(dtype) {
        return Err(Failure::new(
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
fn read(file: &Path, labels: Option<&Path>, option: &str) -> Result<Rows, Failure> {
    let name = file.display().to_string();
    let (values, [n, d], dtype, of_file) = if file.extension().is_some_and(|e| e == "npy") {
        let array = npy::read_f64(file)?;
        let [n, d] = array.shape[..] else {
            let message =
                format!("`{name}` has {} dimensions; embeddings have 2 (rows x values)", array.shape.len());
            return Err(Failure::new(message, None));
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
        return Err(Failure::new(message, Some("rows are counted from 0")));
    }
    let labels = labels_of(labels, of_file, "a loss", &name, option)?;
    if labels.len() != n {
        return Err(Failure::new(
            format!("`{name}` has {n} rows, and there are {} labels", labels.len()),
            Some("one label a row is needed"),
        ));
    }
    Ok(Rows { values, shape: [n, d], dtype, labels })
}

/// A cross-batch memory for embeddings of `d` dimensions.
fn read_memory(file: &Path, labels: Option<&Path>, d: usize) -> Result<Rows, Failure> {
    let memory = read(file, labels, "--memory-labels")?;
    if memory.shape[1] != d {
        return Err(Failure::new(
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

/// The settings of the loss, including those of the miner.
fn settings(args: &Loss) -> Vec<String> {
    let miner = args.miner.iter().map(|name| format!("miner.name={name}"));
    let of_miner = args.miner_set.iter().map(|setting| format!("miner.{setting}"));
    args.set.iter().cloned().chain(miner).chain(of_miner).collect()
}

/// The loss with the parameters of a file; for a checkpoint, those of its loss.
fn with_parameters(loss: crate::loss::AnyLoss, path: &Path) -> Result<crate::loss::AnyLoss, Failure> {
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
    Err(Failure::new(
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

fn table(summary: &Summary) -> String {
    let mean = |of: &dyn Fn(&Query) -> u32| {
        summary.queries.iter().map(|q| f64::from(of(q))).sum::<f64>() / summary.queries.len().max(1) as f64
    };
    let mut table = Table::new(&["", summary.loss.as_str()], &[false, true]);
    for (name, value) in [
        ("value", format!("{:.6}", summary.value)),
        ("samples x dimensions", format!("{} x {}", summary.samples, summary.dimensions)),
        (
            "positives per query, mined of all",
            format!("{:.2} of {:.2}", mean(&|q| q.mined_positives), mean(&|q| q.positives)),
        ),
        (
            "negatives per query, mined of all",
            format!("{:.2} of {:.2}", mean(&|q| q.mined_negatives), mean(&|q| q.negatives)),
        ),
        ("queries without a positive", printer::grouped(summary.queries_without_positive)),
        ("share of dead terms", format!("{:.4}", summary.dead_share)),
    ] {
        table.row(vec![name.into(), value]);
    }
    if summary.memory > 0 {
        table.row(vec!["rows of the memory".into(), printer::grouped(summary.memory)]);
    }
    table.to_string()
}

/// A name and its parameters.
fn entry(name: &str, parameters: &[String]) -> String {
    let parameters = if parameters.is_empty() { "no parameters".into() } else { parameters.join(", ") };
    format!("  {name}\n      {parameters}\n")
}

/// Losses and miners with their parameters and defaults, and the presets.
fn list() -> String {
    let mut text = String::from("losses, with their parameters at their defaults\n\n");
    for name in LossConfig::names() {
        let config = loss_from_settings(Some(name), None, &[]);
        let Ok(config) = config else { continue };
        text += &entry(name, &config.parameters());
        for (key, default) in config.derived_parameters() {
            text += &format!("      {key}: {default} unless given\n");
        }
    }
    text += &format!("\nminers (--miner), for {}\n\n", LossConfig::with_miner().join(", "));
    for miner in MinerConfig::all_defaults() {
        text += &entry(miner.name(), &miner.parameters());
    }
    text += "\npresets\n\n";
    for preset in preset::PRESETS {
        text += &format!(
            "  {}\n      {}\n      {}\n",
            preset.name,
            preset.keys.replace('\n', ", "),
            preset.source
        );
    }
    text
}
