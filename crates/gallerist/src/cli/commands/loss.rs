//! `gallerist loss`.

use std::process::ExitCode;

use serde::Serialize;

use crate::cli::args::Loss;
use crate::cli::failure::{CommandResult, Failure};
use crate::cli::next::Done;
use crate::cli::output::check_output;
use crate::cli::printer::{self, Table};
use crate::file::check_not_input;
use crate::loss::{LossConfig, preset};
use crate::miner::MinerConfig;
use crate::params;
use crate::retrieval::Matrix;
use crate::retrieval::file::npy;
use crate::train::config::loss_from_settings;
use crate::{ComputedLoss, Error, LossOptions};

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
        Done::LossesListed.show();
        return Ok(ExitCode::SUCCESS);
    }
    let config = loss_from_settings(args.loss.as_deref(), args.preset.as_deref(), &settings(&args))?;
    for out in [&args.gradient, &args.save_parameters].into_iter().flatten() {
        check_output(out)?;
        check_not_input(out, [&args.embeddings, &args.labels, &args.memory].into_iter().flatten())?;
    }
    let json = args.json;
    let (summary, note) = compute(args, config)?;
    if summary.samples > 0 && summary.queries_without_positive == summary.samples {
        printer::warning(&"no sample has a positive: every label occurs once");
    }
    if let Some(note) = note {
        printer::warning(&note);
    }
    match json {
        true => printer::json(&summary)?,
        false => printer::out(&table(&summary))?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Computes the loss and writes the files of the options. Also returns the note of the loss.
fn compute(args: Loss, config: LossConfig) -> Result<(Summary, Option<&'static str>), Failure> {
    let options = LossOptions {
        labels: args.labels,
        memory: args.memory,
        memory_labels: args.memory_labels,
        normalize: args.normalize,
        gradient: args.gradient.is_some(),
        parameters: args.parameters,
        step: args.step,
        steps: args.steps,
        seed: args.seed,
        device: args.device,
    };
    let file = args.embeddings.expect("clap requires it");
    let computed = crate::compute_loss(&file, &config, &options)?;
    if let Some(path) = &args.save_parameters {
        let learned = params::collect(&computed.loss);
        if learned.is_empty() {
            let message = format!("the loss `{}` has no learned parameters to write", config.name());
            return Err(Error::new(message, Some("leave out --save-parameters")).into());
        }
        params::write(path, &learned)?;
    }
    if let (Some(path), Some(gradient)) = (&args.gradient, &computed.gradient) {
        let [n, d] = [computed.samples, computed.dimensions];
        match computed.wide {
            true => npy::write_f64(path, &[n, d], gradient)?,
            false => npy::write_f32(path, &Matrix::new(n, d, gradient.iter().map(|&g| g as f32).collect())?)?,
        }
    }
    Ok((summarize(config, &computed), computed.queries.note))
}

fn summarize(config: LossConfig, computed: &ComputedLoss) -> Summary {
    let queries = &computed.queries;
    Summary {
        loss: config.name().into(),
        parameters: config,
        value: computed.value,
        samples: computed.samples,
        memory: computed.memory,
        dimensions: computed.dimensions,
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

/// The settings of the loss, including those of the miner.
fn settings(args: &Loss) -> Vec<String> {
    let miner = args.miner.iter().map(|name| format!("miner.name={name}"));
    let of_miner = args.miner_set.iter().map(|setting| format!("miner.{setting}"));
    args.set.iter().cloned().chain(miner).chain(of_miner).collect()
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
