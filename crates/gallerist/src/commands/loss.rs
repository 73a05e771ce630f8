//! `gallerist loss`.

use std::process::ExitCode;

use burn::tensor::{DType, Device, Tensor, TensorData};
use gallerist::loss::{Labels, LossConfig, LossShape, Progress, RankingLoss, preset};
use gallerist::pairwise::l2_normalize;
use gallerist::retrieval::file::npy;
use gallerist::retrieval::{EmbeddingSet, Matrix, labels};
use gallerist::train::config::loss_from_settings;
use serde::Serialize;

use super::{Failure, Outcome, labels_of};
use crate::args::Loss;
use crate::printer::{self, Table};

/// What `--json` prints.
#[derive(Serialize)]
struct Summary {
    loss: String,
    parameters: LossConfig,
    value: f64,
    samples: usize,
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

pub(super) fn run(args: Loss) -> Outcome {
    if args.list {
        printer::out(&list())?;
        return Ok(ExitCode::SUCCESS);
    }
    let config = loss_from_settings(args.loss.as_deref(), args.preset.as_deref(), &args.set)?;
    let file = args.embeddings.expect("clap asks for it");
    let name = file.display().to_string();
    // Files of f64 are computed in f64.
    let (values, [n, d], dtype, of_file) = if file.extension().is_some_and(|e| e == "npy") {
        let array = npy::read_f64(&file)?;
        let [n, d] = array.shape[..] else {
            let message =
                format!("`{name}` has {} dimensions; embeddings have 2 (rows x values)", array.shape.len());
            return Err(Failure::new(message, None));
        };
        let dtype = if array.wide { DType::F64 } else { DType::F32 };
        (array.values, [n, d], dtype, None)
    } else {
        let set = EmbeddingSet::load(&file)?;
        let shape = [set.embeddings.rows(), set.embeddings.cols()];
        let values = set.embeddings.as_slice().iter().map(|&v| f64::from(v)).collect();
        (values, shape, DType::F32, set.labels)
    };
    if let Some(at) = values.iter().position(|v| !v.is_finite()) {
        let message = format!("row {} of `{name}` holds {}, which is no finite number", at / d, values[at]);
        return Err(Failure::new(message, Some("rows are counted from 0")));
    }
    let names = labels_of(args.labels.as_deref(), of_file, "a loss", &name)?;
    if names.len() != n {
        return Err(Failure::new(
            format!("`{name}` has {n} rows, and there are {} labels", names.len()),
            Some("one label a row is needed"),
        ));
    }
    let encoded = labels::encode(&names);
    let sets = label_sets(&names);
    let target = sets.as_ref().map_or(Labels::Classes(&encoded.ids), |sets| Labels::Sets(&sets.ids));
    let classes = sets.as_ref().map_or(encoded.names.len(), |sets| sets.classes);

    let device = Device::flex().autodiff();
    let loss = config.init(LossShape { classes, dimensions: d }, args.seed, &device);
    let x = Tensor::<2>::from_data(TensorData::new(values, [n, d]), (&device, dtype)).require_grad();
    let input = if args.normalize { l2_normalize(x.clone()) } else { x.clone() };
    let output = loss.forward(input, target, Progress { step: args.step, steps: args.step.max(1) });
    let host = |data: TensorData| data.convert::<f64>().try_into_vec::<f64>().expect("converted to f64");
    let value = host(output.value.clone().into_data())[0];
    if let Some(path) = &args.gradient {
        let gradient = x.grad(&output.value.backward()).map_or(vec![0.0; n * d], |g| host(g.into_data()));
        match dtype {
            DType::F64 => npy::write_f64(path, &[n, d], &gradient)?,
            _ => npy::write_f32(path, &Matrix::new(n, d, gradient.iter().map(|&g| g as f32).collect())?)?,
        }
    }
    let queries = output.queries;
    let summary = Summary {
        loss: config.name().into(),
        parameters: config,
        value,
        samples: n,
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
    };
    if n > 0 && summary.queries_without_positive == n {
        printer::warning(&"no sample has a positive: every label occurs once");
    }
    if let Some(note) = queries.note {
        printer::warning(&note);
    }
    match args.json {
        true => printer::json(&summary)?,
        false => printer::out(&table(&summary))?,
    }
    Ok(ExitCode::SUCCESS)
}

struct Sets {
    ids: Vec<Vec<u32>>,
    classes: usize,
}

/// Labels `a|b` as sets; `None` where every sample has one label.
fn label_sets(names: &[String]) -> Option<Sets> {
    names.iter().any(|name| name.contains('|')).then(|| {
        let all: Vec<String> = names.iter().flat_map(|name| name.split('|').map(str::to_string)).collect();
        let encoded = labels::encode(&all);
        let mut ids = encoded.ids.iter().copied();
        let ids = names.iter().map(|name| ids.by_ref().take(name.split('|').count()).collect()).collect();
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
    table.to_string()
}

/// Losses with their parameters and defaults, and the presets.
fn list() -> String {
    let mut text = String::from("losses, with their parameters at their defaults\n\n");
    for name in LossConfig::NAMES {
        let config = loss_from_settings(Some(name), None, &[]).map(|config| config.to_toml());
        let parameters = config.unwrap_or_default();
        let parameters: Vec<&str> = parameters.lines().filter(|line| !line.starts_with("name = ")).collect();
        text += &format!("  {name}\n      {}\n", parameters.join(", "));
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
