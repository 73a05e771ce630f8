//! What goes into an index and comes out of it.

use std::collections::HashMap;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::{EmbeddingSet, Error, Result};

/// The largest id: databases keep ids as signed 64-bit integers.
pub const MAX_ID: u64 = i64::MAX as u64;

/// The id of the item with this path or name: the first 63 bits of the SHA-256 of its UTF-8
/// bytes. The same path has the same id in every index and on every machine.
///
/// Two of a million paths share an id with a probability of 5e-8; [`Items::from_set`] refuses
/// such a set.
///
/// ```
/// # use gallerist_retrieval::index::stable_id;
/// assert_eq!(stable_id("heron/1.jpg"), 6_069_892_831_450_089_690);
/// ```
pub fn stable_id(path: &str) -> u64 {
    let hash = Sha256::digest(path.as_bytes());
    let head = hash.first_chunk().expect("a SHA-256 has 32 bytes");
    u64::from_be_bytes(*head) >> 1
}

/// Items to put into an index: an id for each row of a set of embeddings.
#[derive(Clone, Debug, PartialEq)]
pub struct Items {
    ids: Vec<u64>,
    set: EmbeddingSet,
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
                return Err(Error::DuplicateId { id, first, second: row });
            }
        }
        Ok(Self { ids, set })
    }

    /// The rows of `set` under the [stable ids](stable_id) of their paths; a set without paths is
    /// numbered from 0.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn from_set(set: EmbeddingSet) -> Result<Self> {
        match &set.paths {
            Some(paths) => Self::new(paths.iter().map(|path| stable_id(path)).collect(), set),
            None => Self::numbered(set, 0),
        }
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

    /// The rows and what is known about each.
    pub fn set(&self) -> &EmbeddingSet {
        &self.set
    }

    /// The items without the name of the model that made them, and without their metric: taken by any index.
    #[must_use]
    pub fn of_any_model(mut self) -> Self {
        self.set.model = None;
        self.set.metric = None;
        self
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Matrix;

    fn set(rows: usize) -> EmbeddingSet {
        Matrix::new(rows, 1, vec![1.0; rows]).unwrap().into()
    }

    #[test]
    fn ids_are_one_per_row_all_different_and_below_two_to_the_63() {
        let message = |ids: &[u64]| Items::new(ids.to_vec(), set(3)).unwrap_err().to_string();
        assert_eq!(message(&[1, 2]), "2 ids for 3 embeddings");
        assert_eq!(message(&[7, 2, 7]), "rows 0 and 2 of the items have the same id 7");
        assert_eq!(message(&[0, 1, MAX_ID + 1]), "an id must be below 2^63, 9223372036854775808 given");
        assert!(Items::new(vec![0, 1, MAX_ID], set(3)).is_ok());
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
