//! An item as a point of Qdrant.
//!
//! | field of the payload | type | content |
//! | --- | --- | --- |
//! | `label`, `path`, `camera`, `source` | text | left out for an item without |
//! | `numbers`, `digits`, `texts`, `tags`, `dates` | object | the [columns](crate::columns) |
//! | `digest` | integer | of all the others and the embedding: tells an item that is there from one that has changed |
//!
//! The id of the point is that of the item.

use gallerist_database::CollectionLayout;
use gallerist_database::row::Text;
use gallerist_retrieval::index::{Item, Items};

use crate::columns::{self, Store};
use crate::layout::{EMBEDDING, searched};
use crate::wire::filters::PointId;
use crate::wire::points::{DenseVector, NamedVectors, PointStruct, RetrievedPoint, Vector, Vectors};
use crate::wire::value::{Object, Value};

pub(crate) const DIGEST: &str = "digest";

/// The fields from which conditions are evaluated.
pub(crate) const FIELDS_OF_TABLE: [&str; 3 + Store::ALL.len()] = [
    Text::Label.name(),
    Text::Path.name(),
    Text::Camera.name(),
    Store::Numbers.field(),
    Store::Digits.field(),
    Store::Texts.field(),
    Store::Tags.field(),
    Store::Dates.field(),
];

/// Row `row` as a point.
pub(crate) fn point(items: &Items, row: usize, digest: i64, layout: &CollectionLayout) -> PointStruct {
    let set = items.set();
    let mut payload = Object::new();
    for text in Text::ALL {
        if let Some(value) = text.of(set, row) {
            payload.insert(text.name().to_owned(), Value::text(value));
        }
    }
    payload.extend(
        columns::fields(&set.columns, row).into_iter().map(|(field, value)| (field.to_owned(), value)),
    );
    payload.insert(DIGEST.to_owned(), Value::integer(digest));
    let mut names = vec![EMBEDDING, searched(layout.metric)];
    names.dedup();
    let vector =
        || Vector { dense: Some(DenseVector { data: set.embeddings.row(row).to_vec() }), data: vec![] };
    let vectors = names.into_iter().map(|name| (name.to_owned(), vector())).collect();
    PointStruct {
        id: Some(PointId::new(items.ids()[row])),
        payload,
        vectors: Some(Vectors { named: Some(NamedVectors { vectors }) }),
    }
}

/// The text of a point; `None` for one that is no text.
pub(crate) fn text(payload: &Object, text: Text) -> Option<Option<String>> {
    match payload.get(text.name()) {
        None => Some(None),
        Some(value) => Some(Some(value.as_text()?.to_owned())),
    }
}

/// The id of a point.
pub(crate) fn id(point: &RetrievedPoint) -> Option<u64> {
    point.id.as_ref()?.number()
}

/// The embedding of a point.
pub(crate) fn embedding(point: &RetrievedPoint, dimensions: usize) -> Option<&[f32]> {
    point.vector(EMBEDDING).filter(|values| values.len() == dimensions)
}

/// The point as an item; `None` if something is missing or of another type.
pub(crate) fn item(point: &RetrievedPoint, dimensions: usize) -> Option<Item> {
    Some(Item {
        id: id(point)?,
        embedding: embedding(point, dimensions)?.to_vec(),
        label: text(&point.payload, Text::Label)?,
        path: text(&point.payload, Text::Path)?,
        camera: text(&point.payload, Text::Camera)?,
        source: text(&point.payload, Text::Source)?,
        columns: columns::read(&point.payload)?,
    })
}
