//! Measuring only the images that meet a condition on their columns.

use gallerist_retrieval::EmbeddingSet;
use gallerist_retrieval::condition::Condition;
use serde::Serialize;

use crate::measured::Measured;
use crate::text::count;
use crate::{Error, Observer, Result};

/// A set of which only the images that meet a condition took part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Narrowed {
    /// `queries`, `gallery`, or `embeddings` where they are compared with each other.
    pub set: &'static str,
    /// The condition.
    #[serde(rename = "where")]
    pub condition: String,
    /// The images that took part.
    pub images: usize,
    /// The images of the set.
    pub of: usize,
}

/// The rows of `set` that meet a condition, and the number of all. `name` is for messages.
pub(in crate::tasks) fn narrowed(
    set: EmbeddingSet,
    condition: &Condition,
    name: &str,
    observer: &mut dyn Observer,
) -> Result<(EmbeddingSet, usize)> {
    let rows = condition.rows(&set)?;
    let all = set.embeddings.rows();
    if rows.is_empty() {
        return Err(Error::new(format!("no row of the {name} meets the condition `{condition}`"), None));
    }
    let images = count(all, "image");
    observer.note(&format!("{} of {images} of the {name} take part: {condition}", rows.len()));
    Ok((if rows.len() == all { set } else { set.select(&rows) }, all))
}

/// Leaves out what does not meet the conditions on queries and gallery.
pub(super) fn narrow(
    measured: &mut Measured,
    [query_condition, gallery_condition]: [&Option<Condition>; 2],
    observer: &mut dyn Observer,
) -> Result<Vec<Narrowed>> {
    let one_set = measured.gallery.is_none();
    if one_set && query_condition != gallery_condition {
        return Err(Error::new(
            "there is no gallery: every image is a query against all others, and one condition holds for all",
            Some("give it as --where, or give queries and a gallery"),
        ));
    }
    let mut parts = Vec::new();
    let mut part =
        |set: &mut EmbeddingSet, name: &'static str, condition: &Option<Condition>| -> Result<()> {
            let Some(condition) = condition else { return Ok(()) };
            let whole = std::mem::replace(set, gallerist_retrieval::Matrix::new(0, 0, Vec::new())?.into());
            let (kept, of) = narrowed(whole, condition, name, observer)?;
            let images = kept.embeddings.rows();
            *set = kept;
            parts.push(Narrowed { set: name, condition: condition.to_string(), images, of });
            Ok(())
        };
    part(&mut measured.queries, if one_set { "embeddings" } else { "queries" }, query_condition)?;
    if let Some(gallery) = &mut measured.gallery {
        part(gallery, "gallery", gallery_condition)?;
    }
    Ok(parts)
}
