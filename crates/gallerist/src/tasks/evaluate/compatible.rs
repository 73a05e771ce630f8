//! Whether queries and a gallery can be compared.

use std::path::Path;

use gallerist_retrieval::search::Metric;
use gallerist_util::hex;

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

/// Refuses queries and gallery that name different models; with `force` a warning.
pub(in crate::tasks) fn same_model(
    (query, of_queries): (&Path, Option<&str>),
    (gallery, of_gallery): (&Path, Option<&str>),
    force: bool,
    observer: &mut dyn Observer,
) -> Result<()> {
    let (Some(a), Some(b)) = (of_queries, of_gallery) else { return Ok(()) };
    if a == b {
        return Ok(());
    }
    let message = format!(
        "`{}` was embedded with the network {}\n  `{}` with {}: their distances mean nothing to each other",
        query.display(),
        hex::short(a),
        gallery.display(),
        hex::short(b)
    );
    if force {
        observer.warning(&message);
        return Ok(());
    }
    Err(Error::new(
        message,
        Some("embed both with the same network, or compare them all the same with --force"),
    ))
}
