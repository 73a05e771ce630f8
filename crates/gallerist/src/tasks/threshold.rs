//! The threshold at which a result is a match.

use std::collections::BTreeSet;
use std::path::Path;

use gallerist_retrieval::condition::Condition;
use gallerist_retrieval::eval::{
    self, Calibration, MatchRule, Protocol, Setting, Side, Task, ThresholdOptions,
};
use gallerist_retrieval::file::{has_checksum, write_threshold};
use gallerist_retrieval::labels::{SEPARATOR, are_sets, encode, encode_both};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{EmbeddingSet, GalleryFile, fingerprint, prepare_to_write};
use gallerist_util::text::nearest;

use super::evaluate::{EmbeddingsFile, check_classes, check_rows, labelled};
use crate::compatible::same_embedding;
use crate::measured::declared_metric;
use crate::narrow::{WITH_LABELS, narrowed};
use crate::text::count;
use crate::{Error, Observer, Result};

/// What [`threshold`] is calibrated on.
#[derive(Clone, Debug)]
pub struct ThresholdInput {
    /// Embeddings of images that the network was not trained on; with a gallery, the queries.
    pub embeddings: EmbeddingsFile,
    /// The gallery that is searched ([`FalseRate::Search`](eval::FalseRate::Search) only); by default the same embeddings.
    pub gallery: Option<EmbeddingsFile>,
}

/// How [`threshold`] is calibrated.
#[derive(Clone, Debug, Default)]
pub struct ThresholdSettings {
    /// The wanted rate, the confidence, the splits.
    pub options: ThresholdOptions,
    /// How rows are compared; by default as the files declare.
    pub metric: Option<Metric>,
    /// Images with these labels are left out. Of Market-1501's files, junk is always left out, and so are the
    /// distractors where the embeddings are one set: they are of no common identity.
    pub leave_out: Vec<String>,
    /// Only embeddings that meet this condition on their columns take part, of the gallery, too.
    pub condition: Option<Condition>,
    /// Compares embeddings of different models or metrics, with a warning.
    pub force: bool,
}

/// Calibrates the threshold at which a pair of images, or a search, is a match: the most permissive one with the
/// wanted false match rate, with a bound that holds over identities and the miss rate that it costs.
///
/// The identities must be others than those that the network was trained on; else the rates are too low.
///
/// # Example
///
/// ```no_run
/// use gallerist::retrieval::eval::ThresholdOptions;
/// use gallerist::{ThresholdInput, ThresholdSettings};
///
/// let input = ThresholdInput { embeddings: "test.safetensors".into(), gallery: None };
/// let options = ThresholdOptions { target: 0.01, ..ThresholdOptions::default() };
/// let settings = ThresholdSettings { options, ..ThresholdSettings::default() };
/// let found = gallerist::threshold(&input, &settings, &mut ())?;
/// println!("{} {}: at most {:.4}", found.rule.metric, found.rule.threshold, found.rule.bound);
/// # Ok::<(), gallerist::Error>(())
/// ```
///
/// # Errors
///
/// For files that cannot be read, have no labels or label sets (`a|b`) or do not fit each other, for a label to leave out that no
/// image has, and as [`eval::calibrate`].
pub fn threshold(
    input: &ThresholdInput,
    settings: &ThresholdSettings,
    observer: &mut dyn Observer,
) -> Result<Calibration> {
    settings.options.check()?;
    let mut known: BTreeSet<String> = BTreeSet::new();
    let mut read = |file: &EmbeddingsFile| -> Result<EmbeddingSet> {
        let set = labelled(file, observer)?;
        if !settings.leave_out.is_empty() {
            known.extend(set.labels.iter().flatten().cloned());
        }
        match &settings.condition {
            None => Ok(set),
            Some(condition) => {
                let (set, part) = narrowed(set, condition, &file.path.display().to_string())?;
                observer.note(&part.to_string());
                Ok(set)
            }
        }
    };
    let queries = read(&input.embeddings)?;
    let gallery = input.gallery.as_ref().map(&mut read).transpose()?;
    check_left_out(&settings.leave_out, &known)?;
    let metric = settings.metric.or(declared_metric(&queries, gallery.as_ref())).unwrap_or_default();
    if let (Some(set), Some(file)) = (&gallery, &input.gallery) {
        let (query, gallery) = ((&*input.embeddings.path, &queries), (&*file.path, set));
        same_embedding(query, gallery, settings.metric, settings.force, observer)?;
    }
    let protocol = |set: &EmbeddingSet| set.protocol.as_deref().and_then(Protocol::named);
    let across_cameras = [Some((&queries, &input.embeddings)), gallery.as_ref().zip(input.gallery.as_ref())]
        .into_iter()
        .flatten()
        .all(|(set, file)| {
            let asked =
                file.cameras.is_some() || protocol(set).is_some_and(|of| of.setting == Setting::Cameras);
            asked && set.cameras.is_some()
        });
    let one_set = gallery.is_none();
    let model = queries.model.clone();
    let mut prepare = |set: EmbeddingSet| {
        let of = protocol(&set);
        let mut without: Vec<&str> = settings.leave_out.iter().map(String::as_str).collect();
        without.extend(of.and_then(|of| of.junk));
        if one_set {
            without.extend(of.and_then(|of| of.distractors));
        }
        let rows = set.embeddings.rows();
        let kept = without_labels(set, &without);
        if kept.embeddings.rows() < rows {
            let left_out = count(rows - kept.embeddings.rows(), "image");
            observer.note(&format!("left out: {left_out} with the labels {}", without.join(", ")));
        }
        kept
    };
    let queries = prepare(queries);
    let gallery = gallery.map(&mut prepare);
    refuse_label_sets(&queries, &input.embeddings)?;
    check_classes(queries.labels.as_deref(), &input.embeddings.path, WITH_LABELS)?;
    check_rows(&queries, metric, (if one_set { "embeddings" } else { "queries" }, &input.embeddings.path))?;
    if let (Some(set), Some(file)) = (&gallery, &input.gallery) {
        refuse_label_sets(set, file)?;
        check_classes(set.labels.as_deref(), &file.path, WITH_LABELS)?;
        check_rows(set, metric, ("gallery", &file.path))?;
    }
    let labels = |set: &EmbeddingSet| set.labels.clone().unwrap_or_default();
    let cameras = |set: &EmbeddingSet| set.cameras.clone().filter(|_| across_cameras).unwrap_or_default();
    let none = EmbeddingSet::from(gallerist_retrieval::Matrix::new(0, 0, Vec::new())?);
    let images = gallery.as_ref().unwrap_or(&none);
    let (query_labels, image_labels) = match one_set {
        true => (encode(&labels(&queries)), encode(&[])),
        false => encode_both(&labels(&queries), &labels(images)),
    };
    let (query_cameras, image_cameras) = encode_both(&cameras(&queries), &cameras(images));
    let side = |set, labels, cameras| {
        let side = Side::classes(set, labels);
        if across_cameras { side.with_cameras(cameras) } else { side }
    };
    let of_queries = side(&queries.embeddings, &query_labels.ids, &query_cameras.ids);
    let task = match &gallery {
        None => Task::every_row(of_queries),
        Some(gallery) => {
            Task::split(of_queries, side(&gallery.embeddings, &image_labels.ids, &image_cameras.ids))
        }
    };
    let mut found = eval::calibrate(&task, metric, &settings.options)?;
    found.rule.model = model;
    Ok(found)
}

/// Writes a threshold into an embeddings file or an index: searches of the file, and of indexes that are built from it, mark their
/// results by it.
///
/// # Example
///
/// ```no_run
/// # let input = gallerist::ThresholdInput { embeddings: "test.safetensors".into(), gallery: None };
/// let found = gallerist::threshold(&input, &gallerist::ThresholdSettings::default(), &mut ())?;
/// gallerist::save_threshold(&found.rule, std::path::Path::new("photos.safetensors"))?;
/// # Ok::<(), gallerist::Error>(())
/// ```
///
/// # Errors
///
/// For a `.npy` file, a file in bf16 or int8 that another program wrote, for embeddings of another network, and for rows that
/// are compared in another way.
pub fn save_threshold(rule: &MatchRule, file: &Path) -> Result<()> {
    check_save_threshold(rule, file)?;
    if write_threshold(file, rule)? {
        return Ok(());
    }
    let set = EmbeddingSet { threshold: Some(rule.clone()), ..EmbeddingSet::load(file)? };
    Ok(set.save(file)?)
}

/// Refuses what [`save_threshold`] refuses, and writes nothing: for callers that write a threshold into several files.
///
/// # Errors
///
/// As [`save_threshold`].
pub fn check_save_threshold(rule: &MatchRule, file: &Path) -> Result<()> {
    let name = file.display();
    let refuse = |problem: &str, hint: &str| {
        Err(Error::new(format!("cannot save the threshold in `{name}`: {problem}"), Some(hint)))
    };
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("npy") => {
            let hint = "write a .safetensors file with `gallerist convert`";
            return refuse("a .npy file holds numbers only", hint);
        }
        Some("parquet" | "arrow" | "feather" | "ipc") => {
            let hint = "write a .safetensors file with `gallerist convert`";
            return refuse("it is a table, which may have columns that would be lost", hint);
        }
        _ => {}
    }
    let (model, metric, is_compact) = match GalleryFile::open(file, false)? {
        GalleryFile::Embeddings(set) => (set.model, set.metric.unwrap_or_default(), false),
        GalleryFile::Compact(compact) => {
            let set = compact.select(&[])?;
            (set.model, set.metric.unwrap_or_default(), true)
        }
        GalleryFile::Index(index) => {
            let info = index.info()?;
            (info.model, info.metric, false)
        }
    };
    if let (Some(of_rule), Some(of_file)) = (&rule.model, &model)
        && !fingerprint::comparable(of_rule, of_file, metric)
    {
        let [a, b] = [of_rule, of_file].map(|model| fingerprint::shown(model));
        return refuse(
            &format!("it was embedded with the network {b}, the threshold is one of {a}"),
            "calibrate on embeddings of the same network",
        );
    }
    if metric != rule.metric {
        return refuse(
            &format!("its rows are compared by {metric}, the threshold is one of {}", rule.metric),
            &format!("calibrate with --metric {}", metric.name()),
        );
    }
    if is_compact && !has_checksum(file)? {
        return refuse("another program wrote it, and not in f32", "write it again with `gallerist convert`");
    }
    Ok(prepare_to_write(file)?)
}

/// Refuses labels to leave out that no image has.
fn check_left_out(leave_out: &[String], known: &BTreeSet<String>) -> Result<()> {
    let Some(unknown) = leave_out.iter().find(|label| !known.contains(*label)) else { return Ok(()) };
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let hint = nearest(unknown, &known).map(|meant| format!("did you mean `{meant}`?"));
    Err(Error::new(format!("--leave-out: no image has the label `{unknown}`"), hint.as_deref()))
}

/// Refuses label sets, of which images may share some labels and not others.
fn refuse_label_sets(set: &EmbeddingSet, file: &EmbeddingsFile) -> Result<()> {
    let labels = set.labels.as_deref().unwrap_or_default();
    if !are_sets(labels) {
        return Ok(());
    }
    let rows = labels.iter().filter(|label| label.contains(SEPARATOR)).count();
    Err(Error::new(
        format!(
            "a threshold needs one class per row, and {} of `{}` have several labels (`a|b`)",
            count(rows, "row"),
            file.path.display()
        ),
        Some("give labels without `|`"),
    ))
}

/// The rows with other labels than these.
fn without_labels(set: EmbeddingSet, labels: &[&str]) -> EmbeddingSet {
    let of = set.labels.as_deref().unwrap_or_default();
    let kept: Vec<usize> = (0..of.len()).filter(|&row| !labels.contains(&of[row].as_str())).collect();
    if kept.len() == of.len() { set } else { set.select(&kept) }
}
