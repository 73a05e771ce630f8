//! `gallerist embed`.

use std::process::ExitCode;

use crate::data::ImageSet;
use crate::retrieval::file::Source;
use crate::retrieval::search::Metric;
use serde::Serialize;

use super::{
    Failure, Outcome, check_embeddings_file, embed_with_bar, model_of, on_device, save_embeddings,
    with_cache, with_heads, working,
};
use crate::cli::args::Embed;
use crate::cli::printer;

/// What `--json` prints.
#[derive(Serialize)]
struct Summary {
    file: String,
    images: usize,
    dimensions: usize,
    broken: Vec<String>,
    labels: bool,
    model: String,
    metric: Metric,
}

pub(super) fn run(args: Embed) -> Outcome {
    check_embeddings_file(&args.out, args.precision)?;
    let model = model_of(&args.model.run, args.model.checkpoint.into())?;
    super::set_threads(model.config().train.threads);
    let model = on_device(model, args.device.device)?;
    let model = args.rows.of(with_heads(model, args.head, args.combine)?);
    let model = with_cache(model, args.cache.as_deref())?;
    // The file names where the images are, for whoever opens it from another folder.
    let places: Vec<_> =
        args.images.iter().map(|path| std::path::absolute(path).unwrap_or(path.clone())).collect();
    let set = working("reading the images' names", || ImageSet::open_with(&places, &args.part.options()))?;
    if args.source.is_some() {
        check_one_source(&set)?;
    }
    let mut embedded = embed_with_bar(&model, set, "embedding")?;
    if let Some(name) = args.source {
        embedded.set.name_source(name);
    }
    let run = std::path::absolute(&args.model.run).unwrap_or(args.model.run);
    embedded.set.run = Some(run.to_string_lossy().into_owned());
    save_embeddings(&embedded.set, &args.out, args.precision)?;
    let summary = Summary {
        file: args.out.display().to_string(),
        images: embedded.set.embeddings.rows(),
        dimensions: embedded.set.embeddings.cols(),
        broken: embedded.broken.iter().map(ToString::to_string).collect(),
        labels: embedded.set.labels.is_some(),
        model: model.fingerprint().to_string(),
        metric: model.metric(),
    };
    if model.metric() != Metric::Cosine && args.out.extension().is_some_and(|extension| extension == "npy") {
        printer::note(&format!(
            "a .npy file does not say how its rows are compared; these are by {}: give --metric {} to `evaluate`",
            model.metric(),
            model.metric().name()
        ));
    }
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

/// Refuses to give one name to images of several folders, whose paths may be the same.
fn check_one_source(set: &ImageSet) -> Result<(), Failure> {
    let mut names: Vec<String> = (0..set.sources()).map(|i| Source::name_of(set.source_root(i))).collect();
    names.sort();
    names.dedup();
    match &names[..] {
        [first, second, ..] => Err(Failure::new(
            format!(
                "--source names one source, and the images are of {}\n  `{first}` and `{second}`",
                names.len()
            ),
            Some("embed each source with a name of its own, and join the files with `gallerist convert`"),
        )),
        _ => Ok(()),
    }
}
