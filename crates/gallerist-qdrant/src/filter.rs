//! Filters of Qdrant.

use gallerist_database::row::Text;
use gallerist_retrieval::index::{Among, ItemFilter};

use crate::wire::filters::{Condition, Filter};

/// A set of items: those that meet all of some conditions.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QdrantFilter(pub(crate) Vec<Condition>);

impl QdrantFilter {
    /// As a message; `None` for every item.
    pub(crate) fn message(&self) -> Option<Filter> {
        (!self.0.is_empty()).then(|| Filter { must: self.0.clone(), ..Filter::default() })
    }
}

/// The filter that admits what `filter` admits, its condition on columns aside.
pub(crate) fn plain(filter: &ItemFilter) -> QdrantFilter {
    // A condition that is added there must be added here.
    let ItemFilter { label, camera, path, id, condition: _ } = filter;
    let texts = [(Text::Label, label), (Text::Camera, camera), (Text::Path, path)];
    let texts = texts.into_iter().filter_map(|(text, among)| {
        Some(term(among.as_ref()?, |texts| Condition::one_of(text.name(), texts.to_vec())))
    });
    let id = id.as_ref().map(|ids| term(ids, Condition::has_id));
    QdrantFilter(texts.chain(id).collect())
}

/// The filter that admits these ids, or all others.
pub(crate) fn among(ids: &Among<u64>) -> QdrantFilter {
    QdrantFilter(vec![term(ids, Condition::has_id)])
}

/// An item without a value is in no list. `list` of no values admits no item.
fn term<T>(among: &Among<T>, list: impl Fn(&[T]) -> Condition) -> Condition {
    match among {
        Among::In(values) => list(values),
        Among::NotIn(values) => Condition::none(vec![list(values)]),
    }
}
