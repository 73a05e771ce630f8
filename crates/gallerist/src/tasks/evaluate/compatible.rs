//! Whether queries and a gallery can be compared.

use std::path::Path;

use gallerist_retrieval::fingerprint;
use gallerist_retrieval::search::Metric;

use crate::{Error, Observer, Result};

/// Refuses queries and gallery whose rows differ in length, because they are made to be compared in different ways;
/// with `force` a warning.
pub(in crate::tasks) fn same_metric(
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
    Err(Error::new(
        message,
        Some("embed both in the same way (`embed --normalize`), or compare them with --metric cosine"),
    ))
}

/// Refuses queries and gallery that name different models, or that cannot be compared by `metric` because only one of them is
/// scaled to length 1; with `force` a warning.
pub(in crate::tasks) fn same_model(
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
        (
            format!("the rows of `{scaled}` are scaled to length 1, those of `{unscaled}` are not"),
            "embed both in the same way (`embed --normalize`), or compare them with --metric cosine",
        )
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
