//! `gallerist embed`.

use std::process::ExitCode;

use serde::Serialize;

use crate::EmbedOptions;
use crate::cli::args::Embed;
use crate::cli::failure::CommandResult;
use crate::cli::next::Done;
use crate::cli::output::{check_embeddings_file, save_embeddings};
use crate::cli::printer;
use crate::cli::terminal::Terminal;
use crate::retrieval::search::Metric;

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

pub(super) fn run(args: Embed) -> CommandResult {
    check_embeddings_file(&args.out, args.precision)?;
    let options = EmbedOptions {
        checkpoint: args.model.checkpoint,
        images: args.part.options(),
        device: args.device.device,
        source: args.source,
        cache: args.cache,
        strict: args.strict,
        normalize: args.rows.normalize(),
        heads: args.head,
        combine: args.combine,
    };
    let embedded = crate::embed(&args.model.run, &args.images, &options, &mut Terminal::default())?;
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
    if metric != Metric::Cosine && args.out.extension().is_some_and(|extension| extension == "npy") {
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
