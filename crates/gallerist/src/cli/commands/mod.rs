//! One file per command.

mod completions;
mod config;
mod convert;
mod data;
mod embed;
mod evaluate;
mod index;
mod loss;
mod plot;
mod progress;
mod remote;
mod search;
mod serve;
mod train;
mod weights;

use std::path::Path;
use std::process::ExitCode;

use crate::data::ImageSet;
use crate::device::DeviceChoice;
use crate::model::Model;
use crate::network::HeadChoice;
use crate::retrieval::EmbeddingSet;
use crate::train::Which;

use crate::cli::args::{Combine, Command, Precision};
use progress::{bar, working};

/// Why a command could not run.
pub(crate) struct Failure {
    pub(crate) message: String,
    pub(crate) hint: Option<String>,
}

impl Failure {
    pub(crate) fn new(message: impl Into<String>, hint: Option<&str>) -> Self {
        Failure { message: message.into(), hint: hint.map(str::to_string) }
    }
}

macro_rules! failure_from {
    ($($error:ty),*) => {$(
        impl From<$error> for Failure {
            fn from(e: $error) -> Self {
                Failure { hint: e.hint(), message: e.to_string() }
            }
        }
    )*};
}

failure_from!(
    crate::Error,
    crate::TensorError,
    crate::weights::Error,
    crate::data::Error,
    crate::report::ReportError,
    crate::retrieval::Error,
    crate::serve::Error
);

impl From<std::io::Error> for Failure {
    fn from(e: std::io::Error) -> Self {
        Failure { message: format!("cannot write to standard output: {e}"), hint: None }
    }
}

pub(crate) type Outcome = Result<ExitCode, Failure>;

pub(crate) fn run(command: Command) -> Outcome {
    match command {
        Command::Train(args) => train::run(args),
        Command::Embed(args) => embed::run(args),
        Command::Convert(args) => convert::run(args),
        Command::Evaluate(args) => evaluate::run(*args),
        Command::Search(args) => search::run(args),
        Command::Index(args) => index::run(args.command),
        Command::Plot(args) => plot::run(args.kind),
        Command::Serve(args) => serve::run(args),
        Command::Loss(args) => loss::run(args),
        Command::Data(args) => data::run(args),
        Command::Weights(args) => weights::run(args),
        Command::Config(args) => config::run(args),
        Command::Completions(args) => completions::run(args),
    }
}

/// Refuses, before the work, what an output file cannot replace: a device, a pipe, a link.
fn check_output(out: &Path) -> Result<(), Failure> {
    Ok(crate::retrieval::prepare_to_write(out)?)
}

/// Refuses a name that embeddings of this precision cannot be written to.
fn check_embeddings_file(out: &Path, precision: Precision) -> Result<(), Failure> {
    check_output(out)?;
    let extension = out.extension().and_then(|extension| extension.to_str());
    match (extension, precision) {
        (Some("safetensors"), _) | (Some("npy"), Precision::F32) => Ok(()),
        (Some("npy"), _) => Err(Failure::new(
            format!("cannot write embeddings to `{}`\n  a .npy file holds f32 only", out.display()),
            Some("give --out FILE.safetensors, or leave out --precision"),
        )),
        _ => Err(Failure::new(
            format!(
                "cannot write embeddings to `{}`\n  its name ends in neither .safetensors nor .npy",
                out.display()
            ),
            Some("give --out FILE.safetensors (with labels and paths) or --out FILE.npy"),
        )),
    }
}

fn save_embeddings(set: &EmbeddingSet, out: &Path, precision: Precision) -> Result<(), Failure> {
    match precision.code() {
        None => Ok(set.save(out)?),
        Some(code) => Ok(set.save_compact(out, code)?),
    }
}

const EMBEDDING: &str = "{msg} {wide_bar} {pos}/{len} images, {eta} left";

/// Embeds with a progress bar, and says on stderr which images could not be read.
fn embed_with_bar(model: &Model, set: ImageSet, what: &str) -> Result<crate::model::Embedded, Failure> {
    report_notes(&set);
    let bar = bar(set.len(), EMBEDDING);
    bar.set_message(what.to_string());
    let embedded = model.embed(set, 0, &mut |done, _| bar.set_position(done as u64))?;
    bar.finish_and_clear();
    report_broken(&embedded.broken);
    if let Some(problem) = &embedded.cache_problem {
        crate::cli::printer::warning(&format!("{problem}; further images are not kept there"));
    }
    Ok(embedded)
}

/// Says on stderr what is to be known of a set, such as counts that differ from the published ones.
fn report_notes(set: &ImageSet) {
    for note in set.notes() {
        crate::cli::printer::warning(note);
    }
}

/// Names the first broken images on stderr.
fn report_broken(broken: &[crate::data::Broken]) {
    const SHOWN: usize = 5;
    for one in broken.iter().take(SHOWN) {
        crate::cli::printer::warning(&format!("{one}; it is left out"));
    }
    if broken.len() > SHOWN {
        crate::cli::printer::warning(&format!(
            "{} in all could not be read and are left out",
            crate::cli::printer::count(broken.len(), "image")
        ));
    }
}

/// The number of compute threads for the rest of the program; 0: one per core.
fn set_threads(threads: usize) {
    // Fails only where a pool exists already, and no command calls this twice.
    let _ = rayon::ThreadPoolBuilder::new().num_threads(threads).build_global();
}

/// A label for each row: from `option`'s file, or from the embeddings' own.
fn labels_of(
    given: Option<&Path>,
    of_file: Option<Vec<String>>,
    purpose: &str,
    file: &str,
    option: &str,
) -> Result<Vec<String>, Failure> {
    match given {
        Some(labels) => Ok(crate::retrieval::file::load_labels(labels)?),
        None => of_file.ok_or_else(|| {
            Failure::new(
                format!("{purpose} needs a label for each row, and `{file}` has none"),
                Some(&format!("give {option} FILE: .npy of integers, or text with one label a line")),
            )
        }),
    }
}

/// The run directory and checkpoint as the user would write them.
fn model_of(run: &Path, which: Which) -> Result<Model, Failure> {
    Ok(Model::open(run, which)?)
}

/// The model with the folder for decoded images asked for, if one was.
fn with_cache(model: Model, folder: Option<&Path>) -> Result<Model, Failure> {
    Ok(if folder.is_some() { model.with_cache(folder)? } else { model })
}

/// The model on the device asked for, which is named on stderr unless it is the processor.
fn on_device(model: Model, device: DeviceChoice) -> Result<Model, Failure> {
    let device = device.open()?;
    if !device.is_cpu() {
        crate::cli::printer::note(&format!("device: {device}"));
    }
    Ok(model.on(device.device()))
}

/// The model with the heads asked for on the command line, if any were.
fn with_heads(model: Model, heads: Vec<String>, combine: Option<Combine>) -> Result<Model, Failure> {
    if heads.is_empty() && combine.is_none() {
        return Ok(model);
    }
    let usual = model.config().evaluation.head_choice();
    let heads = if heads.is_empty() { usual.heads } else { heads };
    Ok(model.with_heads(HeadChoice { heads, combine: combine.map_or(usual.combine, Into::into) })?)
}
