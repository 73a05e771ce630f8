//! Embedding images with a trained network.

use std::path::{Path, PathBuf};

use gallerist_data::{Broken, ImageSet, OpenOptions};
use gallerist_nn::Products;
use gallerist_nn::{Combine, HeadChoice};
use gallerist_retrieval::eval::MatchRule;
use gallerist_retrieval::file::{Source, load_labels, read_threshold};
use gallerist_retrieval::{EmbeddingSet, fingerprint};
use gallerist_tensor::device::DeviceChoice;
use gallerist_train::model::{Embedded, Model};
use gallerist_train::{CheckpointKind, RunDirectory};
use gallerist_util::text::{absolute, absolute_or_address};

use super::model::{self, on_device};
use crate::observer::working;
use crate::text::count;
use crate::{Error, Observer, Result};

/// Options of [`embed`]. The default embeds all images as the run's file says, on a GPU if there is one.
#[derive(Clone, Debug, Default)]
pub struct EmbedOptions {
    /// The checkpoint of the run; `None`: its `evaluation.checkpoint`.
    pub checkpoint: Option<CheckpointKind>,
    /// Split, layout and labels of the images.
    pub images: OpenOptions,
    /// The device of the network.
    pub device: DeviceChoice,
    /// The products of the network on the CPU; absent: those of its run.
    pub products: Option<Products>,
    /// The name of the image source, from which the ids of items are computed; by default the absolute path.
    pub source: Option<String>,
    /// A folder that caches decoded images; by default `data.cache_folder` of the run file, if it exists.
    pub cache: Option<PathBuf>,
    /// Whether the first image that cannot be read is an error; it is also one where the run file says so
    /// (`data.strict`).
    pub strict: bool,
    /// Whether rows are scaled to length 1; by default as the metric of the run requires.
    pub normalize: Option<bool>,
    /// The heads of the network that form the embedding; by default those of the run file.
    pub heads: Vec<String>,
    /// How the outputs of several heads are combined; by default as in the run file.
    pub combine: Option<Combine>,
}

/// Embeds images with the network of a run: one row per image that can be read.
///
/// # Example
///
/// ```no_run
/// use std::path::{Path, PathBuf};
/// use gallerist::EmbedOptions;
///
/// let photos = [PathBuf::from("photos")];
/// let embedded = gallerist::embed(Path::new("runs/first"), &photos, &EmbedOptions::default(), &mut ())?;
/// embedded.set.save("photos.safetensors")?;
/// # Ok::<(), gallerist::Error>(())
/// ```
///
/// # Errors
///
/// When the run has no such checkpoint, when no image can be read, and for options that do not fit the network.
pub fn embed(
    run: &Path,
    images: &[PathBuf],
    options: &EmbedOptions,
    observer: &mut dyn Observer,
) -> Result<Embedded> {
    embed_images(&open_model(run, options, observer)?, run, images, options, observer)
}

/// The network of a run as [`embed`] uses it, for programs that embed again and again: see [`embed_images`].
///
/// # Errors
///
/// When the run has no such checkpoint, and for options that do not fit the network.
pub fn open_model(run: &Path, options: &EmbedOptions, observer: &mut dyn Observer) -> Result<Model> {
    let model = model::open(run, options.checkpoint)?;
    let model = on_device(model, options.device, options.products, observer)?;
    let model = normalized(with_heads(model, &options.heads, options.combine)?, options.normalize);
    with_cache(model.strict(options.strict), options.cache.as_deref())
}

/// [`embed`] with the model of a run that is open. Of the options, those of the images and their source count.
///
/// # Errors
///
/// When no image can be read.
pub fn embed_images(
    model: &Model,
    run: &Path,
    images: &[PathBuf],
    options: &EmbedOptions,
    observer: &mut dyn Observer,
) -> Result<Embedded> {
    let set = open_images(images, &options.images, observer)?;
    if options.source.is_some() {
        check_one_source(&set)?;
    }
    let mut embedded = embed_set(model, set, "embedding", observer)?;
    if let Some(name) = &options.source {
        embedded.set.name_source(name.clone());
    }
    embedded.set.run = Some(absolute(run).to_string_lossy().into_owned());
    embedded.set.threshold = threshold_of_run(run, &embedded.set)?;
    Ok(embedded)
}

/// The images of files, folders, archives or manifests. Embeddings of them name their absolute paths, so that these can be opened
/// from any folder.
pub(super) fn open_images(
    images: &[PathBuf],
    options: &OpenOptions,
    observer: &mut dyn Observer,
) -> Result<ImageSet> {
    let places: Vec<_> = images.iter().map(|path| absolute_or_address(path)).collect();
    Ok(working(observer, "reading the images' names", || ImageSet::open_with(&places, options))?)
}

/// The threshold that a run keeps with its embeddings, if it is one for rows such as these.
pub(super) fn threshold_of_run(run: &Path, set: &EmbeddingSet) -> Result<Option<MatchRule>> {
    let directory = RunDirectory::open(run)?;
    let files = [directory.embeddings(), directory.gallery()];
    let Some(file) = files.iter().find(|file| file.exists()) else { return Ok(None) };
    let same_model = |rule: &MatchRule| match (&rule.model, &set.model) {
        (Some(of_rule), Some(of_set)) => fingerprint::comparable(of_rule, of_set, rule.metric),
        (of_rule, of_set) => of_rule == of_set,
    };
    let fits = |rule: &MatchRule| same_model(rule) && Some(rule.metric) == set.metric;
    Ok(read_threshold(file)?.filter(fits))
}

/// Embeds a set and reports differences from the published counts and images that cannot be read.
pub(super) fn embed_set(
    model: &Model,
    set: ImageSet,
    what: &str,
    observer: &mut dyn Observer,
) -> Result<Embedded> {
    set.notes().iter().for_each(|note| observer.warning(note));
    observer.embedding(what, 0, set.len());
    let threads = model.config().train.loader_threads;
    let embedded = model.embed(set, threads, &mut |done, all| observer.embedding(what, done, all));
    observer.phase_done();
    let embedded = embedded?;
    report_broken(&embedded.broken, observer);
    if let Some(problem) = &embedded.cache_problem {
        observer.warning(&format!("{problem}; further images are not kept there"));
    }
    Ok(embedded)
}

/// Names the first images that cannot be read.
pub(super) fn report_broken(broken: &[Broken], observer: &mut dyn Observer) {
    const SHOWN: usize = 5;
    for one in broken.iter().take(SHOWN) {
        observer.warning(&format!("{one}; it is left out"));
    }
    if broken.len() > SHOWN {
        observer
            .warning(&format!("{} in all could not be read and are left out", count(broken.len(), "image")));
    }
}

/// The model with a folder for decoded images, if one is given.
pub(super) fn with_cache(model: Model, folder: Option<&Path>) -> Result<Model> {
    Ok(if folder.is_some() { model.with_cache(folder)? } else { model })
}

fn normalized(model: Model, normalize: Option<bool>) -> Model {
    match normalize {
        Some(normalize) => model.normalized(normalize),
        None => model,
    }
}

/// The model with other heads than those of its run file, if any are given.
pub(crate) fn with_heads(model: Model, heads: &[String], combine: Option<Combine>) -> Result<Model> {
    if heads.is_empty() && combine.is_none() {
        return Ok(model);
    }
    let usual = model.config().evaluation.head_choice();
    let heads = if heads.is_empty() { usual.heads } else { heads.to_vec() };
    Ok(model.with_heads(HeadChoice { heads, combine: combine.unwrap_or(usual.combine) })?)
}

/// Returns an error if images of several folders, whose paths may be equal, share one source name.
fn check_one_source(set: &ImageSet) -> Result<()> {
    let mut names: Vec<String> = (0..set.sources()).map(|i| Source::name_of(set.source_root(i))).collect();
    names.sort();
    names.dedup();
    match &names[..] {
        [first, second, ..] => Err(Error::new(
            format!(
                "--source names one source, and the images are of {}\n  `{first}` and `{second}`",
                names.len()
            ),
            Some("embed each source with a name of its own, and join the files with `gallerist convert`"),
        )),
        _ => Ok(()),
    }
}

/// A label for each row: from the file of the option, or from the embeddings' own.
pub(crate) fn labels_of(
    given: Option<&Path>,
    of_file: Option<Vec<String>>,
    purpose: &str,
    file: &str,
    option: &str,
) -> Result<Vec<String>> {
    match given {
        Some(labels) => Ok(load_labels(labels)?),
        None => of_file.ok_or_else(|| {
            Error::new(
                format!("{purpose} needs a label for each row, and `{file}` has none"),
                Some(&format!("give {option} FILE: .npy of integers, or text with one label a line")),
            )
        }),
    }
}
