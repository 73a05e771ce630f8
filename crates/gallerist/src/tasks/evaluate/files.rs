//! Files of embeddings with labels and cameras.

use std::path::Path;

use gallerist_retrieval::EmbeddingSet;
use gallerist_retrieval::eval::{self, Labelled, Protocol};
use gallerist_retrieval::file::{TableColumns, load_labels};
use gallerist_retrieval::labels::{empty_labels, without_label};
use gallerist_retrieval::search::Metric;
use gallerist_train::NO_PROTOCOL;

use super::options::{EmbeddingsFile, EvaluateOptions};
use crate::compatible::{both_have_cameras, cameras_count, same_embedding};
use crate::file::is_same_file;
use crate::measured::Measured;
use crate::repeats;
use crate::text::count;
use crate::unread::warn_of_unread;
use crate::{Error, Observer, Result};

/// One file, each row against the others.
pub(super) fn one(
    file: &EmbeddingsFile,
    options: &EvaluateOptions,
    observer: &mut dyn Observer,
) -> Result<Measured> {
    let set = labelled(file, observer)?;
    warn_of_protocol(&set, &file.path, observer);
    require_cameras(options, &set, file)?;
    match repeats::rows(&set)? {
        0 => {}
        rows => observer.warning(&format!(
            "`{}`: {} of an image that an earlier row is of, too: these images find themselves",
            file.path.display(),
            count(rows, "row")
        )),
    }
    let mut measured = Measured::new(set, None, &options.evaluation(None))?;
    let has_rules = options.protocol.as_deref() != Some(NO_PROTOCOL);
    let by_cameras = options.across_cameras || file.cameras.is_some() && has_rules;
    measured.plan.ignore_cameras = !by_cameras;
    cameras_count(file.cameras.as_deref(), &measured.plan, options.protocol.as_deref())?;
    Ok(measured)
}

/// Queries and their gallery.
pub(super) fn pair(
    query: &EmbeddingsFile,
    gallery: &EmbeddingsFile,
    options: &EvaluateOptions,
    observer: &mut dyn Observer,
) -> Result<Measured> {
    let config = options.evaluation(None);
    let queries = labelled(query, observer)?;
    let images = labelled(gallery, observer)?;
    warn_of_protocol(&queries, &query.path, observer);
    warn_of_protocol(&images, &gallery.path, observer);
    require_cameras(options, &queries, query)?;
    require_cameras(options, &images, gallery)?;
    let sides = ((&*query.path, &queries), (&*gallery.path, &images));
    both_have_cameras(query.cameras.as_deref(), sides.1)?;
    both_have_cameras(gallery.cameras.as_deref(), sides.0)?;
    same_embedding(sides.0, sides.1, options.metric, options.force, observer)?;
    let mut measured = Measured::new(queries, Some(images), &config)?;
    if options.across_cameras && !measured.plan.uses_cameras() {
        // Cameras of the options take precedence over the protocol that the files name.
        let metric = measured.plan.options.metric;
        measured.plan = config.plan()?;
        measured.plan.options.metric = metric;
    }
    // Queries are also pooled by their cameras.
    let cameras = query.cameras.as_deref().or(gallery.cameras.as_deref());
    let cameras = cameras.filter(|_| options.multi_query.is_none());
    cameras_count(cameras, &measured.plan, options.protocol.as_deref())?;
    report_rules(options, &measured, [query, gallery], observer);
    if let Some(images) = measured.gallery.as_ref().filter(|_| !skips_own_camera(&measured)) {
        let shared = match is_same_file(&query.path, &gallery.path) {
            true => measured.queries.embeddings.rows(),
            false => repeats::shared(&measured.queries, images)?,
        };
        if shared > 0 {
            observer.warning(&repeats::warning_of_shared(shared, measured.queries.embeddings.rows()));
        }
    }
    Ok(measured)
}

/// Whether cameras count: an image of the query's own camera is skipped, and so is the query itself.
fn skips_own_camera(measured: &Measured) -> bool {
    let has_cameras = |set: &EmbeddingSet| set.cameras.is_some();
    measured.plan.uses_cameras()
        && has_cameras(&measured.queries)
        && measured.gallery.as_ref().is_some_and(has_cameras)
}

/// Reports the rules by which two files are compared, unless the options set them.
fn report_rules(
    options: &EvaluateOptions,
    measured: &Measured,
    files: [&EmbeddingsFile; 2],
    observer: &mut dyn Observer,
) {
    let Some(gallery) = &measured.gallery else { return };
    if options.protocol.is_some() {
        return;
    }
    let names = [&measured.queries, gallery].map(|set| set.protocol.as_deref());
    match (measured.plan.protocol, names) {
        (Some(protocol), _) => observer.note(&format!(
            "protocol: {}, which both files name (--protocol {NO_PROTOCOL} compares without it)",
            protocol.name
        )),
        (None, [None, None]) => {
            let is_given = options.across_cameras || files[0].cameras.is_some();
            if skips_own_camera(measured) && !is_given {
                observer.note(&format!(
                    "both files have cameras: gallery images of the query's label from its own camera are skipped \
                     (--protocol {NO_PROTOCOL} counts them)"
                ));
            }
        }
        (None, names) => {
            let [query, gallery] = [0, 1].map(|at| {
                let named = names[at].map_or("no protocol".into(), |name| format!("the protocol `{name}`"));
                format!("`{}` names {named}", files[at].path.display())
            });
            observer
                .warning(&format!("{query}, {gallery}; they are compared by none (give --protocol NAME)"));
        }
    }
}

fn require_cameras(options: &EvaluateOptions, set: &EmbeddingSet, file: &EmbeddingsFile) -> Result<()> {
    if set.cameras.is_none() && options.across_cameras {
        return Err(Error::new(
            format!(
                "--across-cameras needs the camera of each image, and `{}` has none",
                file.path.display()
            ),
            Some("give a file with one camera a line"),
        ));
    }
    Ok(())
}

/// Refuses rows that cannot be compared by `metric`; `what` names them, and their file.
pub(in crate::tasks) fn check_rows(
    set: &EmbeddingSet,
    metric: Metric,
    (what, file): (&'static str, &Path),
) -> Result<()> {
    eval::check_rows(set.embeddings.view(), metric, what).map_err(|error| {
        Error::new(format!("cannot use `{}`\n  {error}", file.display()), error.hint().as_deref())
    })
}

/// Refuses rows with an empty label.
pub(in crate::tasks) fn check_classes(labels: Option<&[String]>, file: &Path, hint: &str) -> Result<()> {
    let rows = without_label(labels.unwrap_or_default());
    match empty_labels(rows, &format!("`{}`", file.display())) {
        None => Ok(()),
        Some(problem) => Err(Error::new(problem, Some(hint))),
    }
}

/// Warns of a protocol that is not known: it has no effect.
fn warn_of_protocol(set: &EmbeddingSet, file: &Path, observer: &mut dyn Observer) {
    if let Some(unknown) = set.protocol.as_deref().filter(|name| Protocol::named(name).is_none()) {
        observer.warning(&format!(
            "`{}` names the protocol `{unknown}`, which is not known: it has no effect",
            file.display()
        ));
    }
}

/// A file of embeddings with its labels and cameras, or those of separate lists. Warns of what is not read.
pub(in crate::tasks) fn labelled(file: &EmbeddingsFile, observer: &mut dyn Observer) -> Result<EmbeddingSet> {
    let path = &file.path;
    let mut set = EmbeddingSet::load(path)?;
    warn_of_unread(path, &TableColumns::default(), |warning| observer.warning(warning))?;
    let rows = set.embeddings.rows();
    let read = |list: &Path, what: &str| {
        let entries = load_labels(list)?;
        if entries.len() != rows {
            return Err(Error::new(
                format!(
                    "`{}` has {}, `{}` has {}",
                    list.display(),
                    count(entries.len(), what),
                    path.display(),
                    count(rows, "row")
                ),
                Some("give the list that was written with these embeddings, one entry a row"),
            ));
        }
        Ok(entries)
    };
    if let Some(list) = &file.labels {
        set.labels = Some(read(list, "label")?);
    }
    if let Some(list) = &file.cameras {
        set.cameras = Some(read(list, "camera")?);
    }
    if set.labels.is_none() {
        return Err(Labelled::from_set(set, path).expect_err("it has no labels").into());
    }
    Ok(set)
}
