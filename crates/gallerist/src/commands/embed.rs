//! `gallerist embed`.

use std::process::ExitCode;

use gallerist::data::{ImageSet, OpenOptions};
use serde::Serialize;

use super::{Failure, Outcome, embed_with_bar, model_of};
use crate::args::Embed;
use crate::printer;

/// What `--json` prints.
#[derive(Serialize)]
struct Summary {
    file: String,
    images: usize,
    dimensions: usize,
    broken: Vec<String>,
    labels: bool,
    model: String,
}

pub(super) fn run(args: Embed) -> Outcome {
    let known = args.out.extension().is_some_and(|e| e == "npy" || e == "safetensors");
    if !known {
        let message = format!(
            "cannot write embeddings to `{}`\n  its name ends in neither .safetensors nor .npy",
            args.out.display()
        );
        return Err(Failure::new(
            message,
            Some("give --out FILE.safetensors (with labels and paths) or --out FILE.npy"),
        ));
    }
    let model = model_of(&args.model.run, args.model.checkpoint.into())?;
    super::set_threads(model.config().train.threads);
    let model = if args.raw { model.raw() } else { model };
    let set = ImageSet::open_with(&args.images, &OpenOptions { split: args.split, ..Default::default() })?;
    let mut embedded = embed_with_bar(&model, set, "embedding")?;
    let run = std::path::absolute(&args.model.run).unwrap_or(args.model.run);
    embedded.set.run = Some(run.to_string_lossy().into_owned());
    embedded.set.save(&args.out)?;
    let summary = Summary {
        file: args.out.display().to_string(),
        images: embedded.set.embeddings.rows(),
        dimensions: embedded.set.embeddings.cols(),
        broken: embedded.broken.iter().map(ToString::to_string).collect(),
        labels: embedded.set.labels.is_some(),
        model: model.fingerprint().to_string(),
    };
    if args.json {
        printer::json(&summary)?;
    } else {
        printer::note(&format!(
            "{} x {} embeddings written to {}",
            printer::grouped(summary.images),
            summary.dimensions,
            summary.file
        ));
    }
    Ok(ExitCode::from(u8::from(!summary.broken.is_empty())))
}
