//! The items of an index.

use std::collections::HashMap;

use serde::{Serialize, Serializer};
use sha2::{Digest, Sha256};

use super::item_name::ItemName;
use super::origin::Origin;
use crate::columns::Columns;
use crate::{EmbeddingSet, Error, Result};

/// The largest id: databases keep ids as signed 64-bit integers.
pub const MAX_ID: u64 = i64::MAX as u64;

/// The id of an item that has a path and no [source](crate::file::Source): the first 63 bits of the
/// SHA-256 of the path's UTF-8 bytes. These are the ids of items from files that were written before
/// sources were kept; other items have an [`item_id`].
///
/// ```
/// # use gallerist_retrieval::index::stable_id;
/// assert_eq!(stable_id("heron/1.jpg"), 6_069_892_831_450_089_690);
/// ```
pub fn stable_id(path: &str) -> u64 {
    first_63_bits(Sha256::digest(path.as_bytes()).as_slice())
}

/// The id of the image with this path in the source of this name: the same in every index and on
/// every machine, and different for two sources that have images of the same path.
///
/// It is the first 63 bits of the SHA-256 of `gallerist-id`, a zero byte, the length of the name as
/// a little-endian u64, the name and the path; without a source it is the [`stable_id`] of the path.
/// Two of a million items share an id with a probability of 5e-8; [`Items::from_set`] refuses a set
/// with such items.
///
/// ```
/// # use gallerist_retrieval::index::{item_id, stable_id};
/// assert_ne!(item_id(Some("/photos/train"), "1.jpg"), item_id(Some("/photos/test"), "1.jpg"));
/// assert_eq!(item_id(None, "1.jpg"), stable_id("1.jpg"));
/// ```
pub fn item_id(source: Option<&str>, path: &str) -> u64 {
    let Some(source) = source else { return stable_id(path) };
    let hash = Sha256::new_with_prefix(b"gallerist-id\0")
        .chain_update((source.len() as u64).to_le_bytes())
        .chain_update(source)
        .chain_update(path);
    first_63_bits(hash.finalize().as_slice())
}

/// Refuses an item of this path whose id is neither its [`item_id`] nor its [`stable_id`].
///
/// # Errors
/// [`Error::OwnIds`].
pub fn check_id_of_path(id: u64, source: Option<&str>, path: &str) -> Result<()> {
    match [item_id(source, path), stable_id(path)].contains(&id) {
        true => Ok(()),
        false => Err(Error::OwnIds { id, path: path.to_owned() }),
    }
}

fn first_63_bits(hash: &[u8]) -> u64 {
    let head = hash.first_chunk().expect("a SHA-256 has 32 bytes");
    u64::from_be_bytes(*head) >> 1
}

/// Items to put into an index: an id for each row of a set of embeddings.
#[derive(Clone, Debug, PartialEq)]
pub struct Items {
    ids: Vec<u64>,
    set: EmbeddingSet,
    /// What [`of_any_model`](Items::of_any_model) removed from the set.
    forced: Option<Origin>,
}

impl Items {
    /// The rows of `set` under `ids`.
    ///
    /// # Errors
    /// [`Error::Count`] when ids, labels, paths or cameras are not one per row,
    /// [`Error::DuplicateId`], and [`Error::Option`] for an id above [`MAX_ID`].
    pub fn new(ids: Vec<u64>, set: EmbeddingSet) -> Result<Self> {
        set.check_counts()?;
        let rows = set.embeddings.rows();
        if ids.len() != rows {
            return Err(Error::Count { what: "ids", rows: "embeddings", wanted: rows, found: ids.len() });
        }
        crate::search::check_count(rows, "items")?;
        let mut seen = HashMap::with_capacity(rows);
        for (row, &id) in ids.iter().enumerate() {
            if id > MAX_ID {
                return Err(Error::Option { option: "an id", wanted: "below 2^63", found: id.to_string() });
            }
            if let Some(first) = seen.insert(id, row) {
                let path = set.paths.as_ref().map(|paths| paths[row].clone());
                return Err(Error::DuplicateId { id, first, second: row, path });
            }
        }
        Ok(Self { ids, set, forced: None })
    }

    /// The rows of `set` under the [ids](item_id) of their sources and paths; a set without paths is
    /// numbered from 0.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn from_set(set: EmbeddingSet) -> Result<Self> {
        match Self::ids_by_path(&set)? {
            Some(ids) => Self::new(ids, set),
            None => Self::numbered(set, 0),
        }
    }

    /// The [id](item_id) of each row of `set`; `None` for a set without paths.
    ///
    /// # Errors
    /// [`Error::Count`] when paths or sources are not one per row.
    pub fn ids_by_path(set: &EmbeddingSet) -> Result<Option<Vec<u64>>> {
        set.check_counts()?;
        let ids = |paths: &Vec<String>| {
            let rows = paths.iter().enumerate();
            rows.map(|(row, path)| item_id(set.source_of(row), path)).collect()
        };
        Ok(set.paths.as_ref().map(ids))
    }

    /// The rows of `set` under the ids `first`, `first + 1`, …
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn numbered(set: EmbeddingSet, first: u64) -> Result<Self> {
        let ids = (0..set.embeddings.rows() as u64).map(|row| first.saturating_add(row)).collect();
        Self::new(ids, set)
    }

    /// Number of items.
    pub fn len(&self) -> usize {
        self.ids.len()
    }

    /// True when there are none.
    pub fn is_empty(&self) -> bool {
        self.ids.is_empty()
    }

    /// The id of each row; no two are equal.
    pub fn ids(&self) -> &[u64] {
        &self.ids
    }

    /// The rows with their labels, paths and other information.
    pub fn set(&self) -> &EmbeddingSet {
        &self.set
    }

    /// The items without the model and the run that made them, without their metric and their threshold: taken by any
    /// index. An index on this machine that has items of another model then names neither a model nor a run nor a
    /// threshold.
    #[must_use]
    pub fn of_any_model(mut self) -> Self {
        self.forced.get_or_insert_with(|| Origin::from(&self.set));
        self.set.model = None;
        self.set.metric = None;
        self.set.run = None;
        self.set.threshold = None;
        self
    }

    /// Where the rows come from, also after [`of_any_model`](Self::of_any_model).
    pub(super) fn origin(&self) -> Origin {
        self.forced.clone().unwrap_or_else(|| Origin::from(&self.set))
    }

    /// Whether they are taken by an index of any model: see [`of_any_model`](Self::of_any_model).
    pub(super) fn is_forced(&self) -> bool {
        self.forced.is_some()
    }

    /// These rows, in that order.
    ///
    /// # Panics
    /// When there is no such row, or one is named twice.
    #[must_use]
    pub fn select(&self, rows: &[usize]) -> Self {
        let ids = rows.iter().map(|&row| self.ids[row]).collect();
        let selected = Self::new(ids, self.set.select(rows)).expect("rows of valid items, each once");
        Self { forced: self.forced.clone(), ..selected }
    }

    /// The items as they were before sources were kept: without sources, and those with paths under
    /// the [ids](stable_id) of their paths alone.
    ///
    /// # Errors
    /// [`Error::DuplicateId`] when two sources have an image of the same path.
    pub fn without_sources(&self) -> Result<Self> {
        let Some(paths) = &self.set.paths else { return Ok(self.clone()) };
        let by_path = |(row, id): (usize, &u64)| {
            // Ids that were given by the caller stay.
            if *id == item_id(self.set.source_of(row), &paths[row]) { stable_id(&paths[row]) } else { *id }
        };
        let ids = self.ids.iter().enumerate().map(by_path).collect();
        let items = Self::new(ids, EmbeddingSet { sources: None, ..self.set.clone() })?;
        Ok(Self { forced: self.forced.clone(), ..items })
    }

    /// Item `row`.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn item(&self, row: usize) -> Item {
        let entry = |list: &Option<Vec<String>>| list.as_ref().map(|list| list[row].clone());
        Item {
            id: self.ids[row],
            embedding: self.set.embeddings.row(row).to_vec(),
            label: entry(&self.set.labels),
            path: entry(&self.set.paths),
            camera: entry(&self.set.cameras),
            source: self.set.source_of(row).map(str::to_owned),
            columns: self.set.columns.of_row(row),
        }
    }
}

/// One item of an index.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Item {
    /// Its id.
    pub id: u64,
    /// Its embedding, as it was given.
    pub embedding: Vec<f32>,
    /// Its class.
    pub label: Option<String>,
    /// Its image.
    pub path: Option<String>,
    /// Its camera.
    pub camera: Option<String>,
    /// The name of its [source](crate::file::Source).
    pub source: Option<String>,
    /// Its values of further columns, as [`Columns::of_row`] gives them. In JSON an object.
    #[serde(serialize_with = "as_object")]
    pub columns: Columns,
}

fn as_object<S: Serializer>(columns: &Columns, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    columns.row_as_json(0).serialize(serializer)
}

impl Item {
    /// Its values of further columns: numbers, texts, and lists of tags.
    pub fn columns_as_json(&self) -> serde_json::Map<String, serde_json::Value> {
        self.columns.row_as_json(0)
    }

    /// How messages name it.
    pub fn name(&self) -> ItemName {
        ItemName { id: self.id, path: self.path.clone(), source: self.source.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Matrix;
    use crate::file::{Source, Sources};

    const TRAIN_A_1: u64 = 0x1d23_583e_fb07_83e2;

    fn set(rows: usize) -> EmbeddingSet {
        Matrix::new(rows, 1, vec![1.0; rows]).unwrap().into()
    }

    #[test]
    fn ids_are_one_per_row_all_different_and_below_two_to_the_63() {
        let message = |ids: &[u64]| Items::new(ids.to_vec(), set(3)).unwrap_err().to_string();
        assert_eq!(message(&[1, 2]), "2 ids for 3 embeddings");
        assert_eq!(message(&[7, 2, 7]), "rows 0 and 2 of the items have the same id 7");
        let paths = Some(["a", "b", "a"].map(String::from).to_vec());
        let twice = Items::from_set(EmbeddingSet { paths, ..set(3) }).unwrap_err();
        assert!(twice.to_string().starts_with("rows 0 and 2 of the items are both `a`"), "{twice}");
        assert_eq!(message(&[0, 1, MAX_ID + 1]), "an id must be below 2^63, 9223372036854775808 given");
        assert!(Items::new(vec![0, 1, MAX_ID], set(3)).is_ok());
    }

    #[test]
    fn images_of_one_path_in_two_sources_are_two_items() {
        let one = |name: &str| EmbeddingSet {
            paths: Some(vec!["a/1.jpg".to_owned()]),
            sources: Some(Sources::one(Source { name: name.to_owned(), images: None }, 1)),
            ..set(1)
        };
        let both = EmbeddingSet::concat(vec![one("train"), one("test")], false).unwrap();
        let items = Items::from_set(both).unwrap();
        // printf 'gallerist-id\0\5\0\0\0\0\0\0\0traina/1.jpg' | sha256sum
        assert_eq!(items.ids()[0], TRAIN_A_1 >> 1);
        assert_eq!(items.ids()[1], item_id(Some("test"), "a/1.jpg"));
        assert_eq!(items.item(1).source.as_deref(), Some("test"));
        assert_ne!(item_id(Some("ab"), "c"), item_id(Some("a"), "bc"), "the name ends where it ends");
        assert!(matches!(items.without_sources(), Err(Error::DuplicateId { .. })));
        let alone = items.select(&[1]).without_sources().unwrap();
        assert_eq!((alone.ids(), &alone.item(0).source), (&[stable_id("a/1.jpg")][..], &None));
    }

    #[test]
    fn the_id_of_a_path_stands_in_the_hash_of_its_bytes() {
        // printf a/1.jpg | sha256sum
        let paths = vec!["a/1.jpg".to_owned(), String::new()];
        let items = Items::from_set(EmbeddingSet { paths: Some(paths), ..set(2) }).unwrap();
        assert_eq!(items.ids(), [0x35f4_aeeb_54d2_3214 >> 1, 0xe3b0_c442_98fc_1c14 >> 1]);
        assert_eq!(Items::from_set(set(2)).unwrap().ids(), [0, 1]);
        assert!(Items::numbered(set(2), u64::MAX).is_err());
    }
}
