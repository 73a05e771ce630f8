//! Whether queries and a gallery can be compared, or the rows of one set.

use std::path::Path;

use gallerist_retrieval::eval::{OneSet, Plan};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{EmbeddingSet, fingerprint};
use gallerist_train::NO_PROTOCOL;

use crate::measured::declared_metric;
use crate::{Error, Observer, Result};

/// What to do about rows of both lengths.
const ONE_LENGTH: &str = "embed both in the same way (`embed --normalize`); `evaluate` and `threshold` also compare them with --metric cosine";

/// Refuses files of queries and a gallery that are of different models or metrics ([`same_model`], [`same_metric`]); with `force`
/// a warning. `metric`: how the caller asks to compare rows.
pub(crate) fn same_embedding(
    (query, queries): (&Path, &EmbeddingSet),
    (gallery, images): (&Path, &EmbeddingSet),
    metric: Option<Metric>,
    force: bool,
    observer: &mut dyn Observer,
) -> Result<()> {
    let used = metric.or(declared_metric(queries, Some(images))).unwrap_or_default();
    let models = [queries, images].map(|set| set.model.as_deref());
    same_model((query, models[0]), (gallery, models[1]), used, force, observer)?;
    // The cosine compares rows of any length; and a caller who says how rows are compared knows what a file does not
    // say.
    let by_cosine = metric == Some(Metric::Cosine);
    let silent = metric.is_some() && (queries.metric.is_none() || images.metric.is_none());
    if by_cosine || silent {
        return Ok(());
    }
    same_metric((query, queries.metric), (gallery, images.metric), force, observer)
}

/// Refuses a list of cameras of one side if `other`, the other side, has none.
pub(crate) fn both_have_cameras(list: Option<&Path>, (file, other): (&Path, &EmbeddingSet)) -> Result<()> {
    match list {
        Some(list) if other.cameras.is_none() => Err(Error::new(
            format!("`{}` has cameras, and `{}` has none", list.display(), file.display()),
            Some("give --query-cameras and --gallery-cameras, or neither"),
        )),
        _ => Ok(()),
    }
}

/// Refuses a list of cameras by which `plan` skips nothing; `protocol` is the one that the caller asks for.
pub(crate) fn cameras_count(list: Option<&Path>, plan: &Plan, protocol: Option<&str>) -> Result<()> {
    let Some(list) = list.filter(|_| !plan.uses_cameras()) else { return Ok(()) };
    let (problem, hint) = match plan.protocol {
        Some(protocol) => (
            format!("the protocol `{}` knows no cameras", protocol.name),
            "leave them out; `evaluate --across-cameras` compares by them, without a protocol",
        ),
        None if protocol.is_some() => {
            (format!("--protocol {NO_PROTOCOL} ignores cameras"), "leave out one of them")
        }
        None => (
            "some rows have several labels (`a|b`), and cameras need one class per row".to_owned(),
            "leave them out, or give labels without `|`",
        ),
    };
    Err(Error::new(format!("the cameras of `{}` would not count: {problem}", list.display()), Some(hint)))
}

/// Refuses one set whose protocol needs a gallery if junk would count as a class, and warns otherwise. `protocol` is the one that
/// the caller asks for: then there is nothing to check.
pub(crate) fn check_one_set(
    (file, set): (&Path, &EmbeddingSet),
    protocol: Option<&str>,
    observer: &mut dyn Observer,
) -> Result<()> {
    if protocol.is_some() {
        return Ok(());
    }
    let one = OneSet::of(set.protocol.as_deref());
    let junk = one.junk_rows(set.labels.as_deref().unwrap_or_default());
    if let Some(warning) = one.check(&file.display().to_string(), junk, OneSet::COMMAND_HINT)? {
        observer.warning(&warning);
    }
    Ok(())
}

/// Refuses queries and gallery whose rows differ in length, because they are made to be compared in different ways;
/// with `force` a warning.
pub(crate) fn same_metric(
    (query, of_queries): (&Path, Option<Metric>),
    (gallery, of_gallery): (&Path, Option<Metric>),
    force: bool,
    observer: &mut dyn Observer,
) -> Result<()> {
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
        observer.warning(&message);
        return Ok(());
    }
    Err(Error::new(message, Some(ONE_LENGTH)))
}

/// Refuses queries and gallery that name different models, or that cannot be compared by `metric` because only one of them is
/// scaled to length 1; with `force` a warning.
pub(crate) fn same_model(
    (query, of_queries): (&Path, Option<&str>),
    (gallery, of_gallery): (&Path, Option<&str>),
    metric: Metric,
    force: bool,
    observer: &mut dyn Observer,
) -> Result<()> {
    let (Some(a), Some(b)) = (of_queries, of_gallery) else { return Ok(()) };
    if fingerprint::comparable(a, b, metric) {
        return Ok(());
    }
    let (query, gallery) = (query.display(), gallery.display());
    let (message, hint) = if fingerprint::differ_in_length(a, b) {
        let (scaled, unscaled) = if fingerprint::split(a).1 { (gallery, query) } else { (query, gallery) };
        (format!("the rows of `{scaled}` are scaled to length 1, those of `{unscaled}` are not"), ONE_LENGTH)
    } else {
        let [a, b] = [a, b].map(fingerprint::shown);
        (
            format!(
                "`{query}` was embedded with the network {a}\n  `{gallery}` with {b}: their distances mean nothing to each other"
            ),
            "embed both with the same network, or compare them all the same with --force",
        )
    };
    if force {
        observer.warning(&message);
        return Ok(());
    }
    Err(Error::new(message, Some(hint)))
}
