//! Input of `gallerist evaluate`: embeddings with labels and cameras, from files or from a run.

use std::path::{Path, PathBuf};

use crate::data::ImageSet;
use crate::measured::Measured;
use crate::model::Model;
use crate::retrieval::eval::{Labelled, Protocol};
use crate::retrieval::file::load_labels;
use crate::retrieval::search::Metric;
use crate::retrieval::{EmbeddingSet, short_fingerprint};
use crate::train::{
    DataConfig, EvaluationConfig, NO_PROTOCOL, RunConfig, RunDirectory, TestImages, open_test,
};

use super::super::{Failure, embed_with_bar, model_of, on_device, with_cache};
use super::{evaluation, plan};
use crate::cli::args::Evaluate;
use crate::cli::printer;

/// The input of an evaluation.
pub(super) struct Input {
    /// The embeddings, and the rules of their run or their files.
    pub(super) measured: Measured,
    /// Images that could not be read.
    pub(super) broken: usize,
    /// The run's network.
    pub(super) model: Option<Model>,
}

pub(super) fn read(args: &Evaluate) -> Result<Input, Failure> {
    if let Some(run) = &args.run {
        return of_run(run, args);
    }
    let config = evaluation(args, None);
    let measured = match (&args.embeddings, &args.query, &args.gallery) {
        (Some(file), ..) => {
            let set = labelled(file, args.labels.as_deref(), args.cameras.as_deref())?;
            require_cameras(args, &set, file)?;
            if args.protocol.is_none() {
                check_one_set(&set, file)?;
            }
            let mut measured = Measured::new(set, None, &config)?;
            measured.plan.ignore_cameras = !(args.across_cameras || args.cameras.is_some());
            measured
        }
        (None, Some(query), Some(gallery)) => {
            let queries = labelled(query, args.query_labels.as_deref(), args.query_cameras.as_deref())?;
            let images = labelled(gallery, args.gallery_labels.as_deref(), args.gallery_cameras.as_deref())?;
            require_cameras(args, &queries, query)?;
            require_cameras(args, &images, gallery)?;
            same_model((query, queries.model.clone()), (gallery, images.model.clone()), args.force)?;
            // Cosine accepts rows of any length, and --metric overrides the metric of a file.
            let by_cosine = args.metric.is_some_and(|metric| metric == Metric::Cosine);
            let silent = args.metric.is_some() && (queries.metric.is_none() || images.metric.is_none());
            if !by_cosine && !silent {
                same_metric((query, queries.metric), (gallery, images.metric), args.force)?;
            }
            let mut measured = Measured::new(queries, Some(images), &config)?;
            if args.across_cameras && !measured.plan.uses_cameras() {
                // --across-cameras has precedence over the protocol in the files.
                let metric = measured.plan.options.metric;
                measured.plan = config.plan()?;
                measured.plan.options.metric = metric;
            }
            say_the_rules(args, &measured, [query, gallery]);
            measured
        }
        _ => unreachable!("clap asks for one of them"),
    };
    Ok(Input { measured, broken: 0, model: None })
}

/// Prints the rules of a comparison if they come from the files and not from the command line.
fn say_the_rules(args: &Evaluate, measured: &Measured, files: [&PathBuf; 2]) {
    let Some(gallery) = &measured.gallery else { return };
    if args.protocol.is_some() {
        return;
    }
    let names = [&measured.queries, gallery].map(|set| set.protocol.as_deref());
    match (measured.plan.protocol, names) {
        (Some(protocol), _) => printer::note(&format!(
            "protocol: {}, which both files name (--protocol {NO_PROTOCOL} compares without it)",
            protocol.name
        )),
        (None, [None, None]) => {
            let cameras = [&measured.queries, gallery].iter().all(|set| set.cameras.is_some());
            if cameras && !args.across_cameras && args.query_cameras.is_none() {
                printer::note(&format!(
                    "both files have cameras: gallery images of the query's label from its own camera are skipped \
                     (--protocol {NO_PROTOCOL} counts them)"
                ));
            }
        }
        (None, names) => {
            let [query, gallery] = [0, 1].map(|at| {
                let named = names[at].map_or("no protocol".into(), |name| format!("the protocol `{name}`"));
                format!("`{}` names {named}", files[at].display())
            });
            printer::warning(&format!(
                "{query}, {gallery}; they are compared by none (give --protocol NAME)"
            ));
        }
    }
}

/// For a single set of images whose protocol needs queries and a gallery: an error if junk would count as a class,
/// otherwise a warning.
fn check_one_set(set: &EmbeddingSet, file: &Path) -> Result<(), Failure> {
    let file = file.display();
    let rows_of = |label: &str| {
        let labels = set.labels.as_deref().unwrap_or_default();
        labels.iter().filter(|known| *known == label).count()
    };
    let Some(protocol) = set.protocol.as_deref().and_then(Protocol::named) else {
        match rows_of("-1") {
            0 | 1 => {}
            rows => printer::warning(&format!(
                "`{file}`: {} with the label `-1` count as one class",
                printer::count(rows, "row")
            )),
        }
        return Ok(());
    };
    let hint = format!(
        "embed the splits `query` and `gallery` (embed --split) and give them as --query and --gallery; \
         --protocol {NO_PROTOCOL} compares every row with the others all the same"
    );
    let what =
        format!("the protocol `{}` compares queries with a gallery, and `{file}` is one set", protocol.name);
    match protocol.junk.map(|label| (label, rows_of(label))) {
        Some((label, rows @ 1..)) => Err(Failure::new(
            format!("{what}\n  {} with the label `{label}` are junk, no class", printer::count(rows, "row")),
            Some(&hint),
        )),
        _ => {
            printer::warning(&format!("{what}: every row is compared with the others here\n  {hint}"));
            Ok(())
        }
    }
}

fn require_cameras(args: &Evaluate, set: &EmbeddingSet, file: &Path) -> Result<(), Failure> {
    if set.cameras.is_none() && args.across_cameras {
        return Err(Failure::new(
            format!("--across-cameras needs the camera of each image, and `{}` has none", file.display()),
            Some("give a file with one camera a line"),
        ));
    }
    Ok(())
}

fn of_run(run: &Path, args: &Evaluate) -> Result<Input, Failure> {
    let model = model_of(run, args.checkpoint.into())?;
    super::super::set_threads(model.config().train.threads);
    let model = with_cache(model, args.cache.as_deref())?;
    let model = on_device(model, args.device.unwrap_or_default())?;
    if args.query.is_none() {
        let needed = ["data.test", "data.query", "data.gallery"];
        model.config().check_files(&RunDirectory::open(run)?.config(), &needed)?;
    }
    let Some(test) = test_images(args, model.config())? else {
        let hint = "give --query IMAGES and --gallery IMAGES, or embed a set with `gallerist embed` and give it as \
                    --embeddings FILE";
        let message = format!("the run `{}` has no test images (data.test, data.query)", run.display());
        return Err(Failure::new(message, Some(hint)));
    };
    let config = evaluation(args, Some(&model));
    test.check(&plan(args, test.plan(&config)?)?)?;
    test.notes(&config).iter().for_each(|note| printer::warning(note));
    let mut broken = 0;
    let measured = embed_test(test, &config, &mut |images, what| {
        let embedded = embed_with_bar(&model, images, what)?;
        broken += embedded.broken.len();
        Ok(embedded.set)
    })?;
    Ok(Input { measured, broken, model: Some(model) })
}

/// The images of --query and --gallery, or the run's own.
fn test_images(args: &Evaluate, config: &RunConfig) -> Result<Option<TestImages>, Failure> {
    let (Some(query), Some(gallery)) = (&args.query, &args.gallery) else {
        return Ok(open_test(config)?);
    };
    for (file, option) in [(query, "--query"), (gallery, "--gallery")] {
        let extension = file.extension().and_then(|extension| extension.to_str());
        if matches!(extension, Some("safetensors" | "npy" | "index")) {
            return Err(Failure::new(
                format!(
                    "with --run, {option} names images, and `{}` is a file of embeddings",
                    file.display()
                ),
                Some("leave out --run to measure files of embeddings"),
            ));
        }
    }
    let data = DataConfig {
        query: vec![query.clone()],
        gallery: vec![gallery.clone()],
        query_split: args.query_split.clone(),
        gallery_split: args.gallery_split.clone(),
        label: config.data.label,
        ..DataConfig::default()
    };
    Ok(open_test(&RunConfig { data, ..config.clone() })?)
}

/// Embeds test images with `embed`: queries and gallery, or one set.
pub(in super::super) fn embed_test(
    test: TestImages,
    evaluation: &EvaluationConfig,
    embed: &mut dyn FnMut(ImageSet, &str) -> Result<EmbeddingSet, Failure>,
) -> Result<Measured, Failure> {
    let TestImages { queries, gallery } = test;
    let Some(gallery) = gallery else {
        return Ok(Measured::new(embed(queries, "embedding the test images")?, None, evaluation)?);
    };
    let queries = embed(queries, "embedding the queries")?;
    Ok(Measured::new(queries, Some(embed(gallery, "embedding the gallery")?), evaluation)?)
}

/// A file of embeddings with its labels and cameras, or those of separate lists.
fn labelled(file: &Path, labels: Option<&Path>, cameras: Option<&Path>) -> Result<EmbeddingSet, Failure> {
    let extension = file.extension().and_then(|extension| extension.to_str());
    if file.is_dir() || matches!(extension, Some("zip" | "csv")) {
        return Err(Failure::new(
            format!("`{}` holds images, not embeddings", file.display()),
            Some("give --run RUN as well to embed images with a run's network"),
        ));
    }
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
    if set.labels.is_none() {
        return Err(Labelled::from_set(set, file).expect_err("it has no labels").into());
    }
    Ok(set)
}

/// Returns an error if queries and gallery declare different metrics.
pub(super) fn same_metric(
    (query, of_queries): (&Path, Option<Metric>),
    (gallery, of_gallery): (&Path, Option<Metric>),
    force: bool,
) -> Result<(), Failure> {
    let [a, b] = [of_queries, of_gallery].map(Option::unwrap_or_default);
    if a == b {
        return Ok(());
    }
    let message = format!(
        "the rows of `{}` are made to be compared by {a}\n  those of `{}` by {b}: their lengths differ",
        query.display(),
        gallery.display()
    );
    if force {
        printer::warning(&message);
        return Ok(());
    }
    Err(Failure::new(
        message,
        Some("embed both in the same way (`embed --normalize`), or compare them with --metric cosine"),
    ))
}

/// Returns an error if queries and gallery come from different models.
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
