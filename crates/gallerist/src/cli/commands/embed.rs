//! `gallerist embed`.

use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use crate::cli::args::Embed;
use crate::cli::failure::{CommandResult, Failure};
use crate::cli::next::{Done, quoted};
use crate::cli::output::{check_embeddings_file, has_extension, save_embeddings};
use crate::cli::printer;
use crate::cli::terminal::Terminal;
use crate::file::{check_not_input, is_same_file};
use crate::retrieval::EmbeddingSet;
use crate::retrieval::search::Metric;
use crate::retrieval::shards::Shard;
use crate::train::RunDirectory;
use crate::{EmbedOptions, ShardOptions};

/// What `--json` prints.
#[derive(Serialize)]
struct Summary {
    file: String,
    images: usize,
    dimensions: usize,
    broken: Vec<String>,
    labels: bool,
    model: Option<String>,
    metric: Metric,
}

/// What `--json` prints of a shard.
#[derive(Serialize)]
struct ShardSummary {
    shard: String,
    file: Option<String>,
    images: u64,
    dimensions: usize,
    broken: usize,
    was_whole: bool,
    resumed: usize,
    model: String,
    metric: Metric,
}

pub(super) fn run(args: Embed) -> CommandResult {
    if let (Some(manifest), Some(shard)) = (&args.shards, args.shard) {
        return run_shard(&args, manifest, shard);
    }
    check_embeddings_file(&args.out, args.precision)?;
    check_not_input(&args.out, &args.images)?;
    let embedded = crate::embed(&args.model.run, &args.images, &options(&args), &mut Terminal::default())?;
    warn_of_measured(&args.model.run, &args.out, &embedded.set)?;
    save_embeddings(&embedded.set, &args.out, args.precision)?;
    let metric = embedded.set.metric.unwrap_or_default();
    let summary = Summary {
        file: args.out.display().to_string(),
        images: embedded.set.embeddings.rows(),
        dimensions: embedded.set.embeddings.cols(),
        broken: embedded.broken.iter().map(ToString::to_string).collect(),
        labels: embedded.set.labels.is_some(),
        model: embedded.set.model,
        metric,
    };
    if metric != Metric::Cosine && has_extension(&args.out, "npy") {
        printer::note(&format!(
            "a .npy file does not say how its rows are compared; these are by {metric}: give --metric {} to `evaluate`",
            metric.name()
        ));
    }
    if args.json {
        printer::json(&summary)?;
    } else {
        printer::note(&format!(
            "{} x {} embeddings {}written to {}",
            printer::grouped(summary.images),
            summary.dimensions,
            if summary.labels { "" } else { "without labels " },
            summary.file
        ));
        Done::Embeddings(&args.out).show();
    }
    Ok(ExitCode::from(u8::from(!summary.broken.is_empty())))
}

/// Warns if embeddings of other images replace those on which the run was measured.
fn warn_of_measured(run: &Path, out: &Path, set: &EmbeddingSet) -> Result<(), Failure> {
    let run = RunDirectory::open(run)?;
    let own = [run.embeddings(), run.query(), run.gallery()];
    let is_measured = run.metrics().exists() && own.iter().any(|file| is_same_file(file, out));
    if is_measured && EmbeddingSet::load(out).is_ok_and(|before| before.paths != set.paths) {
        printer::warning(&format!(
            "`{}` has the embeddings of the images that the run was measured on. Those of other images replace them, and figures and \
             reports of the run will show these images (to get the others back, remove `{}` and give `gallerist train --resume {}`)",
            out.display(),
            run.report().display(),
            quoted(&run.path().to_string_lossy())
        ));
    }
    Ok(())
}

fn options(args: &Embed) -> EmbedOptions {
    EmbedOptions {
        checkpoint: args.model.checkpoint,
        images: args.part.options(),
        device: args.compute.device.device,
        products: args.compute.products,
        source: args.source.clone(),
        cache: args.cache.clone(),
        strict: args.strict,
        normalize: args.rows.normalize(),
        heads: args.head.clone(),
        combine: args.combine,
    }
}

/// Embeds a shard. Images that cannot be read do not change the exit code: a scheduler would start the shard again.
fn run_shard(args: &Embed, manifest: &Path, shard: Shard) -> CommandResult {
    let options = ShardOptions {
        embed: options(args),
        format: args.format,
        precision: args.precision.0,
        part_images: args.part_images.get(),
    };
    let embedded =
        crate::embed_shard(&args.model.run, manifest, shard, &args.out, &options, &mut Terminal::default())?;
    let record = embedded.record;
    let file = record.file.as_ref().map(|file| args.out.join(&file.name).display().to_string());
    if args.json {
        printer::json(&ShardSummary {
            shard: shard.to_string(),
            file,
            images: record.rows,
            dimensions: record.dimensions,
            broken: record.broken.len(),
            was_whole: embedded.was_whole,
            resumed: embedded.resumed,
            model: record.origin.model,
            metric: record.origin.metric,
        })?;
        return Ok(ExitCode::SUCCESS);
    }
    let state = if embedded.was_whole { "is whole already" } else { "is written" };
    printer::note(&match file {
        Some(file) => format!(
            "shard {shard} {state}: {} x {} embeddings in {file}",
            printer::grouped(record.rows as usize),
            record.dimensions
        ),
        None => format!("shard {shard} {state}: it has no embeddings"),
    });
    Ok(ExitCode::SUCCESS)
}
