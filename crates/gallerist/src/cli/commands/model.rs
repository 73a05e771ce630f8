//! `gallerist model`.

use std::path::Path;
use std::process::ExitCode;

use crate::CalibrateOptions;
use crate::network::OnnxConfig;
use crate::onnx::{Inspection, Port};
use crate::onnx_model;
use crate::train::RunConfig;
use crate::weights::Preprocessing;
use serde::Serialize;

use crate::cli::args::{self, ModelCommand};
use crate::cli::failure::{CommandResult, Failure};
use crate::cli::next::Done;
use crate::cli::printer::{self, Table, grouped};
use crate::cli::terminal::Terminal;

pub(super) fn run(args: args::Model) -> CommandResult {
    match args.command {
        ModelCommand::Inspect(args) => inspect(&args),
        ModelCommand::Import(args) => import(&args),
        ModelCommand::Calibrate(args) => calibrate(&args),
    }
}

fn failure(error: &crate::onnx::Error) -> Failure {
    Failure::new(error.to_string(), error.hint().as_deref())
}

fn inspect(args: &args::ModelInspect) -> CommandResult {
    let inspection = Inspection::of_file(&args.file, args.engine).map_err(|error| failure(&error))?;
    match args.json {
        true => printer::json(&inspection)?,
        false => printer::out(&described(&inspection))?,
    }
    if inspection.missing.is_empty() {
        return match Inspection::check(&args.file, args.engine) {
            Ok(()) => {
                Done::Model(&args.file).show();
                Ok(ExitCode::SUCCESS)
            }
            Err(error) => {
                printer::note(&format!("the engine {} does not open it: {error}", args.engine.name()));
                Ok(ExitCode::from(1))
            }
        };
    }
    let names: Vec<String> = inspection.missing.iter().map(ToString::to_string).collect();
    printer::note(&format!("not supported: {}", names.join(", ")));
    Ok(ExitCode::from(1))
}

fn described(inspection: &Inspection) -> String {
    let mut table = Table::new(&["", "name", "shape", "type"], &[false; 4]);
    let mut rows = |kind: &str, ports: &[Port]| {
        for port in ports {
            table.row(vec![kind.into(), port.name.clone(), port.shape.join(" x "), port.dtype.clone()]);
        }
    };
    rows("input", &inspection.inputs);
    rows("output", &inspection.outputs);
    let mut text = table.to_string();
    text += &format!(
        "{} parameters, {} bytes\n",
        grouped(inspection.parameters as usize),
        grouped(inspection.bytes as usize)
    );
    if !inspection.external_files.is_empty() {
        let names: Vec<&str> = inspection.external_files.iter().map(String::as_str).collect();
        text += &format!("weights in: {}\n", names.join(", "));
    }
    let opsets: Vec<String> =
        inspection.opsets.iter().map(|(name, version)| format!("{name} {version}")).collect();
    let producer = inspection.producer.as_deref().unwrap_or("unknown");
    text += &format!("written by: {producer}, operator sets {}\n", opsets.join(", "));
    let operators: Vec<String> =
        inspection.operators.iter().map(|(name, uses)| format!("{name} ({uses} x)")).collect();
    text += &format!("operators: {}\n", operators.join(", "));
    text
}

/// The run directory of a model, in a summary.
#[derive(Serialize)]
struct Imported<'a> {
    run: &'a Path,
    features: usize,
    image: String,
    sha256: &'a str,
}

fn import(args: &args::ModelImport) -> CommandResult {
    let engine = args.engine.map(|engine| format!("network.engine={}", engine.name()));
    let settings: Vec<String> =
        onnx_model::settings(&args.file).into_iter().chain(engine).chain(args.set.iter().cloned()).collect();
    let config = match &args.config {
        Some(path) => RunConfig::load(path, &settings)?,
        None => RunConfig::complete("", "the settings", Path::new(""), &settings)?,
    };
    let model = crate::model::Model::untrained(&config)?;
    model.save_run(&args.out)?;
    let Some(network) = config.network.architecture.downcast_ref::<OnnxConfig>() else {
        return Err(Failure::new("`network.kind` must stay `onnx`".to_owned(), None));
    };
    let image = Preprocessing::from(&config.image).to_string();
    if args.json {
        printer::json(&Imported {
            run: &args.out,
            features: network.features,
            image,
            sha256: &network.sha256,
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    printer::note(&format!("{} features of images: {image}", network.features));
    if onnx_model::is_unprepared(&config.image) {
        printer::note(
            &"warning: nothing tells how images are prepared for this model; set image.mean and image.std",
        );
    }
    printer::note(&format!("model: {}", args.out.display()));
    Done::Network(&args.out).show();
    Ok(ExitCode::SUCCESS)
}

fn calibrate(args: &args::ModelCalibrate) -> CommandResult {
    let options = CalibrateOptions {
        checkpoint: args.model.checkpoint,
        images: args.part.options(),
        count: args.count.get(),
    };
    let calibrated = crate::calibrate(&args.model.run, &args.images, &options, &mut Terminal::default())?;
    if args.json {
        printer::json(&calibrated)?;
    } else {
        printer::note(&format!(
            "ranges of {} images written to {}",
            grouped(calibrated.images),
            calibrated.file.display()
        ));
        printer::note(&format!(
            "int8 against f32 on these images: cosine distance {:.4} on average, {:.4} at most",
            calibrated.mean_distance, calibrated.largest_distance
        ));
        Done::Calibrated(&args.model.run, &args.images).show();
    }
    Ok(ExitCode::from(u8::from(!calibrated.broken.is_empty())))
}
