//! What adding items would change.

use serde::Serialize;

use super::{Index, Item, Items, check_items, stable_id};
use crate::{Error, Result};

/// Items looked up at a time: their embeddings come along.
const ITEMS_AT_A_TIME: usize = 4096;

/// What [adding](Index::add) items did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Added {
    /// Items that were not there.
    pub new: usize,
    /// Items that were there, the same to the last bit.
    pub unchanged: usize,
    /// Items that took the place of others.
    pub replaced: usize,
}

/// How items compare with what an index holds: which of them are new, which are there, which would
/// replace another.
#[derive(Clone, Debug, Default)]
pub struct Addition {
    /// Rows that are not in the index.
    pub new: Vec<usize>,
    /// Rows that are there unchanged.
    pub unchanged: Vec<usize>,
    /// Rows that would replace an item.
    pub replaced: Vec<Replaced>,
}

/// A row and the item that it would replace.
#[derive(Clone, Debug)]
pub struct Replaced {
    /// The row.
    pub row: usize,
    /// The item that is there. It has another id than the row where it has the row's path and no
    /// known source.
    pub there: Item,
}

impl Addition {
    /// Compares `items` with what is in `index`.
    ///
    /// An item without a source, from a file that was written before sources were kept, is taken for
    /// the item of the same path from any source: whether it is the same image cannot be known.
    ///
    /// # Errors
    /// What [`check_items`] refuses, and those of a place that has to be asked over a network.
    pub fn of(index: &(impl Index + ?Sized), items: &Items) -> Result<Self> {
        let info = index.info()?;
        check_items(items, info.metric, info.dimensions, info.model.as_deref())?;
        let mut addition = Self::default();
        if info.count == 0 {
            addition.new = (0..items.len()).collect();
            return Ok(addition);
        }
        for start in (0..items.len()).step_by(ITEMS_AT_A_TIME) {
            let rows = start..items.len().min(start + ITEMS_AT_A_TIME);
            let by_id = index.get(&items.ids()[rows.clone()])?;
            let by_path = without_source(index, items, rows.clone())?;
            for ((row, by_id), by_path) in rows.zip(by_id).zip(by_path) {
                let there = by_id.or(by_path);
                match there {
                    None => addition.new.push(row),
                    Some(there) if is_same(items, row, &there) => addition.unchanged.push(row),
                    Some(there) => addition.replaced.push(Replaced { row, there }),
                }
            }
        }
        Ok(addition)
    }

    /// Refuses items that would replace others.
    ///
    /// # Errors
    /// [`Error::Replaces`].
    pub fn check(&self, items: &Items) -> Result<()> {
        let Some(Replaced { row, there }) = self.replaced.first() else { return Ok(()) };
        let new = items.item(*row);
        Err(Error::Replaces {
            count: self.replaced.len(),
            difference: difference(&new, there),
            new: Box::new(new.name()),
            old: Box::new(there.name()),
        })
    }

    /// The ids of items that go because another takes their place under another id, and the items
    /// that are written.
    pub fn changes(&self, items: &Items) -> (Vec<u64>, Items) {
        let mut rows: Vec<usize> = self.replaced.iter().map(|one| one.row).chain(self.new.clone()).collect();
        rows.sort_unstable();
        let moved = self.replaced.iter().filter(|one| one.there.id != items.ids()[one.row]);
        (moved.map(|one| one.there.id).collect(), items.select(&rows))
    }

    /// How many of each there are.
    pub fn added(&self) -> Added {
        Added { new: self.new.len(), unchanged: self.unchanged.len(), replaced: self.replaced.len() }
    }
}

/// For each of `rows` that has a source the item of its path that has none.
fn without_source(
    index: &(impl Index + ?Sized),
    items: &Items,
    rows: std::ops::Range<usize>,
) -> Result<Vec<Option<Item>>> {
    let set = items.set();
    let mut found = vec![None; rows.len()];
    let Some(paths) = set.paths.as_ref().filter(|_| set.sources.is_some()) else { return Ok(found) };
    let start = rows.start;
    let asked: Vec<usize> = rows.filter(|&row| set.source_of(row).is_some()).collect();
    let ids: Vec<u64> = asked.iter().map(|&row| stable_id(&paths[row])).collect();
    for (row, item) in asked.into_iter().zip(index.get(&ids)?) {
        found[row - start] =
            item.filter(|item| item.source.is_none() && item.path.as_ref() == Some(&paths[row]));
    }
    Ok(found)
}

/// Whether an item is there already: all that is known of it is the same, but for a source that was
/// not kept.
fn is_same(items: &Items, row: usize, there: &Item) -> bool {
    let new = items.item(row);
    let same_bits = new
        .embedding
        .iter()
        .map(|value| value.to_bits())
        .eq(there.embedding.iter().map(|value| value.to_bits()));
    let same_source = new.source == there.source || there.source.is_none();
    same_bits
        && same_source
        && (&new.label, &new.path, &new.camera) == (&there.label, &there.path, &there.camera)
}

/// What the item that is there has, and the new one has not.
fn difference(new: &Item, there: &Item) -> String {
    let differs = |what: &str, new: &Option<String>, there: &Option<String>| {
        let value =
            |text: &Option<String>| text.as_ref().map_or("none".to_owned(), |text| format!("`{text}`"));
        (new != there).then(|| format!("the {what} {}, not {}", value(there), value(new)))
    };
    let source = differs("source", &new.source, &there.source).filter(|_| there.source.is_some());
    let path = differs("path", &new.path, &there.path);
    let label = differs("label", &new.label, &there.label);
    let camera = differs("camera", &new.camera, &there.camera);
    source.or(path).or(label).or(camera).unwrap_or_else(|| "another embedding".to_owned())
}
