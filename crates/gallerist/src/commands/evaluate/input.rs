//! What `gallerist evaluate` measures: embeddings with labels and cameras, from files or from a run.

use std::path::Path;

use gallerist::model::Model;
use gallerist::pages;
use gallerist::retrieval::eval::{Labelled, Protocol, Setting};
use gallerist::retrieval::file::load_labels;
use gallerist::retrieval::{EmbeddingSet, short_fingerprint};
use gallerist::train::RunDirectory;

use super::super::{Failure, embed_with_bar, model_of, on_device, with_cache};
use super::without_cameras;
use crate::args::Evaluate;
use crate::printer;

/// The images of an evaluation.
pub(super) struct Input {
    pub(super) queries: Labelled,
    pub(super) gallery: Option<Labelled>,
    /// Images that could not be read.
    pub(super) broken: usize,
    /// The run's network.
    pub(super) model: Option<Model>,
}

pub(super) fn read(args: &Evaluate) -> Result<Input, Failure> {
    if let Some(run) = &args.run {
        return of_run(run, args);
    }
    // Cameras that lie in a file are used where they were asked for.
    let protocol = args.protocol.as_deref().and_then(Protocol::named);
    let cameras = args.across_cameras
        || args.multi_query.is_some()
        || protocol.is_some_and(|protocol| protocol.setting == Setting::Cameras);
    let side = |file: &Path, labels: Option<&Path>, of: Option<&Path>| -> Result<(Labelled, _), Failure> {
        let (images, model) = labelled(file, labels, of)?;
        let without = images.cameras.is_none();
        if without && args.across_cameras {
            return Err(Failure::new(
                format!("--across-cameras needs the camera of each image, and `{}` has none", file.display()),
                Some("give a file with one camera a line"),
            ));
        }
        let wanted = cameras || of.is_some();
        Ok((if wanted { images } else { without_cameras(images) }, model))
    };
    let input = |queries, gallery| Ok(Input { queries, gallery, broken: 0, model: None });
    match (&args.embeddings, &args.query, &args.gallery) {
        (Some(file), ..) => input(side(file, args.labels.as_deref(), args.cameras.as_deref())?.0, None),
        (None, Some(query), Some(gallery)) => {
            let (queries, of_queries) =
                side(query, args.query_labels.as_deref(), args.query_cameras.as_deref())?;
            let (images, of_gallery) =
                side(gallery, args.gallery_labels.as_deref(), args.gallery_cameras.as_deref())?;
            same_model((query, of_queries), (gallery, of_gallery), args.force)?;
            input(queries, Some(images))
        }
        _ => unreachable!("clap asks for one of them"),
    }
}

fn of_run(run: &Path, args: &Evaluate) -> Result<Input, Failure> {
    RunDirectory::open(run)?;
    let model = model_of(run, args.checkpoint.into())?;
    super::super::set_threads(model.config().train.threads);
    let model = with_cache(model, args.cache.as_deref())?;
    let model = on_device(model, args.device.unwrap_or_default())?;
    let Some(test) = pages::open_test(model.config())? else {
        let hint = "embed a set with `gallerist embed` and give it as --embeddings FILE";
        let message = format!("the run `{}` has no test images (data.test)", run.display());
        return Err(Failure::new(message, Some(hint)));
    };
    let embedded = embed_with_bar(&model, test, "embedding the test images")?;
    let queries = without_cameras(Labelled::from_set(embedded.set, run)?);
    Ok(Input { queries, gallery: None, broken: embedded.broken.len(), model: Some(model) })
}

/// A file of embeddings with its labels and cameras, and the model that made it.
fn labelled(
    file: &Path,
    labels: Option<&Path>,
    cameras: Option<&Path>,
) -> Result<(Labelled, Option<String>), Failure> {
    let mut set = EmbeddingSet::load(file)?;
    let rows = set.embeddings.rows();
    let read = |path: &Path, what: &str| {
        let list = load_labels(path)?;
        if list.len() != rows {
            return Err(Failure::new(
                format!(
                    "`{}` has {}, `{}` has {}",
                    path.display(),
                    printer::count(list.len(), what),
                    file.display(),
                    printer::count(rows, "row")
                ),
                Some("give the list that was written with these embeddings, one entry a row"),
            ));
        }
        Ok(list)
    };
    if let Some(path) = labels {
        set.labels = Some(read(path, "label")?);
    }
    if let Some(path) = cameras {
        set.cameras = Some(read(path, "camera")?);
    }
    let model = set.model.take();
    Ok((Labelled::from_set(set, file)?, model))
}

/// Refuses queries and gallery that name different models.
pub(super) fn same_model(
    (query, of_queries): (&Path, Option<String>),
    (gallery, of_gallery): (&Path, Option<String>),
    force: bool,
) -> Result<(), Failure> {
    let (Some(a), Some(b)) = (of_queries, of_gallery) else { return Ok(()) };
    if a == b {
        return Ok(());
    }
    let message = format!(
        "`{}` was embedded with the network {}\n  `{}` with {}: their distances mean nothing to each other",
        query.display(),
        short_fingerprint(&a),
        gallery.display(),
        short_fingerprint(&b)
    );
    if force {
        printer::warning(&message);
        return Ok(());
    }
    Err(Failure::new(
        message,
        Some("embed both with the same network, or compare them all the same with --force"),
    ))
}
