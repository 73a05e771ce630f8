//! Only the images that meet a condition on their columns.

use std::fmt;

use gallerist_data::to_nfc;
use gallerist_retrieval::EmbeddingSet;
use gallerist_retrieval::condition::Condition;
use gallerist_train::{Error, Result};
use serde::Serialize;

use crate::text::{count, grouped};

/// The hint of an error of rows without a label, where a condition narrows the rows.
pub(crate) const WITH_LABELS: &str = "leave them out: --where 'label is not missing'";

/// Reads a condition, as [`Condition::parse`]. Labels of image sets are in the form NFC of Unicode, and a text of another form finds
/// them, too.
///
/// ```
/// use gallerist::retrieval::{EmbeddingSet, Matrix};
///
/// let set = EmbeddingSet { labels: Some(vec!["caf\u{e9}".into()]), ..Matrix::new(1, 1, vec![0.0])?.into() };
/// assert_eq!(gallerist::parse_condition("label = 'cafe\u{301}'")?.rows(&set)?, [0]);
/// # Ok::<(), gallerist::Error>(())
/// ```
///
/// # Errors
///
/// As [`Condition::parse`].
pub fn parse_condition(text: &str) -> gallerist_retrieval::Result<Condition> {
    Ok(Condition::parse(text)?.with_labels(to_nfc))
}

/// Which images take part in a measurement or a figure. The default is all.
///
/// ```
/// use gallerist::Conditions;
/// use gallerist::retrieval::condition::Condition;
///
/// let cheap = Conditions::of_all(Condition::parse("price < 20")?);
/// assert_eq!(cheap.queries, cheap.gallery);
/// # Ok::<(), gallerist::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Conditions {
    /// The queries that take part. Without a gallery, the condition on all images, and `gallery` is the same.
    pub queries: Option<Condition>,
    /// The images of the gallery that take part.
    pub gallery: Option<Condition>,
}

impl Conditions {
    /// One condition for queries and gallery.
    pub fn of_all(condition: Condition) -> Self {
        Self { queries: Some(condition.clone()), gallery: Some(condition) }
    }

    /// Whether all images take part.
    pub fn is_empty(&self) -> bool {
        self.queries.is_none() && self.gallery.is_none()
    }
}

/// A set of which only the images that meet a condition took part.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Narrowed {
    /// `queries`, `gallery`, `embeddings` if they are compared with each other, or the name of a file.
    pub set: String,
    /// The condition.
    #[serde(rename = "where")]
    pub condition: String,
    /// The images that took part.
    pub images: usize,
    /// The images of the set.
    pub of: usize,
}

impl fmt::Display for Narrowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { set, condition, images, of } = self;
        write!(f, "{} of {} of the {set} take part: {condition}", grouped(*images), count(*of, "image"))
    }
}

/// The rows of `set` that meet a condition. `name` is for messages.
///
/// # Errors
///
/// When no row meets the condition, and as [`Condition::rows`].
pub(crate) fn narrowed(
    set: EmbeddingSet,
    condition: &Condition,
    name: &str,
) -> Result<(EmbeddingSet, Narrowed)> {
    let rows = condition.rows(&set)?;
    let of = set.embeddings.rows();
    if rows.is_empty() {
        return Err(Error::Retrieval(gallerist_retrieval::Error::Protocol {
            what: format!("no row of the {name}"),
            problem: format!("meets the condition `{condition}`"),
            hint: None,
        }));
    }
    let part = Narrowed { set: name.to_owned(), condition: condition.to_string(), images: rows.len(), of };
    Ok((if rows.len() == of { set } else { set.select(&rows) }, part))
}
