//! `gallerist weights`.

use std::path::Path;
use std::process::ExitCode;

use crate::data::Transform;
use crate::model::Model;
use crate::train::{CheckpointKind, RunConfig, RunDirectory};
use crate::weights::{self, Fetched, LoadReport, Preprocessing, SOURCES, Source, Weights};
use serde::Serialize;

use crate::cli::args::{self, WeightsCommand};
use crate::cli::failure::{CommandResult, Failure};
use crate::cli::next::Done;
use crate::cli::output::check_output;
use crate::cli::printer::{self, Table, count, grouped};
use crate::cli::progress::{FETCHING, bar};
use crate::file::check_not_input;
use crate::tasks::with_heads;

pub(super) fn run(args: args::Weights) -> CommandResult {
    match args.command {
        WeightsCommand::List(args) => list(args),
        WeightsCommand::Fetch(args) => fetch(args),
        WeightsCommand::Inspect(args) => inspect(args),
        WeightsCommand::Import(args) => import(args),
        WeightsCommand::Export(args) => export(args),
    }
}

#[derive(Serialize)]
struct Listed {
    name: &'static str,
    url: &'static str,
    sha256: &'static str,
    network: &'static str,
    about: String,
}

fn list(args: args::WeightsList) -> CommandResult {
    if args.json {
        let entry = |source: &Source| {
            let Source { name, url, sha256, network, .. } = *source;
            Listed { name, url, sha256, network, about: about(source) }
        };
        printer::json(&SOURCES.iter().map(entry).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut text = String::new();
    for source in SOURCES {
        text += &format!(
            "{}\n    {}\n    SHA-256 {}\n    [network] {}\n    {}\n",
            source.name,
            source.url,
            source.sha256,
            source.network,
            about(source)
        );
    }
    printer::out(&text)?;
    Done::WeightsListed.show();
    Ok(ExitCode::SUCCESS)
}

/// `ImageNet-1k; RGB 224, mean …`.
fn about(source: &Source) -> String {
    format!("{}; {}", source.about, Preprocessing::from(source.images))
}

/// The settings of a run file for these weights.
fn with_weights(set: &[String], file: &Path) -> Vec<String> {
    let file = toml::Value::from(file.to_string_lossy().into_owned());
    set.iter().cloned().chain([format!("network.weights={file}")]).collect()
}

fn fetch(args: args::WeightsFetch) -> CommandResult {
    let (url, sha256) = match (Source::find(&args.source), &args.sha256) {
        (Some(source), None) => (source.url, source.sha256),
        (Some(source), Some(sha256)) => (source.url, sha256.as_str()),
        (None, Some(sha256)) if args.source.contains("://") => (args.source.as_str(), sha256.as_str()),
        (None, None) if args.source.contains("://") => {
            let hint = "give it with --sha256; without it nobody knows what came";
            return Err(Failure::new(format!("the SHA-256 of {} is needed", args.source), Some(hint)));
        }
        (None, _) => {
            let names: Vec<&str> = SOURCES.iter().map(|source| source.name).collect();
            let hint = match crate::train::nearest(&args.source, &names) {
                Some(name) => format!("did you mean `{name}`?"),
                None => "`gallerist weights list` shows the names; or give an address and --sha256".into(),
            };
            return Err(Failure::new(format!("no weights are known as `{}`", args.source), Some(&hint)));
        }
    };
    let bar = bar(0, FETCHING);
    let fetched = weights::fetch(url, sha256, &args.out, &mut |done, all| {
        bar.set_length(all.unwrap_or(done));
        bar.set_position(done);
    });
    bar.finish_and_clear();
    let Fetched { path, bytes, sha256, kept } = fetched?;
    if args.json {
        #[derive(Serialize)]
        struct Summary<'a> {
            file: &'a Path,
            bytes: u64,
            sha256: &'a str,
            kept: u64,
        }
        printer::json(&Summary { file: &path, bytes, sha256: &sha256, kept })?;
    } else {
        let state = if kept == bytes { "is there already" } else { "fetched" };
        printer::note(&format!(
            "{} {state}, {} bytes, SHA-256 {sha256}",
            path.display(),
            grouped(bytes as usize)
        ));
        Done::Weights(&path).show();
    }
    Ok(ExitCode::SUCCESS)
}

/// A tensor as text.
#[derive(Serialize)]
struct Tensor<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    kind: &'a str,
    shape: Vec<usize>,
}

/// How the tensors of a file were used, as text.
#[derive(Serialize)]
struct Taken<'a> {
    loaded: &'a [(String, String)],
    folded: &'a [String],
    missing: &'a [(String, Vec<usize>)],
    refused: &'a [(String, Vec<usize>, &'static str)],
    #[serde(skip_serializing_if = "Option::is_none")]
    interpolated: Option<[[usize; 2]; 2]>,
}

impl<'a> From<&'a LoadReport> for Taken<'a> {
    fn from(report: &'a LoadReport) -> Self {
        let LoadReport { loaded, missing, refused, folded, interpolated } = report;
        Taken { loaded, missing, refused, folded, interpolated: *interpolated }
    }
}

fn inspect(args: args::WeightsInspect) -> CommandResult {
    let file = weights::read(&args.file)?;
    if let Some(config) = &args.config {
        let (_, report) =
            Model::from_weights(&RunConfig::load(config, &with_weights(&args.set, &args.file))?, file)?;
        match args.json {
            true => printer::json(&Taken::from(&report))?,
            false => printer::out(&taken(&report))?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let mut tensors: Vec<Tensor<'_>> = file
        .tensors
        .iter()
        .map(|(name, data)| Tensor { name, kind: "float", shape: data.shape().to_vec() })
        .collect();
    tensors.extend(file.others.iter().map(|(name, kind, shape)| Tensor { name, kind, shape: shape.clone() }));
    match args.json {
        true => printer::json(&tensors)?,
        false => printer::out(&format!("{}{}", tensor_table(&file, &tensors), network(&args.file)))?,
    }
    if let Err(error) = weights::check_layout(&args.file) {
        let hint = error.hint().unwrap_or_default();
        printer::warning(&format!("{error}; {hint}"));
    }
    Ok(ExitCode::SUCCESS)
}

fn tensor_table(file: &Weights, tensors: &[Tensor<'_>]) -> String {
    let mut table = Table::new(&["tensor", "shape", "type"], &[false, false, false]);
    for tensor in tensors {
        table.row(vec![tensor.name.into(), shape(&tensor.shape), tensor.kind.into()]);
    }
    let numbers: usize = file.tensors.values().map(|data| data.shape().iter().product::<usize>()).sum();
    format!("{table}{}, {} numbers\n", count(tensors.len(), "tensor"), grouped(numbers))
}

/// The `[network]` of the file, where its tensors or its metadata tell it.
fn network(file: &Path) -> String {
    let Ok(Some(keys)) = weights::network_of(file) else { return String::new() };
    let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    format!("[network] {}\n", keys.join(", "))
}

fn shape(sides: &[usize]) -> String {
    match sides {
        [] => "scalar".into(),
        _ => sides.iter().map(ToString::to_string).collect::<Vec<_>>().join(" x "),
    }
}

fn taken(report: &LoadReport) -> String {
    let mut table = Table::new(&["tensor", "shape", ""], &[false, false, false]);
    for (name, sides) in &report.missing {
        table.row(vec![name.clone(), shape(sides), "new, not in the file".into()]);
    }
    for (name, sides, reason) in &report.refused {
        table.row(vec![name.clone(), shape(sides), format!("not taken: {reason}")]);
    }
    let positions =
        report.interpolated.map_or_else(String::new, |[[rows, columns], [new_rows, new_columns]]| {
            format!(", positions interpolated from {rows} x {columns} to {new_rows} x {new_columns} patches")
        });
    let summary = format!(
        "{} loaded, {} folded into running means, {} new, {} not taken{positions}\n",
        count(report.loaded.len(), "tensor"),
        report.folded.len(),
        report.missing.len(),
        report.refused.len()
    );
    if report.missing.is_empty() && report.refused.is_empty() { summary } else { format!("{table}{summary}") }
}

fn import(args: args::WeightsImport) -> CommandResult {
    let config = RunConfig::load(&args.config, &with_weights(&args.set, &args.file))?;
    let (model, report) = Model::from_weights(&config, weights::read(&args.file)?)?;
    model.save_run(&args.out)?;
    if let Some(warning) = config.warning_of_weights() {
        printer::warning(&warning);
    }
    if let Some(warning) = of_new_layers(&report) {
        printer::warning(&warning);
    }
    match args.json {
        true => printer::json(&Taken::from(&report))?,
        false => {
            printer::note(&report);
            printer::note(&format!("model: {}", args.out.display()));
            Done::Network(&args.out).show();
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The warning that a network which is not trained embeds by layers that the file does not have.
fn of_new_layers(report: &LoadReport) -> Option<String> {
    let (first, _) = report.missing.first()?;
    let head = report.refused.iter().find(|(name, ..)| name == "head.weight");
    let here = report.missing.iter().find(|(name, _)| name == "head.weight");
    let of_file = head.zip(here).and_then(|((_, in_file, _), (_, here))| {
        // `[outputs, inputs]` of PyTorch, `[inputs, outputs]` here and in our own files.
        let ([a, b], [inputs, _]) = (&in_file[..], &here[..]) else { return None };
        Some(if b == inputs { a } else { b })
    });
    let keys = of_file.map_or("network.dimensions = 0 embeds without the last layer".to_owned(), |rows| {
        format!("network.dimensions = {rows} takes the last layer of the file")
    });
    Some(format!("`{first}` has random values, by which the network embeds: train it, or {keys}"))
}

fn export(args: args::WeightsExport) -> CommandResult {
    check_output(&args.out)?;
    let run = RunDirectory::open(&args.model.run)?;
    check_not_input(
        &args.out,
        &[CheckpointKind::Best, CheckpointKind::Last].map(|kind| run.checkpoint(kind)),
    )?;
    let model = Model::open(&args.model.run, args.model.checkpoint)?;
    let model = with_heads(model, &args.head, args.combine)?;
    let model = match args.rows.normalize() {
        Some(normalize) => model.normalized(normalize),
        None => model,
    };
    match args.out.extension().and_then(|extension| extension.to_str()) {
        Some("safetensors") => model.export_safetensors(&args.out)?,
        Some("onnx") => model.export_onnx(&args.out)?,
        _ => {
            let message = format!("`{}` ends neither in .safetensors nor in .onnx", args.out.display());
            return Err(Failure::new(message, Some("the ending says what is written")));
        }
    }
    printer::note(&format!("{} written", args.out.display()));
    let views = Transform::evaluation(&model.config().image)?.views();
    if views > 1 {
        printer::note(&format!(
            "an embedding of this run is the mean of the network's outputs for {views} views of an image \
             (image.view, flip_average, further_views); the exported file computes that of one view"
        ));
    }
    Ok(ExitCode::SUCCESS)
}
